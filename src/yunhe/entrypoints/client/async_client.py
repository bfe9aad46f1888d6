"""The client's methods, written once; ``Client`` runs the same ones without an event loop."""

from collections.abc import AsyncGenerator, Iterable
from contextlib import AbstractAsyncContextManager, aclosing
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar
from urllib.parse import quote
from uuid import uuid4

import msgspec

from yunhe.control.plugins.model import AllowedFolder, Plugin
from yunhe.control.pools.model import Check, ExecRequest, FactChanges, FactList, Pool, PoolSpec, UsageMinute
from yunhe.entrypoints.client.connection import ApiConnection, query
from yunhe.entrypoints.client.exec import ExecStream, ForwardStream, open_exec, open_forward
from yunhe.entrypoints.client.following import follow_changes, follow_logs, read_logs
from yunhe.entrypoints.client.httpx_transport import HttpxTransport
from yunhe.entrypoints.client.transport import Address, ApiCall, Transport
from yunhe.entrypoints.client.tree import WHOLE, body_of, read_tree, scan
from yunhe.entrypoints.wire import (
    AllowedFolders,
    Batch,
    ChunksKept,
    FolderWish,
    Jobs,
    Keys,
    KeyWish,
    Manifests,
    Members,
    ModuleRow,
    ModuleTable,
    NewProject,
    NewRole,
    PluginFolder,
    PluginList,
    PoolList,
    PriceTerms,
    Projects,
    Readiness,
    Rotation,
    Secrets,
    SecretValue,
    Usage,
)
from yunhe.kernel.chains import ChainHead
from yunhe.kernel.ids import BlobId, ProjectId
from yunhe.kernel.money import Prices, Tier
from yunhe.kernel.resources import Resources
from yunhe.kernel.units import MIB
from yunhe.scheduling.decision.model import NodeAnswers, Plan, Waiting
from yunhe.scheduling.decision.plans import JointPlan, ParetoPlan
from yunhe.scheduling.orchestration.jobs.model import Explanation, Job, JobPage, LogPiece
from yunhe.scheduling.orchestration.jobs.states import JobState
from yunhe.scheduling.perception.model import ResourceGraph
from yunhe.trading.accounts.model import (
    AuditEntry,
    AuditLine,
    AuditPage,
    Key,
    KeyScope,
    Member,
    NewKey,
    Principal,
    Project,
    ProjectChange,
    ProjectState,
    Role,
    SecretInfo,
)
from yunhe.trading.applications.model import Assembly, SavedPlan, Submission
from yunhe.trading.trades.model import CostReport, LedgerEntry, LedgerLine, MaskedEntry, PriceList

T = TypeVar("T")

PATIENCE_S = 2.0
"""How long calls are repeated while the server does not answer."""
PAGE = 200
BATCH_BYTES = 2 * MIB
"""Of chunks that are sent in one request."""
BATCHES_IN_A_ROW = 128
"""Before it is asked again what is missing, and whether it is too much."""
_BINARY = {"Content-Type": "application/octet-stream"}


