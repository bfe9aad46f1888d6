"""What follows the end of an attempt: pure."""

from typing import NamedTuple

from yunhe.control.pools.model import Ending
from yunhe.kernel.units import show_duration
from yunhe.scheduling.orchestration.jobs.states import JobState

UNKNOWN = "unknown"
"""An attempt whose end cannot be told has this instead of an ``Ending``."""


class Outcome(NamedTuple):
    """The state that follows, why, and whether it uses up one of the job's retries."""

    state: JobState
    reason: str
    uses_retry: bool = False


class EndedAttempt(NamedTuple):
    """What is known of an attempt that is over."""

    ending: str
    exit_code: int | None
    detail: str
    timeout_s: float | None
    retries_left: int
    stop_requested: bool


def first_state(attempt: EndedAttempt) -> JobState:
    """Return how the attempt itself is told, before the retry policy speaks."""
    if attempt.ending == UNKNOWN:
        return JobState.UNKNOWN
    if attempt.ending == Ending.PREEMPTED:
        return JobState.PREEMPTED
    return settle(attempt).state


def settle(attempt: EndedAttempt) -> Outcome:
    """Return what becomes of a job after an attempt."""
    if attempt.stop_requested:
        return Outcome(JobState.STOPPED, "stopped on request")
    if attempt.ending == Ending.PREEMPTED:
        return Outcome(
            JobState.PENDING, f"lost its place ({attempt.detail or 'preempted'}); waits for another"
        )
    if attempt.ending == Ending.DONE and attempt.exit_code == 0:
        return Outcome(JobState.SUCCEEDED, "")
    reason = _why(attempt)
    if attempt.retries_left > 0:
        return Outcome(
            JobState.PENDING,
            f"{reason}; runs again, {attempt.retries_left - 1} retries left",
            uses_retry=True,
        )
    return Outcome(JobState.FAILED, reason)


def _why(attempt: EndedAttempt) -> str:
    if attempt.ending == UNKNOWN:
        return f"whether it ran cannot be said ({attempt.detail or 'the pool does not know'})"
    if attempt.ending == Ending.TIMED_OUT:
        limit = f" after {show_duration(attempt.timeout_s)}" if attempt.timeout_s else ""
        return f"timed out{limit}"
    if attempt.ending == Ending.OUT_OF_MEMORY:
        return "ran out of the memory it asked for"
    if attempt.ending == Ending.DISK_FULL:
        return "ran out of disk"
    if attempt.ending == Ending.STOPPED:
        return attempt.detail or "was ended on the pool, not by us"
    if attempt.detail and not attempt.detail.startswith("in "):
        return f"{attempt.detail} (exit code {attempt.exit_code})"
    return f"exit code {attempt.exit_code} {attempt.detail}".strip()
