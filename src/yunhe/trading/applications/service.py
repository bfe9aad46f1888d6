"""Applications: a task comes in, is checked whole, made precise, and handed down as a job."""

import hashlib
import re
from collections.abc import AsyncIterator, Sequence
from typing import Any

import msgspec

from yunhe.kernel.clock import Clock
from yunhe.kernel.confinement import Confinement, bounded, widening
from yunhe.kernel.errors import FieldProblem, ForbiddenError, InvalidInputError, NotFoundError, YunheError
from yunhe.kernel.ids import BlobId, JobId, ProjectId, new_id
from yunhe.kernel.validation import most
from yunhe.observability.failpoints import failpoint
from yunhe.scheduling.decision.model import Demand, Plan, Waiting
from yunhe.scheduling.decision.plans import JointPlan, ParetoPlan, PlannedPlace
from yunhe.scheduling.orchestration.interface import Orchestration
from yunhe.scheduling.orchestration.jobs.model import Job, JobOrder, Mount, PythonNeed, Step, SubmissionKey
from yunhe.storage import audit
from yunhe.storage.blobs import Blobs
from yunhe.storage.database import Connection
from yunhe.trading.accounts.interface import Accounts
from yunhe.trading.accounts.model import Principal
from yunhe.trading.applications.model import (
    BATCH_LIMIT,
    Assembly,
    PlannedTask,
    SavedPlan,
    Submission,
    archive_id,
    archive_scope,
)
from yunhe.trading.demand.deconstruct import (
    confinement,
    grace_s,
    image_name,
    log_limit_bytes,
    mount_paths,
    timeout_s,
)
from yunhe.trading.demand.interface import Demands
from yunhe.trading.demand.model import Task
from yunhe.trading.demand.parse import not_runnable

_KEY = re.compile(r"[\x21-\x7e]{1,128}")
_DIGEST = re.compile(r"[0-9a-f]{64}")