class AsyncClient:
    """A Yunhe server, as a program sees it.

    Calls that are safe to repeat are repeated for a moment when the server does not answer; submitting is made safe by
    an idempotency key per call. What the server refuses is raised as the ``YunheError`` it was refused with.
    """

    def __init__(
        self,
        url: str,
        key: str = "",
        *,
        verify: bool | str | Path = True,
        patience_s: float = PATIENCE_S,
        transport: Transport | None = None,
    ) -> None:
        self._address = Address(url.rstrip("/"), key, verify)
        self._connection = ApiConnection(
            transport or HttpxTransport(self._address), self._address.url, patience_s
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Let go of connections."""
        await self._connection.transport.close()

    # -- the server ------------------------------------------------------------------------------------------------

    async def ready(self) -> Readiness:
        """Return whether the server can serve; raise when it cannot be reached."""
        return await self._get("/ready", Readiness)

    async def modules(self) -> tuple[ModuleRow, ...]:
        """Return the table of modules."""
        return (await self._get("/modules", ModuleTable)).modules

    async def task_schema(self) -> dict[str, Any]:
        """Return the JSON schema of a task."""
        return await self._get("/v1/schema/task", dict[str, Any])

    async def me(self) -> Principal:
        """Return who the key belongs to."""
        return await self._get("/v1/me", Principal)

    # -- jobs ------------------------------------------------------------------------------------------------------

    async def plan(self, submission: Submission) -> Plan:
        """Return where a task would go now; nothing is promised."""
        body = await self._connection.read(_post("/v1/plan", submission), repeatable=True)
        return msgspec.json.decode(body, type=Plan)

    async def pareto(self, submission: Submission) -> ParetoPlan | Waiting:
        """Return the pools that no other beats in every respect for a task; nothing is promised."""
        body = await self._connection.read(_post("/v1/plan/pareto", submission), repeatable=True)
        return msgspec.json.decode(body, type=ParetoPlan | Waiting)

    async def plan_together(self, submissions: Iterable[Submission]) -> JointPlan:
        """Return where several tasks would go together now, and what that saves; nothing is promised."""
        batch = Batch(tuple(submissions))
        return await self._connection.ask(_post("/v1/plan/together", batch), JointPlan, repeatable=True)

    async def save_plan(self, submissions: Iterable[Submission]) -> SavedPlan:
        """Return where tasks would go together now, to be run later; nothing is promised."""
        batch = Batch(tuple(submissions))
        return await self._connection.ask(_post("/v1/plan/save", batch), SavedPlan, repeatable=True)

    async def run_plan(self, plan: SavedPlan) -> tuple[Job, ...]:
        """Run a saved plan as it is, once; raise ``StalePlanError`` when it does not hold any more."""
        return (await self._connection.ask(_post("/v1/plan/run", plan), Jobs, repeatable=True)).jobs

    async def render_plan(self, plan: SavedPlan) -> tuple[dict[str, Any], ...]:
        """Return a saved plan as manifests which, applied unchanged to the chosen cluster, run it."""
        call = _post("/v1/plan/render", plan)
        return (await self._connection.ask(call, Manifests, repeatable=True)).manifests

    async def submit(self, submission: Submission, *, idempotency_key: str = "") -> Job:
        """Submit a task."""
        return await self._create("/v1/jobs", submission, Job, idempotency_key)

    async def submit_batch(
        self, submissions: Iterable[Submission], *, idempotency_key: str = ""
    ) -> tuple[Job, ...]:
        """Submit tasks together: all are accepted, or none."""
        batch = Batch(tuple(submissions))
        return (await self._create("/v1/jobs/batch", batch, Jobs, idempotency_key)).jobs

    async def jobs(
        self,
        *,
        project: str = "",
        states: Iterable[JobState] = (),
        name: str = "",
        pool: str = "",
        page: int = PAGE,
    ) -> AsyncGenerator[Job, None]:
        """Yield jobs, newest first; pages of *page* are fetched as they are needed."""
        cursor: str | None = None
        which = query(project=project, state=tuple(states), name=name, pool=pool, limit=page)
        while True:
            found = await self._get("/v1/jobs", JobPage, (*which, *query(cursor=cursor)))
            for job in found.jobs:
                yield job
            cursor = found.next_cursor
            if cursor is None:
                return

    async def job(self, job_id: str) -> Job:
        """Return one job."""
        return await self._get(_job(job_id), Job)

    def watch(self, job_id: str) -> AsyncGenerator[Job, None]:
        """Yield a job now and whenever it changes, until it has ended; a dropped connection is taken up again."""
        return follow_changes(self._connection, _job(job_id))

    def logs(
        self, job_id: str, *, attempt: int = 0, offset: int = 0, follow: bool = False, marks: bool = False
    ) -> AsyncGenerator[LogPiece, None]:
        """Yield the output of one attempt, or of all (0), from *offset*; followed, until the job has ended.

        Followed, or with *marks*, each piece tells when its parts came and from which stream.
        A dropped connection is taken up again where it ended: no byte is lost or repeated.
        """
        read = partial(follow_logs, follow=follow) if follow or marks else read_logs
        return read(self._connection, _job(job_id), attempt, offset)

    async def stop(self, job_id: str) -> Job:
        """Ask a job to end; one that has ended stays as it is."""
        return await self._connection.ask(_post(f"{_job(job_id)}/stop"), Job, repeatable=True)

    async def resize(self, job_id: str, resources: Resources) -> Job:
        """Change a running job's limits in place; zero in a dimension keeps it."""
        return await self._connection.ask(_post(f"{_job(job_id)}/resize", resources), Job, repeatable=True)

    async def explain(self, job_id: str) -> Explanation:
        """Return why a job is where it is, or why it waits."""
        return await self._get(f"{_job(job_id)}/explain", Explanation)

    async def ask_nodes(self, job_id: str, node: str = "") -> NodeAnswers:
        """Return how many nodes of each pool would refuse a job now, by rule, and what one *node* says."""
        return await self._get(f"{_job(job_id)}/nodes", NodeAnswers, query(node=node))

    async def usage(self, job_id: str) -> tuple[UsageMinute, ...]:
        """Return what a job used, minute by minute."""
        return (await self._get(f"{_job(job_id)}/usage", Usage)).minutes

    async def outputs(self, job_id: str, to_path: Path) -> int:
        """Write what a job left as outputs to *to_path*, a gzip-compressed tar; return its size in bytes."""
        return await self._download(ApiCall(method="GET", path=f"{_job(job_id)}/outputs"), to_path)

    async def files(self, job_id: str, paths: Iterable[str], to_path: Path) -> int:
        """Write files of a running job to *to_path*, a gzip-compressed tar; return its size in bytes."""
        which = query(path=tuple(paths))
        return await self._download(ApiCall(method="GET", path=f"{_job(job_id)}/files", query=which), to_path)

    def exec(self, job_id: str, request: ExecRequest) -> AbstractAsyncContextManager[ExecStream]:
        """Run a command beside a running job; leaving the block ends it."""
        return open_exec(self._address, f"{_job(job_id)}/exec", request)

    def forward(self, job_id: str, port: int) -> AbstractAsyncContextManager[ForwardStream]:
        """Connect to a port inside a running job; leaving the block hangs up."""
        return open_forward(self._address, f"{_job(job_id)}/forward/{port}")

    async def put_together(self, project: str, digests: bytes) -> Assembly:
        """Make an archive of chunks, named by their SHA-256 in order, or say which of them the project lacks."""
        call = ApiCall(method="POST", path=f"{_project(project)}/uploads", headers=_BINARY, body=digests)
        return await self._connection.ask(call, Assembly, repeatable=True)

    async def put_chunks(self, project: str, body: bytes) -> int:
        """Send chunks, as ``tree.body_of`` writes them; return how many there were."""
        call = ApiCall(method="PUT", path=f"{_project(project)}/chunks", headers=_BINARY, body=body)
        return (await self._connection.ask(call, ChunksKept)).chunks

    async def upload_directory(self, project: str, source: Path, *, all_files: bool = False) -> BlobId:
        """Send a directory's contents, or one file; what the project has is not sent again.

        What ``.gitignore`` and ``.yunheignore`` name is left out, unless *all_files* are to be sent.
        """
        entries, _ = scan([(WHOLE, source)], all_files=all_files)
        tree = read_tree(entries)
        while True:
            made = await self.put_together(project, tree.digests)
            if made.blob_id is not None:
                return made.blob_id
            for batch in tree.batches(made.missing, BATCH_BYTES)[:BATCHES_IN_A_ROW]:
                await self.put_chunks(project, body_of(batch))

    # -- pools -----------------------------------------------------------------------------------------------------

    async def pools(self, *, level: str = "") -> tuple[Pool, ...]:
        """Return every pool, or those at one level: end, edge or central."""
        return (await self._get("/v1/pools", PoolList, query(level=level))).pools

    async def pool(self, pool: str) -> Pool:
        """Return one pool, by name or ID."""
        return await self._get(_pool(pool), Pool)

    def add_pool(self, spec: PoolSpec) -> AsyncGenerator[Check | Pool, None]:
        """Register a pool: yield each check as it is made, then the pool."""
        return self._checks(_post("/v1/pools", spec), "pool", Pool)

    def check_pool(self, pool: str) -> AsyncGenerator[Check | Pool, None]:
        """Yield what works on a pool and what does not, then the pool."""
        return self._checks(_post(f"{_pool(pool)}/check"), "pool", Pool)

    async def pool_facts(self, pool: str) -> FactList:
        """Return what is known of a pool and its nodes, each fact with its source and age."""
        return await self._get(f"{_pool(pool)}/facts", FactList)

    async def set_pool_facts(self, pool: str, changes: FactChanges) -> FactList:
        """Say what is so of a pool; what is not said stays."""
        call = ApiCall(method="PATCH", path=f"{_pool(pool)}/facts", body=msgspec.json.encode(changes))
        return await self._connection.ask(call, FactList, repeatable=True)

    async def drain_pool(self, pool: str, *, on: bool = True, stop: bool = False) -> Pool:
        """Take no new work on a pool, or take it again; with *stop*, also stop the jobs that it has."""
        call = ApiCall(method="POST", path=f"{_pool(pool)}/drain", query=query(on=on, stop=stop))
        return await self._connection.ask(call, Pool, repeatable=True)

    async def cordon_node(self, pool: str, node: str, *, on: bool = True) -> Pool:
        """Take no new work on one node of a pool, or take it again."""
        call = ApiCall(method="POST", path=f"{_pool(pool)}/nodes/{_part(node)}/cordon", query=query(on=on))
        return await self._connection.ask(call, Pool, repeatable=True)

    async def graph(self, pool: str = "") -> ResourceGraph:
        """Return how clusters, nodes and resources belong together; of one pool, or of all."""
        return await self._get("/v1/graph", ResourceGraph, query(pool=pool))

    async def plugins(self) -> tuple[Plugin, ...]:
        """Return every plugin, in process or not."""
        return (await self._get("/v1/plugins", PluginList)).plugins

    async def plugin(self, name: str) -> Plugin:
        """Return one plugin."""
        return await self._get(f"/v1/plugins/{_part(name)}", Plugin)

    def add_plugin(self, directory: str, *, upgrades: str = "") -> AsyncGenerator[Check | Plugin, None]:
        """Let the platform start the plugin in a folder of its machine: yield each step, then the plugin."""
        return self._checks(_post("/v1/plugins", PluginFolder(directory, upgrades)), "plugin", Plugin)

    async def plugin_folders(self) -> tuple[AllowedFolder, ...]:
        """Return the folders of the server's machine that plugins may be started from."""
        return (await self._get("/v1/plugin-folders", AllowedFolders)).folders

    async def allow_plugins(self, directory: str) -> AllowedFolder:
        """Let plugins be started from a folder of the server's machine; for admins."""
        return await self._connection.ask(_post("/v1/plugin-folders", FolderWish(directory)), AllowedFolder)

    async def disallow_plugins(self, directory: str) -> None:
        """Let no plugin be started from a folder any more."""
        call = ApiCall(method="DELETE", path="/v1/plugin-folders", query=query(directory=directory))
        await self._connection.read(call)

    async def remove_plugin(self, name: str, *, force: bool = False) -> None:
        """Call a plugin no more; refused while pools are of its kind, unless *force*."""
        path = f"/v1/plugins/{_part(name)}"
        await self._connection.read(ApiCall(method="DELETE", path=path, query=query(force=force)))

    async def remove_pool(self, pool: str, *, force: bool = False) -> None:
        """Forget a pool that has no work left; with *force*, even if it has or does not answer."""
        await self._connection.read(ApiCall(method="DELETE", path=_pool(pool), query=query(force=force)))

    async def prices(self, pool: str) -> PriceList:
        """Return what a pool charges now."""
        return await self._get(f"{_pool(pool)}/prices", PriceList)

    async def set_prices(self, pool: str, high: Prices, tiers: dict[Tier, Prices] | None = None) -> PriceList:
        """Set what a pool charges from now on; medium and low follow from *high* unless given."""
        return await self._put(f"{_pool(pool)}/prices", PriceTerms(high, tiers), PriceList)

    # -- projects, members, secrets, keys, audit -------------------------------------------------------------------

    async def projects(self) -> tuple[Project, ...]:
        """Return the projects the caller may see."""
        return (await self._get("/v1/projects", Projects)).projects

    async def create_project(self, project: str) -> Project:
        """Make a project; one that exists is returned as it is."""
        wish = NewProject(ProjectId(project))
        return await self._connection.ask(_post("/v1/projects", wish), Project, repeatable=True)

    async def project(self, project: str) -> ProjectState:
        """Return a project: each quota with what is used of it, and where its tasks may connect to."""
        return await self._get(_project(project), ProjectState)

    async def set_project(self, project: str, change: ProjectChange) -> ProjectState:
        """Change quotas and network policy of a project; what is left out stays."""
        call = ApiCall(method="PATCH", path=_project(project), body=msgspec.json.encode(change))
        return await self._connection.ask(call, ProjectState, repeatable=True)

    async def members(self, project: str) -> tuple[Member, ...]:
        """Return who belongs to a project."""
        return (await self._get(f"{_project(project)}/members", Members)).members

    async def set_member(self, project: str, user: str, role: Role) -> Member:
        """Give a user, made when new, a role in a project."""
        return await self._put(f"{_project(project)}/members/{_part(user)}", NewRole(role), Member)

    async def remove_member(self, project: str, user: str) -> None:
        """Take a user out of a project."""
        await self._connection.read(
            ApiCall(method="DELETE", path=f"{_project(project)}/members/{_part(user)}")
        )

    async def secrets(self, project: str) -> tuple[SecretInfo, ...]:
        """Return the names of a project's secrets."""
        return (await self._get(f"{_project(project)}/secrets", Secrets)).secrets

    async def set_secret(self, project: str, name: str, value: str) -> SecretInfo:
        """Keep a secret, encrypted."""
        return await self._put(f"{_project(project)}/secrets/{_part(name)}", SecretValue(value), SecretInfo)

    async def delete_secret(self, project: str, name: str) -> None:
        """Forget a secret."""
        await self._connection.read(
            ApiCall(method="DELETE", path=f"{_project(project)}/secrets/{_part(name)}")
        )

    async def keys(self) -> tuple[Key, ...]:
        """Return one's own keys; an admin of the platform sees all."""
        return (await self._get("/v1/keys", Keys)).keys

    async def create_key(
        self,
        name: str,
        *,
        user: str = "",
        expires_in_s: float | None = None,
        scope: KeyScope | None = None,
    ) -> NewKey:
        """Make a key for oneself, or as admin for *user*; not repeated when the answer is lost."""
        wish = KeyWish(name, user, expires_in_s, scope or KeyScope())
        return await self._connection.ask(_post("/v1/keys", wish), NewKey)

    async def rotate_key(
        self, key_id: str, *, overlap_s: float = 3600.0, expires_in_s: float | None = None
    ) -> NewKey:
        """Give a key another text; the old one stays good for *overlap_s* more, so that nobody has to stop."""
        call = _post(f"/v1/keys/{_part(key_id)}/rotate", Rotation(overlap_s, expires_in_s))
        return await self._connection.ask(call, NewKey)

    async def revoke_key(self, key_id: str, *, keep_children: bool = False) -> Key:
        """End a key and all made with it; with *keep_children* an admin takes those over."""
        which = query(keep_children="true" if keep_children else None)
        call = ApiCall(method="DELETE", path=f"/v1/keys/{_part(key_id)}", query=which)
        return await self._connection.ask(call, Key)

    async def audit(self, *, page: int = PAGE) -> AsyncGenerator[AuditEntry, None]:
        """Yield the audit log, newest first."""
        cursor: str | None = None
        while True:
            found = await self._get("/v1/audit", AuditPage, query(limit=page, cursor=cursor))
            for entry in found.entries:
                yield entry
            cursor = found.next_cursor
            if cursor is None:
                return

    # -- costs -----------------------------------------------------------------------------------------------------

    async def cost(  # noqa: PLR0913 - one for each parameter of the query
        self,
        *,
        by: str = "job",
        project: str = "",
        job: str = "",
        since: float | None = None,
        until: float | None = None,
        cursor: str | None = None,
        limit: int = 100,
    ) -> CostReport:
        """Return what was used and is owed, by job, project or pool; more lines follow at its ``next_cursor``."""
        which = query(by=by, project=project, job=job, since=since, until=until, cursor=cursor, limit=limit)
        return await self._get("/v1/cost", CostReport, which)

    async def chain_head(self, chain: str) -> ChainHead:
        """Return the signed head of the ``ledger`` or the ``audit`` log."""
        return await self._get(f"/v1/{_part(chain)}/head", ChainHead)

    async def audit_export(self) -> AsyncGenerator[AuditLine | ChainHead, None]:
        """Yield the audit log from its first line; where older ones were removed, the signed cut comes first."""
        async for line in self._ndjson("/v1/audit/export", AuditLine | ChainHead):
            yield line

    async def ledger(self, *, project: str = "") -> AsyncGenerator[LedgerLine, None]:
        """Yield the ledger from its first line; the content of other projects' entries is masked."""
        async for line in self._ndjson("/v1/ledger", LedgerEntry | MaskedEntry, query(project=project)):
            yield line

    async def _ndjson(
        self, path: str, kind: Any, which: tuple[tuple[str, str], ...] = ()
    ) -> AsyncGenerator[Any, None]:
        """Yield an answer of one JSON value a line."""
        decoder = msgspec.json.Decoder(kind)
        pending = b""
        async with self._connection.open(ApiCall(method="GET", path=path, query=which)) as answer:
            async for chunk in answer.chunks():
                *lines, pending = (pending + chunk).split(b"\n")
                for line in lines:
                    yield decoder.decode(line)

    # -- how ---------------------------------------------------------------------------------------------------------

    async def _get(self, path: str, kind: type[T], which: tuple[tuple[str, str], ...] = ()) -> T:
        return await self._connection.ask(ApiCall(method="GET", path=path, query=which), kind)

    async def _put(self, path: str, value: object, kind: type[T]) -> T:
        return await self._connection.ask(
            ApiCall(method="PUT", path=path, body=msgspec.json.encode(value)), kind
        )

    async def _create(self, path: str, value: object, kind: type[T], key: str) -> T:
        call = ApiCall(
            method="POST",
            path=path,
            body=msgspec.json.encode(value),
            headers={"Idempotency-Key": key or uuid4().hex},
        )
        return await self._connection.ask(call, kind, repeatable=True)

    async def _download(self, call: ApiCall, to_path: Path) -> int:
        size = 0
        async with self._connection.open(call) as answer:
            with to_path.open("wb") as target:
                async for chunk in answer.chunks():
                    size += target.write(chunk)
        return size

    async def _checks(self, call: ApiCall, last: str, kind: type[T]) -> AsyncGenerator[Check | T, None]:
        async with aclosing(self._connection.events(call)) as events:
            async for event in events:
                if event.name == "check":
                    yield msgspec.json.decode(event.data, type=Check)
                elif event.name == last:
                    yield msgspec.json.decode(event.data, type=kind)


def _post(path: str, value: object = None) -> ApiCall:
    return ApiCall(method="POST", path=path, body=None if value is None else msgspec.json.encode(value))


def _part(text: str) -> str:
    return quote(text, safe="")


def _job(job_id: str) -> str:
    return f"/v1/jobs/{_part(job_id)}"


def _pool(pool: str) -> str:
    return f"/v1/pools/{_part(pool)}"


def _project(project: str) -> str:
    return f"/v1/projects/{_part(project)}"
