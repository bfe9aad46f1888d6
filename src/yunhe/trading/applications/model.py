"""The nouns of applications: a task on its way to becoming a job."""

import msgspec

from yunhe.kernel.ids import BlobId, ProjectId
from yunhe.trading.demand.model import Task


class UploadedMount(msgspec.Struct, frozen=True, kw_only=True):
    """Where an uploaded archive belongs: the workdir is the mount at ``.``."""

    path: str
    blob_id: BlobId


class Submission(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A task, the project that pays, and the archives uploaded for it."""

    task: Task
    project_id: ProjectId = ProjectId("default")
    mounts: tuple[UploadedMount, ...] = ()


def archive_scope(project_id: ProjectId) -> str:
    """Return where a project's archives are kept: apart, so that knowing a digest is not having the file."""
    return f"project/{project_id}"


def archive_id(project_id: ProjectId, digest: str) -> BlobId:
    """Return what a project's archive with this SHA-256 is called."""
    return BlobId(f"{archive_scope(project_id)}/{digest}")
