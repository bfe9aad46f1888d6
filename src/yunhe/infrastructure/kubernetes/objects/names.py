"""What our objects are called, and the labels and annotations by which anyone finds them again."""

import hashlib
import re

from yunhe.kernel.ids import AllocationId, ProjectId

DOMAIN = "yunhe.io"
ALLOCATION = f"{DOMAIN}/allocation"
PROJECT = f"{DOMAIN}/project"
STATE = f"{DOMAIN}/state"
"""Label of a record: see ``RecordState``."""
TOKEN = f"{DOMAIN}/token"
STOP_BY = f"{DOMAIN}/stop-by"
CLAIMED_AT = f"{DOMAIN}/claimed-at"
FILES = f"{DOMAIN}/files"
"""Annotation of a record: the archives that have come for it, in order."""
PIECE_OF = f"{DOMAIN}/piece-of"
"""Label of a piece of an archive; not ``ALLOCATION``, by which records are found."""
RELEASED_AT = f"{DOMAIN}/released-at"
STEPS = f"{DOMAIN}/steps"
SECRET = f"{DOMAIN}/secret"
ACCELERATORS = f"{DOMAIN}/accelerators"
FINAL = f"{DOMAIN}/final"
METERS = f"{DOMAIN}/meters"
FINALIZER = f"{DOMAIN}/kept-until-released"
MANAGED_BY = "app.kubernetes.io/managed-by"

CONTAINER = "task"
KEEPER = "keeper"
"""The container that outlives the task's, so that its directory can still be reached."""
SERVICE_ACCOUNT = "yunhe-task"
STEPS_FOLDER = "/yunhe/steps"
WORK_FOLDER = "/yunhe/work"
FILES_FOLDER = "/yunhe/files"

_PLAIN_ID = re.compile(r"[a-z][a-z0-9]*_[a-z0-9]{1,50}")
_PLAIN_PROJECT = re.compile(r"[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?")
_LABEL_VALUE = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")


def object_name(allocation_id: AllocationId) -> str:
    """Return a name for an allocation's objects that no other allocation has."""
    if _PLAIN_ID.fullmatch(allocation_id):
        return allocation_id.replace("_", "-")
    return f"x-{_digest(allocation_id, 40)}"


def piece_name(allocation_id: AllocationId, record_uid: str, path: str, digest: str, number: int) -> str:
    """Return the name of one piece of an archive.

    The record's UID is part of it: were a record removed by hand and made anew, the cluster would remove the pieces of
    the old one, and they must not be taken for those of the new.
    """
    return f"{object_name(allocation_id)}-{_digest(f'{record_uid} {digest} {path}', 20)}-{number}"


def namespace_of(prefix: str, project_id: ProjectId) -> str:
    """Return the namespace of a project; two projects never share one."""
    if _PLAIN_PROJECT.fullmatch(project_id):
        return f"{prefix}-{project_id}"
    readable = re.sub(r"[^a-z0-9]+", "-", project_id.lower()).strip("-")[:30]
    return f"{prefix}-{readable}-{_digest(project_id, 10)}".replace("--", "-")


def label_value(text: str) -> str:
    """Return *text*, or a digest of it where it cannot be a label's value."""
    return text if _LABEL_VALUE.fullmatch(text) else f"sha-{_digest(text, 40)}"


def _digest(text: str, length: int) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:length]
