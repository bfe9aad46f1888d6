"""The promises of an engine.

Every engine keeps these, and ``yunhe.conformance`` holds it to them:

* **Idempotent by ID.** The caller chooses the allocation's ID. A verb repeated with the same ID and the same or
  a higher token has the effect of one call.
* **Fenced.** A command whose token is lower than the highest this allocation has seen raises ``FencedError`` and
  changes nothing. A stop leaves a mark, so that a launch that arrives late with an older token starts nothing.
* **Eventually consistent.** ``launch`` and ``stop`` begin; ``observe`` tells what came of it. What has been observed
  as exited never runs again.
* **Bounded.** Every call answers or raises within its timeout; ``PoolUnreachableError`` means the caller cannot know
  whether it was heard, and may repeat it.
* **Nothing dropped.** The log and the files of an allocation that has ended stay until it is released. To ask for them,
  ``NotFoundError`` means that they no longer exist, and nobody asks again; an engine that is busy, full or out of reach
  raises anything else, ``PoolUnreachableError`` where the same call may succeed later.
* **Ended politely.** Whatever ends an allocation before its time (a stop, its timeout, the engine itself where it can),
  its programs are asked first: the polite signal reaches what the steps have started, not only the shell around it, and
  the allocation has ended when those programs have, or the grace is over. What they print and write in the grace is kept.
* **Exactly what happened.** An allocation that was claimed but cannot be shown to have run is ``unknown``, never
  guessed. What ended while nobody looked is reported with its exit code, meters and log once somebody looks again.
"""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol, runtime_checkable

from yunhe.infrastructure.contract.model import (
    Account,
    Catalogue,
    Description,
    ExecRequest,
    Inventory,
    LaunchOrder,
    LogChunk,
    Observation,
    Upload,
    UsageMinute,
)
from yunhe.kernel.ids import AllocationId
from yunhe.kernel.resources import Resources


class Engine(Protocol):
    """A connection to one pool's engine."""

    async def describe(self) -> Description:
        """Return what this engine is and can do."""
        ...

    async def account(self) -> Account:
        """Return who we are to the engine and what it lets us have."""
        ...

    async def catalogue(self) -> Catalogue:
        """Return the regions and sizes the engine has or can make, with its owner's prices."""
        ...

    async def inventory(self) -> Inventory:
        """Return every node with what it has and what is in use now."""
        ...

    async def launch(self, order: LaunchOrder) -> None:
        """Begin *order*; return once the engine has claimed it durably."""
        ...

    async def stop(self, allocation_id: AllocationId, token: int, *, grace_s: float = 10.0) -> None:
        """Begin to end an allocation: a polite signal to its programs, then force after *grace_s*.

        Repeated, it does not lengthen the grace. An unknown one is already stopped.
        """
        ...

    async def release(self, allocation_id: AllocationId, token: int) -> None:
        """Forget an ended allocation and remove its directory, leaving only the mark that it was."""
        ...

    async def observe(self, *, beyond: int = -1, wait_s: float = 0.0) -> Observation:
        """Return what changed after version *beyond*, waiting up to *wait_s* for a change; -1: everything known.

        An engine that does not remember so far back, or was started anew, tells everything too; ``since`` says which.
        """
        ...

    def logs(
        self, allocation_id: AllocationId, *, offset: int = 0, follow: bool = False
    ) -> AsyncIterator[LogChunk]:
        """Yield output from byte *offset*; with *follow*, until the allocation has ended and all is read.

        ``NotFoundError``: there is no such allocation, or its output is gone for good.
        """
        ...

    def usage(self, *, beyond: int = -1) -> AsyncIterator[UsageMinute]:
        """Yield every minute whose sequence number is greater than *beyond*, then end."""
        ...

    async def close(self) -> None:
        """Let go of the connection; allocations go on."""
        ...


@runtime_checkable
class SupportsResize(Protocol):
    """An engine with ``Power.RESIZE``."""

    async def resize(self, allocation_id: AllocationId, token: int, resources: Resources) -> None:
        """Change the limits of a running allocation in place; its processes go on."""
        ...


@runtime_checkable
class SupportsPin(Protocol):
    """An engine with ``Power.PIN``."""

    async def pin(self, allocation_id: AllocationId, token: int, cores: tuple[int, ...]) -> None:
        """Bind a running allocation to *cores*; empty: to all of them."""
        ...


@runtime_checkable
class SupportsPause(Protocol):
    """An engine with ``Power.PAUSE``."""

    async def pause(self, allocation_id: AllocationId, token: int) -> None:
        """Freeze every process of the allocation where it stands."""
        ...

    async def resume(self, allocation_id: AllocationId, token: int) -> None:
        """Let a paused allocation go on."""
        ...


@runtime_checkable
class SupportsFiles(Protocol):
    """An engine with ``Power.FILES``: every path is relative to the allocation's directory and may not leave it."""

    async def put_archive(self, upload: Upload, chunks: AsyncIterator[bytes]) -> None:
        """Unpack a gzip-compressed tar, whole or not at all; the same digest at the same path again costs nothing."""
        ...

    def get_archive(self, allocation_id: AllocationId, paths: tuple[str, ...]) -> AsyncIterator[bytes]:
        """Yield a gzip-compressed tar of *paths* (glob patterns); what the task never wrote is left out.

        ``NotFoundError``: there is no such allocation, or its directory is gone for good.
        """
        ...


@runtime_checkable
class SupportsExec(Protocol):
    """An engine with ``Power.EXEC``."""

    def exec(
        self, allocation_id: AllocationId, request: ExecRequest
    ) -> AbstractAsyncContextManager["ExecSession"]:
        """Run a command beside a running allocation; leaving the block ends it."""
        ...


@runtime_checkable
class SupportsForward(Protocol):
    """An engine with ``Power.FORWARD``."""

    def forward(
        self, allocation_id: AllocationId, port: int
    ) -> AbstractAsyncContextManager["ForwardSession"]:
        """Connect to *port* of the loopback device inside a running allocation; leaving the block hangs up.

        ``ConflictError``: nothing listens there, or the allocation is not running.
        """
        ...


@runtime_checkable
class SupportsManifests(Protocol):
    """An engine whose orders can be written down for another deployer to carry out."""

    def manifests(self, order: LaunchOrder) -> tuple[dict[str, Any], ...]:
        """Return objects that, applied as they are, run *order*; refuse what cannot be written down."""
        ...


class ForwardSession(Protocol):
    """A connection to a program inside an allocation; each side may have said all while the other goes on."""

    async def send(self, data: bytes) -> None:
        """Send to the program, once there is room; empty tells it that nothing more will come."""
        ...

    async def receive(self) -> bytes:
        """Return some of what the program has sent; empty once it has said all. ``YunheError``: it was cut."""
        ...


class ExecSession(Protocol):
    """A command running beside an allocation."""

    async def send(self, data: bytes) -> None:
        """Write to its standard input; empty closes it."""
        ...

    async def resize(self, rows: int, columns: int) -> None:
        """Tell its terminal the new size."""
        ...

    async def receive(self) -> bytes:
        """Return some of its output; empty once it has ended."""
        ...

    async def wait(self) -> int:
        """Return its exit code."""
        ...
