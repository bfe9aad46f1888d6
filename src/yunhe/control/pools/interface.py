"""What others may ask of pools."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

from yunhe.control.pools.model import (
    Check,
    ExecRequest,
    ExecSession,
    FactChanges,
    ForwardSession,
    LaunchOrder,
    LogChunk,
    Mount,
    Observation,
    Pool,
    PoolSpec,
    UsageMinute,
)
from yunhe.kernel.ids import AllocationId, BlobId, PoolId, ProjectId
from yunhe.kernel.resources import Resources


class Pools(Protocol):
    """Owns pools and the connections to their engines."""

    def add(self, spec: PoolSpec) -> AsyncIterator[Check]:
        """Register a pool and yield each check as it is made; it is ready only when all are ok. The same spec again is a check."""
        ...

    async def pools(self) -> tuple[Pool, ...]:
        """Return every pool."""
        ...

    async def pool(self, name_or_id: str) -> Pool:
        """Return one pool, or raise ``NotFoundError``."""
        ...

    def check(self, name_or_id: str) -> AsyncIterator[Check]:
        """Yield what works and what does not, each with its remedy."""
        ...

    async def drain(self, name_or_id: str, *, on: bool = True) -> Pool:
        """Take no new work on a pool, or again."""
        ...

    async def tell(self, name_or_id: str, changes: FactChanges) -> Pool:
        """Note what an operator says of a pool: speed, power, carbon, labels …; what is not said stays."""
        ...

    async def cordon(self, name_or_id: str, node: str, *, on: bool = True) -> Pool:
        """Take no new work on one node of a pool, or again; *node* is the engine's own name for it."""
        ...

    async def remove(self, name_or_id: str, *, force: bool = False) -> None:
        """Forget a pool that has no work left; with *force*, even if it has or does not answer."""
        ...

    async def launch(self, pool_id: PoolId, order: LaunchOrder, mounts: tuple[Mount, ...]) -> None:
        """Send what an allocation needs, then begin it."""
        ...

    async def manifests(self, pool_id: PoolId, order: LaunchOrder) -> tuple[dict[str, Any], ...]:
        """Return objects that run *order* when another deployer applies them; ``UnsupportedError``: not in this pool."""
        ...

    async def stop(
        self, pool_id: PoolId, allocation_id: AllocationId, token: int, *, grace_s: float = 10.0
    ) -> None:
        """Begin to end an allocation: politely, and by force after *grace_s*."""
        ...

    async def release(self, pool_id: PoolId, allocation_id: AllocationId, token: int) -> None:
        """Let the engine forget an ended allocation."""
        ...

    async def resize(
        self, pool_id: PoolId, allocation_id: AllocationId, token: int, resources: Resources
    ) -> None:
        """Change the limits of a running allocation in place."""
        ...

    async def observe(self, pool_id: PoolId, *, beyond: int, wait_s: float) -> Observation:
        """Return what the engine knows of every allocation; wait for news up to *wait_s*."""
        ...

    async def usage(self, pool_id: PoolId, *, beyond: int) -> tuple[UsageMinute, ...]:
        """Return the minutes of use after sequence number *beyond*."""
        ...

    def logs(
        self, pool_id: PoolId, allocation_id: AllocationId, *, offset: int, follow: bool
    ) -> AsyncIterator[LogChunk]:
        """Yield an allocation's output from *offset*."""
        ...

    async def collect(
        self, pool_id: PoolId, allocation_id: AllocationId, paths: tuple[str, ...], project_id: ProjectId
    ) -> BlobId:
        """Bring *paths* home as one archive, which counts for the quotas of a project; what does not exist is left out."""
        ...

    def files(
        self, pool_id: PoolId, allocation_id: AllocationId, paths: tuple[str, ...]
    ) -> AsyncIterator[bytes]:
        """Yield a gzip-compressed tar of *paths*."""
        ...

    def exec(
        self, pool_id: PoolId, allocation_id: AllocationId, request: ExecRequest
    ) -> AbstractAsyncContextManager[ExecSession]:
        """Run a command beside a running allocation."""
        ...

    def forward(
        self, pool_id: PoolId, allocation_id: AllocationId, port: int
    ) -> AbstractAsyncContextManager[ForwardSession]:
        """Connect to a port inside a running allocation."""
        ...
