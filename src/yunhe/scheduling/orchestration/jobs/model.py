"""The nouns of running: what orchestration is ordered to run, and what it tells of it."""

import msgspec

from yunhe.control.pools.model import LogMark, Meters, Mount, PythonNeed, Step
from yunhe.kernel.confinement import Confinement
from yunhe.kernel.ids import AllocationId, BlobId, JobId, NodeId, PoolId, ProjectId
from yunhe.kernel.resources import Resources
from yunhe.scheduling.decision.model import Decision, Demand
from yunhe.scheduling.orchestration.jobs.states import JobState
from yunhe.scheduling.orchestration.log_pieces import within

__all__ = [  # with the words of the contract that trading speaks too
    "Attempt",
    "Explanation",
    "Job",
    "JobFilter",
    "JobOrder",
    "JobPage",
    "LogPiece",
    "Meters",
    "Mount",
    "PythonNeed",
    "Step",
]


class JobOrder(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Everything needed to run a demand: what trading hands down to scheduling."""

    demand: Demand
    name: str
    submitted_by: str
    steps: tuple[Step, ...]
    image: str = ""
    """Container image to run in; empty: none, the pool's own system."""
    envs: dict[str, str] = {}
    sealed_secrets: dict[str, str] = {}
    """Encrypted by the platform's vault for the project and name; opened only on the way to the engine."""
    mounts: tuple[Mount, ...] = ()
    outputs: tuple[str, ...] = ()
    retries: int = 0
    timeout_s: float | None = None
    grace_s: float = 10.0
    """How long its programs have to save their work when it is ended; jobs of earlier versions had so long."""
    log_limit_bytes: int = 64 * 1024 * 1024
    separate_stderr: bool = False
    python: PythonNeed | None = None
    """Which Python environment its steps find."""
    confinement: Confinement | None = None
    """How far it is kept apart, where that is not as usual."""
    ports: tuple[int, ...] = ()
    """On which its programs listen, for whoever connects to them."""


class SubmissionKey(msgspec.Struct, frozen=True):
    """What makes a submission repeatable: whose key it came with, and the digest of its body."""

    user_id: str
    key: str
    body_digest: str


class Attempt(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One allocation of a job: a decision made real on a pool."""

    allocation_id: AllocationId
    number: int
    pool_id: PoolId
    pool_name: str
    node_id: NodeId
    resources: Resources
    over: bool = False
    """Ended, with its log and outputs brought home."""
    started_at: float | None = None
    ended_at: float | None = None
    exit_code: int | None = None
    ending: str = ""
    detail: str = ""
    meters: Meters = Meters()
    log_bytes: int = 0
    """How much of its output is kept here already."""
    log_lost: str = ""
    """Why some of its output can never be kept here; empty: nothing is known to be lost."""
    outputs_lost: str = ""
    """Why the files it declared as outputs can never be kept here."""
    clock_off_s: float | None = None
    """By how much its host's clock was ahead of the platform's (negative: behind) where its times had to be corrected."""


class Job(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One run of a task."""

    id: JobId
    name: str
    project_id: ProjectId
    submitted_by: str
    state: JobState
    reason: str = ""
    """Why it is in this state, in a sentence."""
    submitted_at: float
    started_at: float | None = None
    order_to_running_s: float | None = None
    """From when it was submitted to when its first attempt ran; None until then."""
    ended_at: float | None = None
    exit_code: int | None = None
    attempts: tuple[Attempt, ...] = ()
    demand: Demand
    retries: int = 0
    outputs_blob: BlobId | None = None
    outputs_lost: str = ""
    """Why the outputs of its last attempt are lost; empty: they are here, on their way, or none were declared."""
    log_bytes: int = 0
    stop_requested: bool = False
    grace_s: float = 10.0
    ports: tuple[int, ...] = ()
    """On which its programs listen: what ``yunhe forward`` connects to when no port is named."""
    stop_by: float | None = None
    """When it will be forced to end: it was stopped, or its timeout and grace will be over. Until ``grace_s`` before that
    nobody has asked it to end."""


class JobPage(msgspec.Struct, frozen=True, kw_only=True):
    """Some jobs, newest first, and where to go on."""

    jobs: tuple[Job, ...]
    next_cursor: str | None = None


class JobFilter(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Which jobs to list."""

    projects: tuple[ProjectId, ...] | None = None
    """None: every project."""
    ids: tuple[JobId, ...] = ()
    states: tuple[JobState, ...] = ()
    name: str = ""
    pool_id: PoolId | None = None
    cursor: str | None = None
    limit: int = 50


class LogPiece(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Some output of an attempt; ``attempt`` and ``offset`` say where to resume after it."""

    attempt: int
    offset: int
    data: bytes
    marks: tuple[LogMark, ...] = ()
    """When its parts came and from which stream, the first at ``offset``."""


def after(piece: LogPiece, start: int) -> LogPiece:
    """Return what *piece* holds from byte *start* of its attempt's output on."""
    end = piece.offset + len(piece.data)
    data = piece.data[max(0, start - piece.offset) :]
    return LogPiece(
        attempt=piece.attempt,
        offset=end - len(data),
        data=data,
        marks=within(piece.marks, end - len(data), end),
    )


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """Why a job is where it is, or why it waits."""

    job: Job
    decision: Decision | None
    decided_at: float | None
    waiting_s: float = 0.0
