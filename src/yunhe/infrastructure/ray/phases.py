"""From Ray's word on a job and the report of our runner to what the contract calls an allocation."""

import msgspec

from yunhe.infrastructure.contract.model import Ending, Meters, Observed, Phase
from yunhe.infrastructure.ray.marks import TOMBSTONE, RayAllocation
from yunhe.infrastructure.ray.wire import RayJob, RayReport, ReportReading
from yunhe.kernel.errors import UnsupportedError
from yunhe.kernel.ids import NodeId
from yunhe.kernel.resources import Resources

COULD_NOT_START = 125
"""The exit code of an allocation of which no step could be executed, on every engine."""

NEVER_RAN = frozenset(
    {
        "RUNTIME_ENV_SETUP_FAILURE",
        "JOB_SUPERVISOR_ACTOR_START_TIMEOUT",
        "JOB_SUPERVISOR_ACTOR_START_FAILURE",
        "JOB_SUPERVISOR_ACTOR_UNSCHEDULABLE",
        "JOB_ENTRYPOINT_COMMAND_START_ERROR",
    }
)
"""Ray's reasons that mean: no process of it ever was. Any other leaves open whether it ran."""


def observe(known: RayAllocation, reading: ReportReading) -> Observed:
    """Return what is known of one allocation; there is no report where its node has none or is gone."""
    main, report = known.main, reading.report
    if main is None:
        return Observed(allocation_id=known.allocation_id, phase=Phase.PREPARING, token=known.token)
    if known.role == TOMBSTONE:
        return Observed(
            allocation_id=known.allocation_id,
            phase=Phase.EXITED,
            token=known.token,
            ending=Ending.STOPPED,
            ended_at=_seconds(main.end_time),
        )
    seen = _common(known, main, report)
    match main.status:
        case "PENDING":
            return msgspec.structs.replace(seen, phase=Phase.STARTING, detail=_first_line(main.message))
        case "RUNNING":
            # Ray learns of the end a moment after the runner has reported it, and may yet call it stopped.
            return _going_on(seen)
        case "SUCCEEDED" | "FAILED" | "STOPPED" if not reading.certain and not _told_its_end(report):
            # How it ended is written on a node that does not answer now, but will, or will be given up by Ray.
            return msgspec.structs.replace(_going_on(seen), detail="it has ended; its node does not answer")
        case "SUCCEEDED" | "FAILED" | "STOPPED":
            return _ended(seen, known, main, report)
        case status:
            raise UnsupportedError(
                f"Ray calls job {known.allocation_id} {status!r}, a status this version does not know.",
                remedy="Upgrade Yunhe, or use a Ray version that the documentation lists.",
            )


def _common(known: RayAllocation, main: RayJob, report: RayReport | None) -> Observed:
    said = (main.metadata or {}).get("resources", "{}")
    return Observed(
        allocation_id=known.allocation_id,
        phase=Phase.STARTING,
        token=known.token,
        node_id=NodeId(main.driver_node_id) if main.driver_node_id else None,
        step=report.step if report else "",
        started_at=report.started_at if report else None,
        resources=msgspec.json.decode(said, type=Resources),
        meters=msgspec.convert(report.meters, Meters) if report else Meters(),
        log_bytes=report.log_bytes if report else 0,
    )


def _going_on(seen: Observed) -> Observed:
    phase = Phase.STARTING if seen.started_at is None else Phase.RUNNING
    return msgspec.structs.replace(seen, phase=phase)


def _told_its_end(report: RayReport | None) -> bool:
    return report is not None and report.ended is not None


def _ended(seen: Observed, known: RayAllocation, main: RayJob, report: RayReport | None) -> Observed:
    if report is not None and report.ended is not None:
        return msgspec.structs.replace(
            seen,
            phase=Phase.EXITED,
            exit_code=report.ended.exit_code,
            ending=Ending(report.ended.ending),
            ended_at=report.ended.ended_at,
            detail=report.ended.detail,
        )
    seen = msgspec.structs.replace(seen, ended_at=_seconds(main.end_time), detail=_first_line(main.message))
    if report is None and _never_began(known, main):
        return msgspec.structs.replace(seen, phase=Phase.EXITED, ending=Ending.STOPPED)
    if report is None and main.error_type in NEVER_RAN:
        detail = f"Ray could not start it: {seen.detail}"
        return msgspec.structs.replace(
            seen, phase=Phase.EXITED, ending=Ending.DONE, exit_code=COULD_NOT_START, detail=detail
        )
    if main.status == "SUCCEEDED":
        # Only a runner that has recorded the end of every step exits with 0.
        detail = "its node is gone, and its log and meters with it"
        return msgspec.structs.replace(
            seen, phase=Phase.EXITED, ending=Ending.DONE, exit_code=0, detail=detail
        )
    return msgspec.structs.replace(seen, phase=Phase.UNKNOWN)


def _never_began(known: RayAllocation, main: RayJob) -> bool:
    """Return whether it was stopped before our runner could so much as say that it began."""
    return main.status == "STOPPED" or (known.stopped and main.error_type in NEVER_RAN)


def _seconds(milliseconds: int | None) -> float | None:
    return milliseconds / 1000 if milliseconds else None


def _first_line(message: str | None) -> str:
    return (message or "").strip().partition("\n")[0][:400]
