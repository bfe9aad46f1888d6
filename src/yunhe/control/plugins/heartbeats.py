"""Heartbeats: who was heard is written down, who was not has its pools marked, who is back has them looked at."""

from collections.abc import Callable

import anyio

from yunhe.control.plugins.hosting import Hosting
from yunhe.control.plugins.registry import Registry

TICK_S = 0.5
SLEPT_S = 1.0
"""A turn that comes this much too late means that we slept: nobody is judged by what we did not hear."""


class Heartbeats:
    """One loop in each server process."""

    def __init__(self, registry: Registry, hosting: Hosting, returned: Callable[[], None]) -> None:
        self._registry = registry
        self._hosting = hosting
        self._returned = returned

    async def run(self) -> None:
        """Keep the registry and the pools' states in step until cancelled."""
        silent_before: set[str] = set()
        turn = anyio.current_time()
        while True:
            if anyio.current_time() - turn > TICK_S + SLEPT_S:
                self._registry.pardon()
            turn = anyio.current_time()
            await self._registry.write_heartbeats()
            await self._registry.refresh()
            await self._registry.forget_silent()
            silent = await self._hosting.mark_silent_pools()
            if silent_before - silent:
                self._returned()
            silent_before = silent
            await anyio.sleep(TICK_S)
