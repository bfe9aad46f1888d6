"""The contract over a Ray cluster. Nothing is kept here that Ray does not know: see ``marks`` and ``node.report``."""

import itertools
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Self
from weakref import WeakValueDictionary

import anyio
import msgspec

from yunhe.agent.runs.changes import ChangeLog
from yunhe.infrastructure.contract.archives import check_paths
from yunhe.infrastructure.contract.model import (
    Account,
    Catalogue,
    Description,
    Inventory,
    Isolation,
    LaunchOrder,
    LogChunk,
    Observation,
    Observed,
    Power,
    Upload,
    UsageMinute,
)
from yunhe.infrastructure.ray import amounts, marks, phases
from yunhe.infrastructure.ray.client import RayClient
from yunhe.infrastructure.ray.files import fetch_archive, read_archive
from yunhe.infrastructure.ray.marks import RayAllocation, read_known
from yunhe.infrastructure.ray.node.runner import KEY
from yunhe.infrastructure.ray.package import (
    order_package,
    package_uri,
    runner_package,
    seal_secrets,
    upload_package,
)
from yunhe.infrastructure.ray.reports import Reports
from yunhe.infrastructure.ray.wire import RayNode, RayReport, RaySubmission, RayVersion
from yunhe.kernel.errors import (
    ConflictError,
    FencedError,
    FieldProblem,
    NotFoundError,
    PoolUnreachableError,
    UnsupportedError,
)
from yunhe.kernel.ids import AllocationId

ENTRYPOINT = "exec python3 -m yunhe.infrastructure.ray.node"
"""The same for every allocation: nothing of an order ever gets near a shell's eyes."""
LOOK_S = 0.5
NODES_FRESH_S = 10.0
HOLD_S = 5.0
"""Minutes are handed out this long after they were folded: what another node numbers lower must have come by then."""
PRUNED_AT_ONCE = 20
RAY_WAITS_S = "86400"
"""How long Ray waits after its signal before it kills: it is our runner that knows the grace."""

MISSING = {
    Power.RESIZE: "Ray fixes what a job may use when it is submitted.",
    Power.PIN: "Ray does not bind jobs to cores.",
    Power.PAUSE: "Ray cannot pause a job.",
    Power.EXEC: "Ray's Jobs API runs no command beside a job.",
    Power.FORWARD: "Ray's Jobs API reaches no port of a job: use ssh -L PORT:NODE:PORT HEAD, with the node that yunhe ps names.",
    Power.IMAGES: "Ray's containers are chosen for the whole cluster, not for a job.",
    Power.GANG: "A Ray job has one entrypoint; a script may start Ray tasks on many nodes itself.",
    Power.SERVICES: "Ray Serve is driven by its own API, which this plugin does not use.",
    Power.CHECKPOINT: "Ray cannot save a running process.",
    Power.VOLUMES: "Ray mounts no volumes for a job.",
}


