"""The plugin for example-engine: how the platform reaches it.

As written, the engine is ``FakePool``: it lives in this process's memory, runs a few shell commands and forgets all
when the process ends. Replace it verb by verb with calls to your engine, and keep the conformance kit green
(``pytest test_plugin.py``). What must be found again (ID, token, phase, exit code, meters) belongs into the engine: in
labels, comments or files there, never in this process.
"""

import sys
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from yunhe.infrastructure.contract.kind import Check, Target
from yunhe.infrastructure.contract.model import (
    Account,
    Catalogue,
    Description,
    Inventory,
    LaunchOrder,
    LogChunk,
    Observation,
    Power,
    Spec,
    UsageMinute,
)
from yunhe.infrastructure.fake.pool import FakePool
from yunhe.infrastructure.plugin.serve import serve_plugin
from yunhe.kernel.errors import UnsupportedError
from yunhe.kernel.ids import AllocationId


class ExampleKind:
    """Finds out that it can connect to a pool, and connects."""

    def __init__(self) -> None:
        self._pools: dict[str, FakePool] = {}

    async def onboard(self, target: Target) -> AsyncIterator[Check]:
        """Yield each step of getting ready: reachable, credentials, version, permissions, something really works."""
        yield Check(step="reachable", ok=True, detail=f"{target.address} is in memory")

    @asynccontextmanager
    async def connect(self, target: Target) -> AsyncGenerator["ExampleEngine", None]:
        """Hold a connection that recovers by itself; raise ``PoolUnreachableError`` if there is none to begin with."""
        yield ExampleEngine(self._pools.setdefault(target.address, FakePool()))


class ExampleEngine:
    """A connection to one pool; every verb keeps the promises of ``yunhe.infrastructure.contract.engine``."""

    def __init__(self, pool: FakePool) -> None:
        self._pool = pool

    async def describe(self) -> Description:
        """Say what this engine is, and why it lacks each power it lacks."""
        return Description(
            engine="example-engine",
            version="1",
            missing={power: f"The skeleton does not have {power} yet." for power in Power},
        )

    async def account(self) -> Account:
        """Say who we are to the engine."""
        return Account(identity="anybody")

    async def catalogue(self) -> Catalogue:
        """Say which sizes it has or can make."""
        nodes = self._pool.inventory().nodes
        return Catalogue(specs=tuple(Spec(name=node.id, resources=node.total, count=1) for node in nodes))

    async def inventory(self) -> Inventory:
        """Say which nodes it has and what is in use."""
        return self._pool.inventory()

    async def launch(self, order: LaunchOrder) -> None:
        """Begin an order, once, whatever is repeated; refuse by name what cannot be honoured."""
        if order.image:
            raise UnsupportedError("image: example-engine runs no containers.", remedy="Leave it out.")
        self._pool.launch(order)

    async def stop(self, allocation_id: AllocationId, token: int, *, grace_s: float = 10.0) -> None:
        """Begin to end it; an unknown one leaves a mark, so that a late launch starts nothing."""
        self._pool.stop(allocation_id, token, grace_s)

    async def release(self, allocation_id: AllocationId, token: int) -> None:
        """Forget an ended allocation, but for the mark that it was."""
        self._pool.release(allocation_id, token)

    async def observe(self, *, beyond: int = -1, wait_s: float = 0.0) -> Observation:
        """Tell of every allocation; wait for news where asked to."""
        deadline = self._pool.time.now() + wait_s
        self._pool.settle()
        while self._pool.version <= beyond and self._pool.time.now() < deadline:
            await self._pool.changed(deadline)
        return self._pool.observation()

    async def logs(
        self, allocation_id: AllocationId, *, offset: int = 0, follow: bool = False
    ) -> AsyncIterator[LogChunk]:
        """Yield output from a byte on; with *follow*, until it has ended and all is read."""
        while True:
            chunk, more = self._pool.read_log(allocation_id, offset)
            if chunk.data:
                yield chunk
                offset = chunk.offset + len(chunk.data)
            elif follow and more:
                await self._pool.changed(float("inf"))
            else:
                return

    async def usage(self, *, beyond: int = -1) -> AsyncIterator[UsageMinute]:
        """Yield every minute of use after *beyond*, then end."""
        for minute in self._pool.minutes(beyond):
            yield minute

    async def close(self) -> None:
        """Let go of the connection; allocations go on."""


if __name__ == "__main__":
    sys.exit(serve_plugin(Path(__file__).with_name("plugin.toml"), ExampleKind))
