"""Ray clusters as a kind of engine."""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager

from yunhe.infrastructure.contract.engine import Engine
from yunhe.infrastructure.contract.kind import Check, Target, timed
from yunhe.infrastructure.ray.client import RayClient
from yunhe.infrastructure.ray.engine import RayEngine
from yunhe.infrastructure.ray.onboard import onboard
from yunhe.infrastructure.ray.target import read_target


class RayKind:
    """Connects to Ray clusters."""

    async def onboard(self, target: Target) -> AsyncIterator[Check]:
        """Yield each step from the first contact to a job that has really run, with how long it took."""
        async for check in timed(onboard(read_target(target))):
            yield check

    @asynccontextmanager
    async def connect(self, target: Target) -> AsyncGenerator[Engine]:
        """Hold a connection; each call opens what it needs, so there is nothing to fix."""
        async with RayEngine(RayClient(read_target(target))) as engine:
            yield engine
