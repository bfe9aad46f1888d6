"""How much a project may have and do at once: the quotas, what they are by default, and the words of a refusal."""

from enum import StrEnum

import msgspec

from yunhe.kernel.errors import FieldProblem, QuotaExceededError
from yunhe.kernel.units import GIB

NO_LIMIT = -1


class QuotaName(StrEnum):
    """What is counted for a project."""

    QUEUED = "queued"
    """Jobs that wait to be placed."""
    RUNNING = "running"
    """Jobs that are placed and not over; those beyond it wait."""
    UPLOAD_FILE_BYTES = "upload_file_bytes"
    """Of one archive."""
    UPLOAD_BYTES_PER_DAY = "upload_bytes_per_day"
    """Sent within one day, by UTC."""
    BLOB_BYTES = "blob_bytes"
    """Archives and outputs that are kept; a small one counts as 4 KiB."""
    LOG_BYTES = "log_bytes"
    """Output of jobs that is kept; what comes beyond it is not."""
    JOB_LOG_BYTES = "job_log_bytes"
    """Output that is kept of one attempt of a job."""
    REQUESTS_PER_S = "requests_per_s"
    """Requests about the project to one server process; twice as many at once."""


class QuotaLimits(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The most a project may have of each; -1: no limit."""

    queued: int = 50_000
    running: int = NO_LIMIT
    upload_file_bytes: int = GIB
    upload_bytes_per_day: int = 200 * GIB
    blob_bytes: int = 100 * GIB
    log_bytes: int = 20 * GIB
    job_log_bytes: int = GIB
    requests_per_s: int = 2000

    def of(self, name: QuotaName) -> int:
        """Return one of them."""
        return getattr(self, name)

    def over(self, own: dict[QuotaName, int]) -> "QuotaLimits":
        """Return these with a project's own in their place."""
        return msgspec.structs.replace(self, **own)


class QuotaUse(msgspec.Struct, frozen=True, kw_only=True):
    """One quota of a project."""

    name: QuotaName
    used: int | None
    """None: it is a bound for each file, job or second, and nothing adds up."""
    limit: int | None
    """None: no limit."""
    own: bool
    """Set for this project, not as by default."""


def refusal(name: QuotaName, owner: str, *, used: int, asked: int, limit: int) -> QuotaExceededError:
    """Return the error that says which quota is used up, how far, and what to do."""
    fields = (FieldProblem(f"quota.{name}", f"{used} used of {limit}, {asked} more asked", str(asked)),)
    has = f"has {used} of {limit} {WORDS[name]}, and {asked} more"
    if name is QuotaName.UPLOAD_FILE_BYTES:
        has = f"may upload archives of {limit} bytes, and this one"
    return QuotaExceededError(
        f"Project {owner} {has} would be over its quota {name}; nothing was done.",
        remedy=f"{REMEDIES[name]} An administrator raises it: yunhe project set {owner} --{OPTIONS[name]} N.",
        fields=fields,
    )


WORDS: dict[QuotaName, str] = {
    QuotaName.QUEUED: "jobs queued",
    QuotaName.RUNNING: "jobs running",
    QuotaName.UPLOAD_FILE_BYTES: "bytes of one archive",
    QuotaName.UPLOAD_BYTES_PER_DAY: "bytes uploaded today",
    QuotaName.BLOB_BYTES: "bytes of archives and outputs kept",
    QuotaName.LOG_BYTES: "bytes of logs kept",
    QuotaName.JOB_LOG_BYTES: "bytes of one attempt's log kept",
    QuotaName.REQUESTS_PER_S: "requests a second",
}
REMEDIES: dict[QuotaName, str] = {
    QuotaName.QUEUED: "Submit fewer at once, or wait until some have started.",
    QuotaName.RUNNING: "Wait until one of them ends.",
    QuotaName.UPLOAD_FILE_BYTES: "Send fewer files, or have the task fetch them.",
    QuotaName.UPLOAD_BYTES_PER_DAY: "Go on tomorrow (UTC), or leave files out that did not change.",
    QuotaName.BLOB_BYTES: "Declare fewer outputs; what nobody uses goes by itself after some days.",
    QuotaName.LOG_BYTES: "Print less; old logs go by themselves after some days.",
    QuotaName.JOB_LOG_BYTES: "Print less, or write to a file and declare it under outputs.",
    QuotaName.REQUESTS_PER_S: "Ask less often: watch jobs instead of asking again, submit many tasks as a batch.",
}
OPTIONS: dict[QuotaName, str] = {
    name: {
        QuotaName.REQUESTS_PER_S: "max-requests-per-s",
        QuotaName.UPLOAD_BYTES_PER_DAY: "max-upload-bytes-per-day",
    }.get(name, f"max-{name.replace('_', '-')}")
    for name in QuotaName
}