class RayEngine:
    """An engine whose nodes are those of one Ray cluster."""

    def __init__(self, client: RayClient) -> None:
        self._client = client
        self._reports = Reports(client)
        self._turns: WeakValueDictionary[AllocationId, anyio.Lock] = WeakValueDictionary()
        self._version: RayVersion | None = None
        self._seen: dict[AllocationId, Observed] = {}
        self._changes = ChangeLog(round(time.time() * 1000))
        self._lost = False
        self._notices: tuple[str, ...] = ()
        self._nodes: tuple[float, list[RayNode]] = (-NODES_FRESH_S, [])

    async def __aenter__(self) -> Self:
        await self.describe()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # What it is

    async def describe(self) -> Description:
        """Return what this engine is and can do."""
        if self._version is None:
            self._version = await self._client.version()
        return Description(
            engine="ray",
            version=self._version.ray_version,
            powers=frozenset({Power.FILES}),
            missing={str(power): why for power, why in MISSING.items()},
            isolation=Isolation.ONE_PROJECT,
            limits="rlimits and nice",
        )

    async def account(self) -> Account:
        """Return whom Ray takes us for: it knows no users, only those who reach it."""
        version = await self._client.version()
        return Account(identity=f"anyone who may use {self._client.url} ({version.session_name})")

    async def catalogue(self) -> Catalogue:
        """Return each size of node the cluster has now."""
        return amounts.catalogue(await self._client.nodes(), await self._client.stats())

    async def inventory(self) -> Inventory:
        """Return the living nodes with what is in use now."""
        nodes, stats = await self._client.nodes(), await self._client.stats()
        return amounts.inventory(nodes, stats, time.time())

    async def close(self) -> None:
        """Let go of the connections."""
        await self._client.close()

    # Commands

    async def launch(self, order: LaunchOrder) -> None:
        """Submit *order*; Ray takes each name once, so that whoever comes second starts nothing."""
        if order.image:
            raise UnsupportedError(
                f"The image {order.image} cannot be run: {MISSING[Power.IMAGES]}",
                remedy="Leave image out, or use a pool with containers.",
                fields=(FieldProblem("image", "is not supported by Ray pools", order.image),),
            )
        async with self._turn(order.allocation_id):
            all_known = await self._known()
            known = _fenced(all_known, order.allocation_id, order.token)
            if known.over:
                await self._take_over(known, order.token)
                return
            asked = amounts.ask(order.resources, await self._alive_nodes())
            runtime_env = await self._send_packages(order, known, marks.to_sweep(all_known, time.time()))
            submission = RaySubmission(
                entrypoint=ENTRYPOINT,
                submission_id=order.allocation_id,
                metadata=_metadata(order),
                runtime_env=runtime_env,
                entrypoint_num_cpus=asked.num_cpus,
                entrypoint_memory=asked.memory,
                entrypoint_num_gpus=asked.num_gpus,
                entrypoint_resources=asked.resources,
            )
            if not await self._client.submit(submission):
                known = _fenced(await self._known(), order.allocation_id, order.token)
                await self._take_over(known, order.token)

    async def stop(self, allocation_id: AllocationId, token: int, *, grace_s: float = 10.0) -> None:
        """Mark that it is to end, then have Ray signal it; where there is none, take its place."""
        async with self._turn(allocation_id):
            known = _fenced(await self._known(), allocation_id, token)
            if not known.over:
                if await self._client.submit(marks.tombstone(allocation_id, token)):
                    return
                known = _fenced(await self._known(), allocation_id, token)
            if known.live:
                await self._client.submit(marks.stop_mark(allocation_id, token, grace_s))
                await self._client.stop(allocation_id)
            else:
                await self._take_over(known, token)

    async def release(self, allocation_id: AllocationId, token: int) -> None:
        """Mark that it is forgotten; the next allocation to start on its node removes its directory."""
        async with self._turn(allocation_id):
            all_known = await self._known()
            known = _fenced(all_known, allocation_id, token)
            if known.live or (known.main is None and known.files and known.released_at is None):
                raise ConflictError(
                    f"{allocation_id} has not ended and cannot be released.", remedy="Stop it first."
                )
            if known.released_at is not None:
                await self._take_over(known, token)
                return
            if known.main is None:
                await self._client.submit(marks.tombstone(allocation_id, token))
            await self._client.submit(marks.released_mark(allocation_id, token))
            for name in marks.to_prune(all_known, time.time())[:PRUNED_AT_ONCE]:
                await self._client.delete(name)

    async def _take_over(self, known: RayAllocation, token: int) -> None:
        if token > known.token:
            await self._client.submit(marks.token_mark(known.allocation_id, token))

    async def _send_packages(
        self, order: LaunchOrder, known: RayAllocation, sweep: list[str]
    ) -> dict[str, object]:
        """Have everything the runner needs in Ray; return the environment that refers to it."""
        for file in known.files:
            if file.project_id != order.project_id:
                raise ConflictError(f"{order.allocation_id} holds files of project {file.project_id}.")
            if not await self._client.touch_package(file.package):
                raise ConflictError(
                    f"Ray has dropped the files for {order.allocation_id}: the launch came too late.",
                    remedy="Send the files again, then launch; Ray keeps what no job uses for ten minutes.",
                )
        sealed = seal_secrets(order.secrets)
        packages = runner_package(), order_package(order, sealed, sweep)
        for package in packages:
            await self._client.put_package(package.name, package.data)
        return {
            "working_dir": packages[0].uri,
            "py_modules": [packages[1].uri, *(package_uri(file.package) for file in known.files)],
            "env_vars": {KEY: sealed.key, "RAY_JOB_STOP_WAIT_TIME_S": RAY_WAITS_S},
        }

    # Looking

    async def observe(self, *, beyond: int = -1, wait_s: float = 0.0) -> Observation:
        """Return what changed after *beyond*, or everything; versions are milliseconds, so that any connection's compare."""
        until = time.monotonic() + wait_s
        while True:
            await self._look()
            left_s = until - time.monotonic()
            if self._changes.version != beyond or left_s <= 0:
                return self._observation(beyond)
            await anyio.sleep(min(LOOK_S, left_s))

    async def _look(self) -> None:
        try:
            known = {name: one for name, one in (await self._known()).items() if one.shown}
            await self._notice_restart()
        except PoolUnreachableError:
            self._lost = True
            raise
        readings = await self._reports.of(known.values())
        seen = {
            AllocationId(name): phases.observe(one, readings[name]) for name, one in sorted(known.items())
        }
        before, self._seen = self._seen, seen
        changed = [name for name, one in seen.items() if name not in before or _differs(one, before[name])]
        gone = before.keys() - seen.keys()
        if changed or gone:
            self._changes.version = max(self._changes.version, round(time.time() * 1000))
        for name in changed:
            self._changes.note(name)
        for name in gone:
            self._changes.forget(name)

    def _observation(self, beyond: int) -> Observation:
        since = self._changes.after(beyond)
        names, gone = (list(self._seen), []) if since is None else since
        return Observation(
            version=self._changes.version,
            allocations=tuple(self._seen[AllocationId(name)] for name in names),
            since=-1 if since is None else beyond,
            gone=tuple(AllocationId(name) for name in gone),
            notices=self._notices,
        )

    async def _notice_restart(self) -> None:
        """Say so when the cluster that answers again is a new one: what ran on the old one is gone."""
        if not self._lost:
            return
        now = await self._client.version()
        if self._version is not None and now.session_name != self._version.session_name:
            words = f"The Ray cluster was started anew ({now.session_name}); what it ran before is gone."
            self._notices = (*self._notices[-9:], words)
        self._version, self._lost = now, False

    async def logs(
        self, allocation_id: AllocationId, *, offset: int = 0, follow: bool = False
    ) -> AsyncIterator[LogChunk]:
        """Yield output from byte *offset*, or from the oldest kept byte after it."""
        while True:
            known = await self._shown(allocation_id)
            reading = await self._reports.fresh(known)
            report = reading.report
            over = (reading.certain and not known.live) or (report is not None and report.ended is not None)
            if report is not None and known.main is not None and known.main.driver_node_id is not None:
                node_id = known.main.driver_node_id
                async for chunk in self._read_log(node_id, allocation_id, report, offset):
                    yield chunk
                    offset = chunk.offset + len(chunk.data)
            if over or not follow:
                return
            await anyio.sleep(LOOK_S)

    async def _read_log(
        self, node_id: str, allocation_id: AllocationId, report: RayReport, offset: int
    ) -> AsyncIterator[LogChunk]:
        """Yield what the log's segments hold from *offset* on; one that was dropped meanwhile is passed over."""
        for start, end in itertools.zip_longest(
            report.log_starts, report.log_starts[1:], fillvalue=report.log_bytes
        ):
            if end <= offset:
                continue
            at = start
            try:
                name = f"yunhe/{allocation_id}/log/{start:020d}"
                async with self._client.stream_file(node_id, name) as pieces:
                    async for piece in pieces:
                        data = piece[max(0, offset - at) :]
                        at += len(piece)
                        if data:
                            yield LogChunk(offset=at - len(data), data=data)
            except NotFoundError:
                continue
            offset = max(offset, at)

    async def usage(self, *, beyond: int = -1) -> AsyncIterator[UsageMinute]:
        """Yield every minute after *beyond*, of what was released lately too."""
        now = time.time()
        known = {
            name: one
            for name, one in (await self._known()).items()
            if one.role == marks.ALLOCATION
            and (one.released_at is None or one.released_at > now - marks.SWEPT_AFTER_S)
        }
        readings = await self._reports.of(known.values())
        minutes = [
            minute
            for name, one in known.items()
            if (report := readings[name].report) is not None and report.last_minute > beyond
            for minute in await self._reports.minutes(one)
        ]
        for minute in sorted(minutes, key=lambda minute: minute.seq):
            if minute.seq > beyond and minute.seq < (now - HOLD_S) * 1e9:
                yield minute

    # Files

    async def put_archive(self, upload: Upload, chunks: AsyncIterator[bytes]) -> None:
        """Check an archive and keep it in Ray until the launch; the newest at a path is not read twice."""
        check_paths((upload.path,), "path")
        async with self._turn(upload.allocation_id):
            known = _fenced(await self._known(), upload.allocation_id, upload.token)
            at_path = [file for file in known.files if file.path == upload.path]
            if at_path and at_path[-1].digest == upload.digest:
                await self._take_over(known, upload.token)
                # What was launched has its files already: whoever sends them again has not heard of the launch.
                if known.over or await self._client.touch_package(at_path[-1].package):
                    return
            if known.over:
                raise ConflictError(
                    f"{upload.allocation_id} takes no more files: it was launched, stopped or released."
                )
            archive = await read_archive(upload, chunks)
            package = upload_package(upload.path, archive)
            await self._client.put_package(package.name, package.data)
            number = known.files[-1].number + 1 if known.files else 0
            if not await self._client.submit(marks.file_mark(upload, number, package.name)):
                raise ConflictError(f"Somebody else sends files for {upload.allocation_id} just now.")

    async def get_archive(self, allocation_id: AllocationId, paths: tuple[str, ...]) -> AsyncIterator[bytes]:
        """Yield a gzip-compressed tar of what matches *paths*; symbolic links come as what they lead to."""
        patterns = check_paths(paths, "paths")
        known = await self._shown(allocation_id)
        if known.main is None or known.main.driver_node_id is None:
            raise ConflictError(f"{allocation_id} has not started: there is nothing to fetch yet.")
        node_id = known.main.driver_node_id
        await self._check_alive(node_id, allocation_id)
        async for piece in fetch_archive(self._client, node_id, allocation_id, patterns):
            yield piece
        # What a node that died meanwhile no longer had was left out, as if it had never been there.
        await self._check_alive(node_id, allocation_id)

    async def _check_alive(self, node_id: str, allocation_id: AllocationId) -> None:
        """Raise ``NotFoundError`` where a node has died: it never comes back under its ID."""
        if all(node.node_id != node_id for node in amounts.alive(await self._client.nodes())):
            raise NotFoundError(
                f"The files of {allocation_id} are gone: Ray's node {node_id} has died.",
                remedy="Run it again.",
            )

    # What Ray knows

    async def _known(self) -> dict[AllocationId, RayAllocation]:
        known = read_known(await self._client.jobs())
        self._reports.keep_only(known)
        return known

    async def _shown(self, allocation_id: AllocationId) -> RayAllocation:
        known = (await self._known()).get(allocation_id)
        if known is None or not known.shown:
            raise NotFoundError(
                f"This pool knows no allocation {allocation_id}.", remedy="It may be released."
            )
        return known

    async def _alive_nodes(self) -> list[RayNode]:
        taken_at, nodes = self._nodes
        if time.monotonic() - taken_at >= NODES_FRESH_S:
            nodes = amounts.alive(await self._client.nodes())
            self._nodes = (time.monotonic(), nodes)
        return nodes

    @asynccontextmanager
    async def _turn(self, allocation_id: AllocationId) -> AsyncGenerator[None]:
        """Let one command at a time see to an allocation; between connections, Ray's names decide."""
        lock = self._turns.setdefault(allocation_id, anyio.Lock())
        async with lock:
            yield


def _fenced(
    all_known: dict[AllocationId, RayAllocation], allocation_id: AllocationId, token: int
) -> RayAllocation:
    """Return what is known of an allocation; refuse whoever has been superseded."""
    known = all_known.get(allocation_id) or RayAllocation(allocation_id=allocation_id)
    if token < known.token:
        raise FencedError(f"{allocation_id} is commanded with token {known.token} now; {token} is older.")
    return known


def _metadata(order: LaunchOrder) -> dict[str, str]:
    return {
        marks.ROLE: marks.ALLOCATION,
        "token": str(order.token),
        "project": order.project_id,
        "resources": msgspec.json.encode(order.resources).decode(),
    }


def _differs(now: Observed, before: Observed) -> bool:
    """Return whether there is news: of anything but the meters."""
    return msgspec.structs.replace(now, meters=before.meters) != before
