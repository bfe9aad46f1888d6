"""Applications: a task comes in, is checked whole, made precise, and handed down as a job."""

import hashlib
import re
from collections.abc import AsyncIterator

import msgspec

from yunhe.kernel.clock import Clock
from yunhe.kernel.errors import FieldProblem, InvalidInputError, NotFoundError
from yunhe.kernel.ids import BlobId, JobId, ProjectId, new_id
from yunhe.observability.failpoints import failpoint
from yunhe.scheduling.decision.model import Plan
from yunhe.scheduling.orchestration.interface import Orchestration
from yunhe.scheduling.orchestration.jobs.model import Job, JobFilter, JobOrder, Mount, Step
from yunhe.storage import audit
from yunhe.storage.blobs import Blobs
from yunhe.storage.database import Database
from yunhe.trading.accounts.interface import Accounts
from yunhe.trading.accounts.model import Principal
from yunhe.trading.applications import store
from yunhe.trading.applications.model import Submission, archive_id, archive_scope
from yunhe.trading.demand.deconstruct import image_name, mount_paths, timeout_s
from yunhe.trading.demand.interface import Demands
from yunhe.trading.demand.model import Task
from yunhe.trading.demand.parse import not_runnable

BATCH_LIMIT = 1000
_KEY = re.compile(r"[\x21-\x7e]{1,128}")
_DIGEST = re.compile(r"[0-9a-f]{64}")


class ApplicationService:
    """Implements ``Applications``."""

    def __init__(
        self,
        database: Database,
        blobs: Blobs,
        accounts: Accounts,
        demands: Demands,
        orchestration: Orchestration,
        clock: Clock,
    ) -> None:
        self._database = database
        self._blobs = blobs
        self._accounts = accounts
        self._demands = demands
        self._orchestration = orchestration
        self._clock = clock

    async def submit(
        self, who: Principal, submissions: tuple[Submission, ...], *, idempotency_key: str = ""
    ) -> tuple[Job, ...]:
        """Accept all or none."""
        _check_batch(submissions, idempotency_key)
        for project_id in {submission.project_id for submission in submissions}:
            await self._accounts.require_project(project_id)
        digest = hashlib.sha256(msgspec.json.encode(submissions)).hexdigest()
        known = await self._known(who, idempotency_key, digest) if idempotency_key else ()
        if known:
            return known
        now = self._clock()
        ids = sorted(JobId(new_id("job", now)) for _ in submissions)  # a batch keeps its order in the queue
        orders = await self._orders(who, submissions, ids)  # refuses before the key is used up
        if idempotency_key:
            kept = await self._database.write(
                lambda c: store.first_answer(c, who.user_id, idempotency_key, digest, (ids, now)),
                uses_reserve=False,
            )
            failpoint("submit-after-key")
            if kept != ids:  # the same submission came twice at once: its jobs have the IDs of the other
                orders = tuple(_with_id(order, job_id) for order, job_id in zip(orders, kept, strict=True))
        return await self._orchestration.submit(orders)

    async def _known(self, who: Principal, key: str, digest: str) -> tuple[Job, ...]:
        """Return the jobs of an earlier call with this key, whatever its task names may have become since.

        None: the key is new, or that call ended between its key and its jobs, which are made now.
        """
        kept = await self._database.read(lambda c: store.kept_answer(c, who.user_id, key, digest))
        if not kept:
            return ()
        page = await self._orchestration.jobs(JobFilter(ids=tuple(kept), limit=len(kept)))
        return tuple(sorted(page.jobs, key=lambda job: kept.index(job.id)))

    async def plan(self, project_id: ProjectId, task: Task) -> Plan:
        """Return where the task would go now."""
        if task.components:
            graph = await self._demands.deconstruct_graph(task, project_id)
            return await self._orchestration.plan_graph(graph)
        demand = await self._demands.deconstruct(task, JobId(""), project_id)
        return await self._orchestration.plan(demand)

    async def upload(self, project_id: ProjectId, digest: str, chunks: AsyncIterator[bytes]) -> BlobId:
        """Keep an archive to mount later."""
        await self._accounts.require_project(project_id)
        _check_digest(digest)
        by, now = audit.actor(), self._clock()
        return await self._blobs.put(
            archive_scope(project_id),
            chunks,
            digest=digest,
            also=lambda c: audit.append(c, by, now, "upload", digest, project_id=project_id),
        )

    async def has_upload(self, project_id: ProjectId, digest: str) -> bool:
        """Return whether the project uploaded this archive already."""
        _check_digest(digest)
        return await self._blobs.size_bytes(archive_id(project_id, digest)) is not None

    async def _sealed(self, submissions: tuple[Submission, ...]) -> dict[tuple[ProjectId, str], str]:
        """Return every secret the submissions name, still encrypted, by project and name."""
        wanted: dict[ProjectId, set[str]] = {}
        for submission in submissions:
            wanted.setdefault(submission.project_id, set()).update(submission.task.secrets)
        found: dict[tuple[ProjectId, str], str] = {}
        for project_id, names in wanted.items():
            if names:
                sealed = await self._accounts.sealed_secrets(project_id, tuple(sorted(names)))
                found |= {(project_id, name): value for name, value in sealed.items()}
        return found

    async def _orders(
        self, who: Principal, submissions: tuple[Submission, ...], ids: list[JobId]
    ) -> tuple[JobOrder, ...]:
        secrets = await self._sealed(submissions)
        return tuple(
            [
                await self._order(who, submission, job_id, secrets)
                for submission, job_id in zip(submissions, ids, strict=True)
            ]
        )

    async def _order(
        self, who: Principal, submission: Submission, job_id: JobId, secrets: dict[tuple[ProjectId, str], str]
    ) -> JobOrder:
        task, project_id = submission.task, submission.project_id
        steps = [Step(name="setup", script=task.setup)] if task.setup else []
        return JobOrder(
            demand=await self._demands.deconstruct(task, job_id, project_id),
            name=task.name or "task",
            submitted_by=who.name,
            steps=(*steps, Step(name="run", script=task.run)),
            image=image_name(task),
            envs=task.envs,
            sealed_secrets={name: secrets[project_id, name] for name in task.secrets},
            mounts=await self._mounts(submission),
            outputs=task.outputs,
            retries=task.retries,
            timeout_s=timeout_s(task),
        )

    async def _mounts(self, submission: Submission) -> tuple[Mount, ...]:
        expected = set(mount_paths(submission.task))
        given = {mount.path: mount.blob_id for mount in submission.mounts}
        if expected != set(given):
            wrong = sorted(expected ^ set(given))
            raise InvalidInputError(
                "The uploaded archives do not match workdir and file_mounts.",
                remedy="Submit with yunhe run or the client, which upload what the task names.",
                fields=tuple(FieldProblem("mounts", "is missing or not asked for", path) for path in wrong),
            )
        mounts: list[Mount] = []
        for path, blob_id in given.items():
            size = None
            if blob_id.startswith(f"{archive_scope(submission.project_id)}/"):
                size = await self._blobs.size_bytes(blob_id)
            if size is None:
                raise NotFoundError(f"The archive for {path} is not there.", remedy="Upload it again.")
            mounts.append(Mount(path=path, blob_id=blob_id, size_bytes=size))
        return tuple(mounts)


