"""A kind of engine whose adapter is another process."""

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager

from yunhe.infrastructure.contract.engine import Engine
from yunhe.infrastructure.contract.generated import engine_pb2
from yunhe.infrastructure.contract.kind import Check, Target
from yunhe.infrastructure.contract.manifest import Manifest
from yunhe.infrastructure.contract.wire import to_message, to_struct
from yunhe.infrastructure.remote.calls import Calls
from yunhe.infrastructure.remote.channels import Channels, PluginAddress
from yunhe.infrastructure.remote.engine import RemoteEngine

ONBOARD_WITHIN_S = 600.0


class RemoteKind:
    """Connects to engines through the plugin of *manifest*; *where* tells its current instance at every call."""

    def __init__(self, manifest: Manifest, where: Callable[[], PluginAddress]) -> None:
        self._channels = Channels(where)
        self._calls = Calls(manifest, self._channels)

    async def onboard(self, target: Target) -> AsyncIterator[Check]:
        """Yield each step of getting an engine ready there; the first that fails is the last."""
        place = told = 0  # another instance begins again: what was told is not told twice

        def request() -> engine_pb2.OnboardRequest:
            nonlocal place
            place = 0
            return engine_pb2.OnboardRequest(target=to_message(target, engine_pb2.Target))

        async with self._channels.held():
            async for message in self._calls.read(
                "Onboarding/Onboard", request, engine_pb2.Check, within_s=ONBOARD_WITHIN_S
            ):
                place += 1
                if place > told:
                    told = place
                    yield to_struct(message, Check)

    @asynccontextmanager
    async def connect(self, target: Target) -> AsyncGenerator[Engine, None]:
        """Hold an engine that finds the current instance by itself; raise ``PoolUnreachableError`` if there is none."""
        async with self._channels.held():
            engine = RemoteEngine(self._calls, to_message(target, engine_pb2.Target))
            await engine.describe()
            yield engine
