"""How the conformance tests speak to an engine."""

import io
import itertools
import tarfile
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from hashlib import sha256
from typing import Any

import anyio

from yunhe.infrastructure.contract.engine import (
    Engine,
    SupportsExec,
    SupportsFiles,
    SupportsForward,
    SupportsPause,
    SupportsPin,
    SupportsResize,
)
from yunhe.infrastructure.contract.model import (
    ExecRequest,
    LaunchOrder,
    LogChunk,
    Observation,
    Observed,
    Phase,
    Power,
    Step,
    Upload,
)
from yunhe.kernel.clock import system_clock
from yunhe.kernel.confinement import Confinement
from yunhe.kernel.ids import AllocationId, NodeId, ProjectId, new_id
from yunhe.kernel.resources import Resources

SETTLED = frozenset({Phase.EXITED, Phase.UNKNOWN})


def new_allocation_id() -> AllocationId:
    """Return an ID nobody has used."""
    return AllocationId(new_id("alloc", system_clock()))


class EngineCaller:
    """Sends orders to one node of an engine and waits, with bounded patience, for what comes of them."""

    def __init__(
        self, engine: Engine, node_id: NodeId, project_id: ProjectId, resources: Resources, patience_s: float
    ) -> None:
        self.engine = engine
        self.patience_s = patience_s
        self.touched: set[AllocationId] = set()
        self.image = ""
        self.confinement: Confinement | None = None
        """What an order carries that names no other."""
        self._node_id = node_id
        self._project_id = project_id
        self._resources = resources

    def order(self, *scripts: str, **fields: Any) -> LaunchOrder:
        """Return an order with one step for each script, named step-1, step-2 and so on."""
        fields.setdefault("allocation_id", new_allocation_id())
        fields.setdefault("image", self.image)
        fields.setdefault("confinement", self.confinement)
        self.touched.add(fields["allocation_id"])
        steps = tuple(Step(name=f"step-{n}", script=f"{text}\n") for n, text in enumerate(scripts, start=1))
        chosen: dict[str, Any] = {"token": 1, "resources": self._resources, **fields}
        return LaunchOrder(
            **chosen,
            project_id=self._project_id,
            node_id=self._node_id,
            steps=steps,
        )

    async def run(self, *scripts: str, **fields: Any) -> LaunchOrder:
        """Launch an order and return it."""
        order = self.order(*scripts, **fields)
        await self.engine.launch(order)
        return order

    async def look(self, allocation_id: AllocationId) -> Observed | None:
        """Return what is observed of an allocation now."""
        return find(await self.engine.observe(), allocation_id)

    async def folded(
        self, known: dict[AllocationId, Observed], version: int
    ) -> tuple[dict[AllocationId, Observed], int]:
        """Return what is known after the next observation, and its version; fail where changes were left out."""
        observation = await self.engine.observe(beyond=version, wait_s=0.2)
        assert observation.since in (-1, version), "changes after another version than the one asked for"
        told = {seen.allocation_id: seen for seen in observation.allocations}
        if observation.since == -1:
            return told, observation.version
        rest = {name: seen for name, seen in known.items() if name not in observation.gone}
        return {**rest, **told}, observation.version

    async def until(self, allocation_id: AllocationId, happened: Callable[[Observed], bool]) -> Observed:
        """Wait until *happened* is true of an allocation."""
        version = -1
        seen: Observed | None = None
        with anyio.move_on_after(self.patience_s):
            while True:
                version = (await self.engine.observe(beyond=version, wait_s=0.2)).version
                seen = await self.look(allocation_id)
                if seen is not None and happened(seen):
                    return seen
        raise AssertionError(f"not in {self.patience_s} s: {seen}")

    async def running(self, allocation_id: AllocationId) -> Observed:
        """Wait until an allocation runs."""
        return await self.until(allocation_id, lambda seen: seen.phase is Phase.RUNNING)

    async def ended(self, allocation_id: AllocationId) -> Observed:
        """Wait until an allocation has ended."""
        return await self.until(allocation_id, lambda seen: seen.phase in SETTLED)

    async def log(self, allocation_id: AllocationId, *, offset: int = 0, follow: bool = False) -> bytes:
        """Return an allocation's output; fail where two chunks overlap or leave a gap."""
        with anyio.fail_after(self.patience_s):
            return joined(
                [chunk async for chunk in self.engine.logs(allocation_id, offset=offset, follow=follow)],
                offset,
            )

    def upload(self, archive: bytes, **fields: Any) -> Upload:
        """Return the announcement of *archive*, to be unpacked in ``data``."""
        fields.setdefault("allocation_id", new_allocation_id())
        self.touched.add(fields["allocation_id"])
        chosen: dict[str, Any] = {
            "digest": sha256(archive).hexdigest(),
            "size_bytes": len(archive),
            "path": "data",
            "token": 1,
            **fields,
        }
        return Upload(**chosen, project_id=self._project_id)