def _check_batch(submissions: tuple[Submission, ...], idempotency_key: str) -> None:
    """Refuse the whole batch, naming everything that is wrong with any of it."""
    problems: list[FieldProblem] = []
    if not 0 < len(submissions) <= BATCH_LIMIT:
        problems.append(FieldProblem("submissions", f"must be 1 to {BATCH_LIMIT}", str(len(submissions))))
    if idempotency_key and _KEY.fullmatch(idempotency_key) is None:
        problems.append(FieldProblem("Idempotency-Key", "must be 1 to 128 visible characters"))
    for number, submission in enumerate(submissions[:BATCH_LIMIT]):
        where = f"submissions[{number}]." if len(submissions) > 1 else ""
        problems += [
            msgspec.structs.replace(problem, field=where + problem.field)
            for problem in not_runnable(submission.task)
        ]
    if problems:
        raise InvalidInputError(
            f"The submission has {len(problems)} problem{'s' if len(problems) > 1 else ''}; nothing was accepted.",
            remedy="Fix the fields named and submit again.",
            fields=tuple(problems),
        )


def _with_id(order: JobOrder, job_id: JobId) -> JobOrder:
    demand = msgspec.structs.replace(order.demand, job_id=job_id)
    return msgspec.structs.replace(order, demand=demand)


def _check_digest(digest: str) -> None:
    if _DIGEST.fullmatch(digest) is None:
        raise InvalidInputError(
            "An archive is named by its SHA-256 in hexadecimal.",
            fields=(FieldProblem("digest", "is not 64 hexadecimal digits", digest[:80]),),
        )
