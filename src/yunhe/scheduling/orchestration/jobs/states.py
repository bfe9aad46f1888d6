"""The life of a job as a table: which states there are, and which may follow which."""

from enum import StrEnum

from yunhe.kernel.errors import ConflictError


class JobState(StrEnum):
    """Where a job is."""

    PENDING = "pending"
    """Accepted; waits for room."""
    STARTING = "starting"
    """Placed; the pool has been or will be told."""
    RUNNING = "running"
    STOPPING = "stopping"
    """Somebody asked it to end; the pool has been or will be told."""
    FINISHING = "finishing"
    """Ended on the pool; its log, outputs and meters are being brought home."""
    PREEMPTED = "preempted"
    """Lost its place to others, through no fault of its own."""
    UNKNOWN = "unknown"
    """Whether it ran cannot be said; its retry policy decides what follows."""
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    STOPPED = "stopped"


FOLLOWS: dict[JobState | None, frozenset[JobState]] = {
    None: frozenset({JobState.PENDING}),
    JobState.PENDING: frozenset({JobState.STARTING, JobState.STOPPED, JobState.FAILED}),
    JobState.STARTING: frozenset(
        {
            JobState.RUNNING,
            JobState.STOPPING,
            JobState.FINISHING,
            JobState.PENDING,
            JobState.FAILED,  # refused by its pools as often as a job may be
            JobState.UNKNOWN,
        }
    ),
    JobState.RUNNING: frozenset({JobState.STOPPING, JobState.FINISHING, JobState.UNKNOWN}),
    JobState.STOPPING: frozenset({JobState.FINISHING, JobState.UNKNOWN, JobState.STOPPED}),
    JobState.FINISHING: frozenset(
        {
            JobState.SUCCEEDED,
            JobState.FAILED,
            JobState.STOPPED,
            JobState.PREEMPTED,
            JobState.UNKNOWN,
            JobState.PENDING,
        }
    ),
    JobState.PREEMPTED: frozenset({JobState.PENDING, JobState.FAILED, JobState.STOPPED}),
    JobState.UNKNOWN: frozenset({JobState.PENDING, JobState.FAILED, JobState.STOPPED}),
    JobState.SUCCEEDED: frozenset(),
    JobState.FAILED: frozenset(),
    JobState.STOPPED: frozenset(),
}

FINAL = frozenset(state for state in JobState if not FOLLOWS[state])


def follow(now: JobState | None, then: JobState) -> JobState:
    """Return *then* if the table lets it follow *now* (None: a new job); raise ``ConflictError`` otherwise.

    Every state that is written comes from here.
    """
    if then is not now and then not in FOLLOWS[now]:
        raise ConflictError(f"A job that is {now or 'new'} cannot become {then}.")
    return then
