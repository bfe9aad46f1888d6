"""Heartbeats: who was heard is written down, and who was not is told to whoever owns its pools."""

from collections.abc import Awaitable, Callable

import anyio

from yunhe.control.plugins.kinds import KnownKinds

TICK_S = 0.25
SLEPT_S = 1.0
"""A turn that comes this much too late means that we slept: nobody is judged by what we did not hear."""


async def _nobody(_silent: dict[str, str]) -> None:
    return


class Heartbeats:
    """One loop in each server process."""

    def __init__(self, kinds: KnownKinds) -> None:
        self._kinds = kinds
        self.on_silence: Callable[[dict[str, str]], Awaitable[None]] = _nobody
        """Told every time which plugins are silent, each with the reason."""

    async def run(self) -> None:
        """Keep the registry and the pools' states in step until cancelled."""
        registry = self._kinds.registry
        while True:
            await registry.refresh()
            await self.on_silence(self._kinds.silent())
            await registry.write_heartbeats()
            await registry.forget_silent()
            lay_down_at = anyio.current_time()
            await anyio.sleep(TICK_S)
            if anyio.current_time() - lay_down_at > TICK_S + SLEPT_S:
                registry.restart_waiting()
