"""A host whose disk fills at a chosen write of an allocation's life, and what is judged of it."""

import os
import shutil
import signal
import tempfile
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager, suppress
from hashlib import sha256
from pathlib import Path

import anyio

from integration.infrastructure.host.orders import ended, order_for, running
from support import agent_processes
from support.agent_roots import daemon_pid, end_agent
from support.small_disks import fill, fill_inodes, mounted
from yunhe.conformance.caller import archive_of, chunks_of
from yunhe.infrastructure.contract.model import Ending, LaunchOrder, Observed, Phase, Upload
from yunhe.infrastructure.host.engine import HostEngine
from yunhe.infrastructure.host.target import DeclaredNode, LocalHost
from yunhe.kernel.errors import DiskFullError

OPTIONS = "size=8m,nr_inodes=400,mode=755"
HOLDS_STILL_WITHIN_S = 20.0
ENDS_WITHIN_S = 12.0
LIVES_S = {"before-stop-record": 60.0, "after-stop-record": 60.0, "before-resize": 4.0, "after-resize": 4.0}
"""How long the allocation would run, where it must still run when it is commanded; half a second elsewhere."""
ALWAYS = "launch-after-fill"
"""Not a failpoint: the disk is full before anything is asked."""


@contextmanager
def small_host() -> Generator[Path]:
    """Yield an agent's root on a disk of its own."""
    with tempfile.TemporaryDirectory(prefix="yunhe-full-") as folder:
        Path(folder).chmod(0o755)
        with mounted(Path(folder) / "disk", OPTIONS) as disk:
            try:
                yield disk / "agent"
            finally:
                end_agent(disk / "agent")


