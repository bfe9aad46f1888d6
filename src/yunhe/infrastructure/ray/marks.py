"""What Ray's list of jobs says of our allocations.

An allocation is the Ray job that bears its ID. What comes to be known of it later cannot be written into that job, so
it is said by marks: jobs that never run (see ``wire.MARK_RESOURCES``), named after the allocation. Ray refuses a second
job of the same name, keeps jobs until they are deleted, and lists them all in one answer: that makes marks exclusive,
durable and cheap to read.

``ID``                  the allocation; or, as a tombstone, the place it would have taken: a launch that finds the name
                        taken starts nothing, whichever of the two came first
``ID.token.T``          somebody with token T has taken over
``ID.stop.T.MS``        ended by T, with a grace of MS milliseconds
``ID.file.T.N``         the N-th archive, kept in Ray as a package until the launch
``ID.released.T``       forgotten by T
"""

import msgspec

from yunhe.infrastructure.contract.model import Upload
from yunhe.infrastructure.ray.wire import MARK_RESOURCES, RayJob, RaySubmission
from yunhe.kernel.ids import AllocationId

ROLE = "yunhe"
ALLOCATION = "allocation"
TOMBSTONE = "tombstone"
MARK = "mark"
LIVE_STATUSES = ("PENDING", "RUNNING")
SWEPT_AFTER_S = 3600.0
"""How long what was released may still be read: minutes of use that nobody had fetched."""
MOST_SWEPT = 256
KEPT_S = 7 * 86_400.0
"""How long the marks of what was released go on to refuse a late launch."""


class FileMark(msgspec.Struct, frozen=True):
    """An archive that waits for the launch."""

    number: int
    path: str
    digest: str
    package: str
    project_id: str


class RayAllocation(msgspec.Struct, kw_only=True):
    """Everything that Ray says of one allocation."""

    allocation_id: AllocationId
    main: RayJob | None = None
    token: int = -1
    """The highest seen; -1: none."""
    stopped: bool = False
    released_at: float | None = None
    files: list[FileMark] = []
    entries: list[str] = []
    """The names of its marks."""

    @property
    def role(self) -> str:
        """Return what holds its name: the allocation, a tombstone, or nothing."""
        return (self.main.metadata or {}).get(ROLE, "") if self.main else ""

    @property
    def live(self) -> bool:
        """Return whether Ray has not ended it."""
        return self.main is not None and self.role == ALLOCATION and self.main.status in LIVE_STATUSES

    @property
    def over(self) -> bool:
        """Return whether it can never be launched any more."""
        return self.main is not None or self.released_at is not None

    @property
    def shown(self) -> bool:
        """Return whether it is among what is observed: a mere mark is not."""
        return self.released_at is None and (self.role == ALLOCATION or bool(self.files))


def read_known(jobs: list[RayJob]) -> dict[AllocationId, RayAllocation]:
    """Return every allocation that *jobs* tell of."""
    known: dict[AllocationId, RayAllocation] = {}
    for job in jobs:
        if job.submission_id is None or not {ROLE, "token"} <= (job.metadata or {}).keys():
            continue  # somebody else's
        name, *kind = job.submission_id.split(".")
        allocation_id = AllocationId(name)
        one = known.setdefault(allocation_id, RayAllocation(allocation_id=allocation_id))
        _take(one, job, kind[0] if kind else "")
    for one in known.values():
        one.files.sort(key=lambda file: file.number)
    return known


def _take(known: RayAllocation, job: RayJob, kind: str) -> None:
    said = job.metadata or {}
    known.token = max(known.token, int(said["token"]))
    if not kind:
        known.main = job
        known.stopped = known.stopped or said[ROLE] == TOMBSTONE
        return
    known.entries.append(job.submission_id or "")
    if kind == "stop":
        known.stopped = True
    elif kind == "released":
        known.released_at = (job.start_time or 0) / 1000
    elif kind == "file":
        known.files.append(msgspec.json.decode(said["file"], type=FileMark))


def tombstone(allocation_id: AllocationId, token: int) -> RaySubmission:
    """Return what takes the place of an allocation that must never start."""
    return _mark(allocation_id, token, role=TOMBSTONE)


def token_mark(allocation_id: AllocationId, token: int) -> RaySubmission:
    """Return the mark that *token* commands now."""
    return _mark(f"{allocation_id}.token.{token}", token)


def stop_mark(allocation_id: AllocationId, token: int, grace_s: float) -> RaySubmission:
    """Return the mark that *token* ends it; the runner on the node reads the grace from its name."""
    return _mark(f"{allocation_id}.stop.{token}.{round(grace_s * 1000)}", token)


def released_mark(allocation_id: AllocationId, token: int) -> RaySubmission:
    """Return the mark that it is forgotten."""
    return _mark(f"{allocation_id}.released.{token}", token)


def file_mark(upload: Upload, number: int, package: str) -> RaySubmission:
    """Return the mark that an archive waits for the launch."""
    file = FileMark(number, upload.path, upload.digest, package, upload.project_id)
    name = f"{upload.allocation_id}.file.{upload.token}.{number}"
    return _mark(name, upload.token, file=msgspec.json.encode(file).decode())


def _mark(name: str, token: int, *, role: str = MARK, file: str = "") -> RaySubmission:
    metadata = {ROLE: role, "token": str(token)}
    if file:
        metadata["file"] = file
    return RaySubmission(
        entrypoint="true", submission_id=name, metadata=metadata, entrypoint_resources=MARK_RESOURCES
    )


def to_sweep(known: dict[AllocationId, RayAllocation], now: float) -> list[str]:
    """Return what the next allocation to start removes from its node: what was released a while ago."""
    released = [
        (one.released_at, one.allocation_id)
        for one in known.values()
        if one.released_at is not None and one.released_at < now - SWEPT_AFTER_S
    ]
    return [allocation_id for _, allocation_id in sorted(released)[-MOST_SWEPT:]]


def to_prune(known: dict[AllocationId, RayAllocation], now: float) -> list[str]:
    """Return the jobs Ray may forget, an allocation's own last: until then its name is taken."""
    return [
        name
        for one in known.values()
        if one.released_at is not None and one.released_at < now - KEPT_S
        for name in (*one.entries, *((one.allocation_id,) if one.main else ()))
    ]
