"""The nouns of applications: a task on its way to becoming a job."""

import hashlib
from typing import Literal

import msgspec

from yunhe.kernel.errors import FieldProblem, InvalidInputError
from yunhe.kernel.ids import BlobId, ProjectId
from yunhe.scheduling.decision.plans import PlannedPlace
from yunhe.trading.demand.model import Task

BATCH_LIMIT = 1000
"""Submissions in one batch."""


class UploadedMount(msgspec.Struct, frozen=True, kw_only=True):
    """Where an uploaded archive belongs: the workdir is the mount at ``.``."""

    path: str
    blob_id: BlobId


class Submission(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A task, the project that pays, and the archives uploaded for it."""

    task: Task
    project_id: ProjectId = ProjectId("default")
    mounts: tuple[UploadedMount, ...] = ()


class Assembly(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What came of putting an archive together from chunks: the archive, or what is missing for it."""

    blob_id: BlobId | None = None
    missing: tuple[str, ...] = ()
    """SHA-256 of each chunk that the project does not have."""


class PlannedTask(msgspec.Struct, frozen=True, kw_only=True):
    """A task and the place that a plan chose for it."""

    submission: Submission
    place: PlannedPlace


class SavedPlan(msgspec.Struct, frozen=True, kw_only=True):
    """Tasks with their places, to be run later as planned; it names secrets and archives and contains neither."""

    format: Literal[1] = 1
    made_at: float
    tasks: tuple[PlannedTask, ...]
    digest: str = ""
    """SHA-256 of all the rest."""

    def sealed(self) -> "SavedPlan":
        """Return the plan with its digest, which is the same however often it was written and read."""
        bare = msgspec.json.encode(msgspec.structs.replace(self, digest=""))
        read = msgspec.json.decode(bare, type=SavedPlan)
        digest = hashlib.sha256(msgspec.json.encode(read, order="deterministic")).hexdigest()
        return msgspec.structs.replace(self, digest=digest)

    def check(self) -> None:
        """Refuse a plan that is not as it was when it was sealed."""
        if self.digest != self.sealed().digest:
            raise InvalidInputError(
                "The plan was changed after it was written: its digest does not match.",
                remedy="Write it anew: yunhe plan FILE… --save PLAN.",
                fields=(FieldProblem("digest", "does not match", self.digest[:80]),),
            )


def archive_scope(project_id: ProjectId) -> str:
    """Return where a project's archives are kept: apart, so that knowing a digest is not having the file."""
    return f"project/{project_id}"


def archive_id(project_id: ProjectId, digest: str) -> BlobId:
    """Return what a project's archive with this SHA-256 is called."""
    return BlobId(f"{archive_scope(project_id)}/{digest}")