class FullHost:
    """One agent, one allocation, and a disk that is full from the moment a failpoint is reached."""

    def __init__(self, root: Path, witness: Path, point: str, *, inodes: bool) -> None:
        self.root = root
        self._witness = witness
        self._point = point
        self._inodes = inodes
        self._marks = witness.parent / "marks"
        self._marks.mkdir(exist_ok=True)
        self._ballast = root.parent / "ballast"
        self.is_full = anyio.Event()

    def target(self) -> LocalHost:
        environment = {"YUNHE_FAILPOINT": f"{self._point}:stop", "YUNHE_FAILPOINT_DIR": str(self._marks)}
        declared = DeclaredNode(writable=(str(self._witness),))
        return LocalHost(root=str(self.root), environment=environment, declared=declared)

    def fill(self) -> None:
        if self._inodes:
            fill_inodes(self._ballast)
        else:
            fill(self._ballast)
        self.is_full.set()

    def make_room(self) -> None:
        shutil.rmtree(self._ballast) if self._inodes else self._ballast.unlink()

    async def fill_when_reached(self) -> None:
        """Fill the disk while whoever reached the failpoint stands still there, and let it go on."""
        mark = self._marks / f"{self._point}:stop"
        with anyio.fail_after(HOLDS_STILL_WITHIN_S):
            while not mark.exists():
                await anyio.sleep(0.01)
            await anyio.sleep(0.05)
        self.fill()
        for pid in (*agent_processes.daemon(self.root), *agent_processes.helpers(self.root)):
            with suppress(ProcessLookupError):  # who packed or unpacked may have ended since
                os.kill(pid, signal.SIGCONT)

    @asynccontextmanager
    async def filling(self) -> AsyncGenerator[None]:
        async with anyio.create_task_group() as tasks:
            if self._point == ALWAYS:
                self.fill()
            else:
                tasks.start_soon(self.fill_when_reached)
            yield

    def wrote(self, order: LaunchOrder) -> list[str]:
        path = self._witness / order.allocation_id
        return path.read_text().splitlines() if path.exists() else []

    async def order(self, engine: HostEngine, seconds: float = 0.5) -> LaunchOrder:
        lines = f'"{self._witness}/$YUNHE_ALLOCATION_ID"'
        return await order_for(
            engine, f"echo start >> {lines}; echo hello; sleep {seconds}; echo end >> {lines}"
        )

    async def live(self, engine: HostEngine) -> list[str]:
        """Take one allocation through its life while the disk fills; return what does not hold."""
        order = await self.order(engine, LIVES_S.get(self._point, 0.5))
        archive = archive_of({"word": b"canal\n"})
        upload = Upload(
            allocation_id=order.allocation_id,
            token=1,
            project_id=order.project_id,
            path="data",
            digest=sha256(archive).hexdigest(),
            size_bytes=len(archive),
        )
        pid = daemon_pid(self.root)
        found: list[str] = []
        async with self.filling():
            try:
                await engine.put_archive(upload, chunks_of(archive))
                await engine.launch(order)
            except DiskFullError:
                found += await self._judge_refused(engine, order)
            else:
                await self._command(engine, order)
                found += await self._judge_end(engine, order)
        if daemon_pid(self.root) != pid:
            found.append("the agent died")
        return found

    async def _command(self, engine: HostEngine, order: LaunchOrder) -> None:
        if self._point in ("before-stop-record", "after-stop-record"):
            await running(engine, order.allocation_id)
            await engine.stop(order.allocation_id, 1)
        if self._point in ("before-resize", "after-resize"):
            await running(engine, order.allocation_id)
            await engine.resize(order.allocation_id, 1, order.resources)

    async def _judge_refused(self, engine: HostEngine, order: LaunchOrder) -> list[str]:
        await self.is_full.wait()
        found = [f"it was refused and wrote {wrote}"] if (wrote := self.wrote(order)) else []
        (node,) = (await engine.inventory()).nodes
        if node.ready or not node.reason:
            found.append("a node that refuses says that it is ready")
        return found

    async def _judge_end(self, engine: HostEngine, order: LaunchOrder) -> list[str]:
        try:
            seen = await ended(engine, order.allocation_id, ENDS_WITHIN_S)
        except TimeoutError:
            return ["it does not end"]
        if "release" not in self._point:
            await self.is_full.wait()
        found = self._judge(order, seen)
        return found or await self._judge_home(engine, order)

    def _judge(self, order: LaunchOrder, seen: Observed) -> list[str]:
        wrote = self.wrote(order)
        if seen.phase is Phase.UNKNOWN:
            return [f"it wrote {wrote} and is unknown: {seen.detail}"]
        if seen.ending is Ending.DONE and (seen.exit_code, wrote) != (0, ["start", "end"]):
            return [f"it is done with exit code {seen.exit_code} ({seen.detail}) and wrote {wrote}"]
        if seen.ending is Ending.PREEMPTED and wrote:
            return [f"it could not start and wrote {wrote}"]
        if seen.ending not in (Ending.DONE, Ending.PREEMPTED) and "stop" not in self._point:
            return [f"it is {seen.ending}: {seen.detail}"]
        return []

    async def _judge_home(self, engine: HostEngine, order: LaunchOrder) -> list[str]:
        """Everything that follows the end needs no room on the host."""
        found: list[str] = []
        if not b"".join([piece async for piece in engine.get_archive(order.allocation_id, ("data",))]):
            found.append("its files do not come home")
        if not any([minute.allocation_id == order.allocation_id async for minute in engine.usage()]):
            found.append("nothing is told of what it used")
        await engine.release(order.allocation_id, 1)
        if any(seen.allocation_id == order.allocation_id for seen in (await engine.observe()).allocations):
            found.append("it is released and still known")
        return found

    async def recover(self, engine: HostEngine) -> list[str]:
        """Make room; return what does not hold of a node that has room again."""
        self.make_room()
        with anyio.move_on_after(5.0):
            while not (await engine.inventory()).nodes[0].ready:
                await anyio.sleep(0.1)
        order = await self.order(engine)
        await engine.launch(order)
        return self._judge(order, await ended(engine, order.allocation_id))
