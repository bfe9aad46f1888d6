"""Slurm sites as a kind of engine."""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager

from yunhe.infrastructure.contract.engine import Engine
from yunhe.infrastructure.contract.kind import Check, Target, timed
from yunhe.infrastructure.slurm.engine import SlurmEngine
from yunhe.infrastructure.slurm.onboard import onboard
from yunhe.infrastructure.slurm.target import read_target


class SlurmKind:
    """Connects to Slurm sites."""

    async def onboard(self, target: Target) -> AsyncIterator[Check]:
        """Yield each step of getting a site ready, with how long it took."""
        async for check in timed(onboard(read_target(target))):
            yield check

    @asynccontextmanager
    async def connect(self, target: Target) -> AsyncGenerator[Engine]:
        """Hold a connection that recovers by itself."""
        async with SlurmEngine(read_target(target)) as engine:
            yield engine