class ApplicationService:
    """Implements ``Applications``."""

    def __init__(
        self,
        blobs: Blobs,
        accounts: Accounts,
        demands: Demands,
        orchestration: Orchestration,
        clock: Clock,
    ) -> None:
        self._blobs = blobs
        self._accounts = accounts
        self._demands = demands
        self._orchestration = orchestration
        self._clock = clock

    async def submit(
        self, who: Principal, submissions: tuple[Submission, ...], *, idempotency_key: str = ""
    ) -> tuple[Job, ...]:
        """Accept all or none."""
        return await self._submit(who, submissions, idempotency_key)

    async def save_plan(self, who: Principal, submissions: tuple[Submission, ...]) -> SavedPlan:
        """Return where tasks would go together now, to be run later."""
        _check_batch(submissions, "")
        for project_id in {submission.project_id for submission in submissions}:
            await self._accounts.require_project(project_id)
        ids = [JobId(f"plan_{number}") for number in range(len(submissions))]
        now = self._clock()
        places = await self._orchestration.choose_places(await self._orders(who, submissions, ids, now))
        tasks = tuple(
            PlannedTask(submission=submission, place=place)
            for submission, place in zip(submissions, places, strict=True)
        )
        return SavedPlan(made_at=now, tasks=tasks).sealed()

    async def run_plan(self, who: Principal, plan: SavedPlan) -> tuple[Job, ...]:
        """Run a saved plan as it is, once: the same plan again is the same jobs."""
        plan.check()
        submissions = tuple(task.submission for task in plan.tasks)
        places = tuple(task.place for task in plan.tasks)
        return await self._submit(who, submissions, f"plan-{plan.digest}", places)

    async def render_plan(self, who: Principal, plan: SavedPlan) -> tuple[dict[str, Any], ...]:
        """Return a saved plan as objects for another deployer to apply."""
        plan.check()
        submissions = tuple(task.submission for task in plan.tasks)
        _check_batch(submissions, "")
        ids = [JobId(f"plan_{plan.digest[:16]}{number}") for number in range(len(submissions))]
        orders = await self._orders(who, submissions, ids, self._clock())
        return await self._orchestration.render_places(orders, tuple(task.place for task in plan.tasks))

    async def _submit(
        self,
        who: Principal,
        submissions: tuple[Submission, ...],
        idempotency_key: str,
        places: tuple[PlannedPlace, ...] = (),
    ) -> tuple[Job, ...]:
        _check_batch(submissions, idempotency_key)
        for project_id in {submission.project_id for submission in submissions}:
            await self._accounts.require_project(project_id)
        now = self._clock()
        ids = sorted(JobId(new_id("job", now)) for _ in submissions)  # a batch keeps its order in the queue
        if not idempotency_key:
            return await self._orchestration.submit(await self._orders(who, submissions, ids, now))
        digest = hashlib.sha256(msgspec.json.encode(submissions)).hexdigest()
        key = SubmissionKey(who.user_id, idempotency_key, digest)
        try:
            orders = await self._orders(who, submissions, ids, now)
            if places:
                orders = await self._orchestration.hold_to_places(orders, places)
        except YunheError:
            known = await self._orchestration.submitted(key)  # what it named then may be gone since
            if known:
                return known
            raise
        return await self._orchestration.submit(orders, key)

    async def plan(self, project_id: ProjectId, task: Task) -> Plan:
        """Return where the task would go now."""
        task = await self._bounded(task, project_id)
        if task.components:
            graph = await self._demands.deconstruct_graph(task, project_id, self._clock())
            return await self._orchestration.plan_graph(graph)
        demand = await self._demands.deconstruct(task, JobId(""), project_id, self._clock())
        return await self._orchestration.plan(demand)

    async def pareto(self, project_id: ProjectId, task: Task) -> ParetoPlan | Waiting:
        """Return the pools that no other beats in every respect for the task."""
        _refuse_graphs((task,), "compared")
        task = await self._bounded(task, project_id)
        return await self._orchestration.pareto(
            await self._demands.deconstruct(task, JobId(""), project_id, self._clock())
        )

    async def plan_together(self, submissions: tuple[Submission, ...]) -> JointPlan:
        """Return where several tasks would go together now, and what that saves."""
        _refuse_graphs([submission.task for submission in submissions], "planned together")
        now = self._clock()
        submissions = tuple([await self._within_policy(one) for one in submissions])
        return await self._orchestration.plan_together(
            tuple(
                [
                    await self._demands.deconstruct(one.task, JobId(f"plan_{number}"), one.project_id, now)
                    for number, one in enumerate(submissions)
                ]
            )
        )

    async def upload(self, project_id: ProjectId, digest: str, chunks: AsyncIterator[bytes]) -> BlobId:
        """Keep an archive to mount later."""
        await self._accounts.require_project(project_id)
        _check_digest(digest)
        by, now = audit.actor(), self._clock()
        return await self._blobs.put(
            archive_scope(project_id),
            chunks,
            digest=digest,
            project_id=project_id,
            sent=True,
            also=lambda c: audit.append(c, by, now, "upload", digest, project_id=project_id),
        )

    async def keep_chunks(self, project_id: ProjectId, chunks: AsyncIterator[tuple[str, bytes]]) -> int:
        """Keep parts of archives that are put together later."""
        await self._accounts.require_project(project_id)
        scope = archive_scope(project_id)
        count = await self._blobs.keep_chunks(
            scope, chunks, project_id=project_id, also=lambda _: failpoint("chunks-before-commit")
        )
        failpoint("chunks-after-commit")
        return count

    async def put_together(self, project_id: ProjectId, digests: tuple[str, ...]) -> Assembly:
        """Make an archive to mount of chunks that the project has, or say which it lacks."""
        await self._accounts.require_project(project_id)
        by, now = audit.actor(), self._clock()

        def also(connection: Connection) -> None:
            audit.append(connection, by, now, "upload", f"{len(digests)} chunks", project_id=project_id)
            failpoint("archive-before-commit")

        made = await self._blobs.put_together(
            archive_scope(project_id), digests, project_id=project_id, also=also
        )
        if isinstance(made, tuple):
            return Assembly(missing=made)
        failpoint("archive-after-commit")
        return Assembly(blob_id=made)

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
        self, who: Principal, submissions: tuple[Submission, ...], ids: list[JobId], now: float
    ) -> tuple[JobOrder, ...]:
        secrets = await self._sealed(submissions)
        submissions = tuple([await self._within_policy(submission) for submission in submissions])
        return tuple(
            [
                await self._order(
                    who,
                    submission,
                    await self._demands.deconstruct(submission.task, job_id, submission.project_id, now),
                    secrets,
                )
                for submission, job_id in zip(submissions, ids, strict=True)
            ]
        )

    async def _within_policy(self, submission: Submission) -> Submission:
        """Return a submission whose task goes out no further than its project lets it; refuse one that asks for more."""
        return msgspec.structs.replace(
            submission, task=await self._bounded(submission.task, submission.project_id)
        )

    async def _bounded(self, task: Task, project_id: ProjectId) -> Task:
        egress = (await self._accounts.project_settings(project_id)).egress
        if egress is None:
            return task
        beyond = widening(confinement(task), egress)
        if beyond:
            allows = ", ".join(egress) if egress else "no network"
            raise ForbiddenError(
                f"The task asks for more network than project {project_id} allows: {allows}.",
                remedy=f"Ask for less, or for none of it. An administrator changes it: yunhe project set {project_id} --egress BLOCK.",
                fields=tuple(
                    FieldProblem(field, "is beyond what the project allows", value) for field, value in beyond
                ),
            )
        apart = bounded(confinement(task), egress) or Confinement()
        return msgspec.structs.replace(task, network=apart.network, egress=apart.egress)

    async def _order(
        self,
        who: Principal,
        submission: Submission,
        demand: Demand,
        secrets: dict[tuple[ProjectId, str], str],
    ) -> JobOrder:
        task, project_id = submission.task, submission.project_id
        steps = [Step(name="setup", script=task.setup)] if task.setup else []
        return JobOrder(
            demand=demand,
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
            grace_s=grace_s(task),
            log_limit_bytes=log_limit_bytes(task),
            separate_stderr=task.separate_stderr,
            python=_python_need(task),
            confinement=confinement(task),
            ports=task.ports,
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


def _python_need(task: Task) -> PythonNeed | None:
    """Return the Python environment that an engine is asked for; None where the task does not say."""
    if task.python is None:
        return None
    version, wanted = task.python.version, task.python.requirements
    if isinstance(wanted, str):
        return PythonNeed(version=version, file=wanted)
    return PythonNeed(version=version, requirements=wanted)


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
            fields=most(problems),
        )


def _refuse_graphs(tasks: Sequence[Task], what: str) -> None:
    """Refuse tasks with components, which are placed as a graph."""
    named = [task.name or "task" for task in tasks if task.components]
    if named:
        raise InvalidInputError(
            f"{', '.join(named)} has components, which cannot be {what}.",
            remedy="Plan it alone: yunhe plan FILE.",
            fields=(FieldProblem("components", f"cannot be {what}"),),
        )


def _check_digest(digest: str) -> None:
    if _DIGEST.fullmatch(digest) is None:
        raise InvalidInputError(
            "An archive is named by its SHA-256 in hexadecimal.",
            fields=(FieldProblem("digest", "is not 64 hexadecimal digits", digest[:80]),),
        )
