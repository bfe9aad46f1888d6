"""Heartbeats: who was heard is written down, who was not has its pools marked, who is back has them looked at."""

from collections.abc import Callable

import anyio

from yunhe.control.plugins.registry import Registry
from yunhe.control.plugins.service import Hosting

TICK_S = 0.25
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
        while True:
            await self._registry.refresh()
            silent = await self._hosting.mark_silent_pools()
            if silent_before - silent:
                self._returned()
            silent_before = silent
            await self._registry.write_heartbeats()
            await self._registry.forget_silent()
            lay_down_at = anyio.current_time()
            await anyio.sleep(TICK_S)
            if anyio.current_time() - lay_down_at > TICK_S + SLEPT_S:
                self._registry.pardon()