def find(observation: Observation, allocation_id: AllocationId) -> Observed | None:
    """Return what *observation* says of one allocation."""
    return next((seen for seen in observation.allocations if seen.allocation_id == allocation_id), None)


def joined(chunks: list[LogChunk], offset: int = 0) -> bytes:
    """Return the bytes of *chunks*, each of which must start where the one before ended."""
    starts = itertools.accumulate((len(chunk.data) for chunk in chunks), initial=offset)
    assert [chunk.offset for chunk in chunks] == list(starts)[:-1]
    return b"".join(chunk.data for chunk in chunks)


def archive_of(files: dict[str, bytes], *, link: tuple[str, str] | None = None) -> bytes:
    """Return a gzip-compressed tar of *files*, and of a symbolic link where one is asked for."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
        if link is not None:
            member = tarfile.TarInfo(link[0])
            member.type, member.linkname = tarfile.SYMTYPE, link[1]
            tar.addfile(member)
    return buffer.getvalue()


def files_in(archive: bytes) -> dict[str, bytes]:
    """Return the regular files of a gzip-compressed tar."""
    with tarfile.open(fileobj=io.BytesIO(archive), mode="r:gz") as tar:
        members = [(member, tar.extractfile(member)) for member in tar if member.isfile()]
        return {member.name.removeprefix("./"): file.read() for member, file in members if file}


async def chunks_of(data: bytes, size: int = 1000) -> AsyncGenerator[bytes, None]:
    """Yield *data* in pieces."""
    for start in range(0, len(data), size):
        yield data[start : start + size]


async def hang_up(stream: AsyncIterator[object]) -> None:
    """Stop reading a stream before its end."""
    if isinstance(stream, AsyncGenerator):
        await stream.aclose()


async def use_power(engine: Engine, power: Power, allocation_id: AllocationId) -> None:
    """Use a power with token 4."""
    match power:
        case Power.RESIZE if isinstance(engine, SupportsResize):
            await engine.resize(allocation_id, 4, Resources(cpu_millis=100, memory_mib=32))
        case Power.PIN if isinstance(engine, SupportsPin):
            await engine.pin(allocation_id, 4, (0,))
        case Power.PAUSE if isinstance(engine, SupportsPause):
            await engine.pause(allocation_id, 4)
        case Power.FILES if isinstance(engine, SupportsFiles):
            await fetch(engine, allocation_id, "*")
        case Power.EXEC if isinstance(engine, SupportsExec):
            async with engine.exec(allocation_id, ExecRequest(argv=("true",))) as session:
                await session.wait()
        case Power.FORWARD if isinstance(engine, SupportsForward):
            async with engine.forward(allocation_id, 1):
                pass
        case _:
            raise AssertionError(f"{engine} has no {power}")


async def fetch(engine: SupportsFiles, allocation_id: AllocationId, *paths: str) -> dict[str, bytes]:
    """Return the files that *paths* bring back."""
    return files_in(b"".join([piece async for piece in engine.get_archive(allocation_id, paths)]))


def standing(seen: Observed) -> tuple[object, ...]:
    """Return what must stay the same when nothing has happened."""
    return (
        seen.phase,
        seen.token,
        seen.step,
        seen.exit_code,
        seen.ending,
        seen.started_at,
        seen.ended_at,
        seen.resources,
        seen.log_bytes,
    )
