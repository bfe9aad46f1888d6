"""The promises of an engine, as tests that every engine inherits.

A test class inherits ``EnginePromises`` and gives one fixture, ``connect``: an async callable that opens a new
connection to the same pool each time. The class attributes of ``BasicPromises`` are knobs. The scripts are plain
``sh``::

    @pytest.mark.drives("my engine")
    class TestMyEngine(EnginePromises):
        @pytest.fixture
        async def connect(self):
            return lambda: MyEngine.open("...")
"""

from yunhe.conformance.power_promises import PowerPromises


class EnginePromises(PowerPromises):
    """Everything an engine promises."""
