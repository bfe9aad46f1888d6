"""The nouns of accounts: who may do what, in which project."""

from enum import StrEnum

import msgspec

from yunhe.kernel.ids import ProjectId, UserId

EVERY_PROJECT = ProjectId("*")
"""A membership in this project holds in all of them, and for the platform itself (pools, prices, users)."""


class Role(StrEnum):
    """What a user may do in a project, from least to most."""

    VIEWER = "viewer"
    """Sees jobs, logs and costs."""
    MEMBER = "member"
    """Also runs, stops and resizes jobs, and sets secrets."""
    OPERATOR = "operator"
    """Also manages pools and prices, and reads metrics (on every project only)."""
    ADMIN = "admin"
    """Also manages members, users and keys."""


class Action(StrEnum):
    """What can be done; each needs a role (see ``policy``)."""

    SEE = "see"
    RUN = "run"
    SECRETS = "secrets"
    POOLS = "pools"
    PRICES = "prices"
    MEMBERS = "members"
    AUDIT = "audit"
    METRICS = "metrics"


class Membership(msgspec.Struct, frozen=True):
    """A user's role in one project."""

    project_id: ProjectId
    role: Role


class Principal(msgspec.Struct, frozen=True, kw_only=True):
    """Who is calling, as proven by a key."""

    user_id: UserId
    name: str
    key_id: str
    memberships: tuple[Membership, ...]


class Project(msgspec.Struct, frozen=True, kw_only=True):
    """Who pays and who may see."""

    id: ProjectId
    created_at: float


class Member(msgspec.Struct, frozen=True, kw_only=True):
    """A user in a project."""

    user_id: UserId
    name: str
    role: Role


class Key(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An API key as it may be shown: never the key itself."""

    id: str
    user_id: UserId
    user: str = ""
    """The name of whom it belongs to, in lists."""
    name: str
    created_at: float
    expires_at: float | None = None
    revoked_at: float | None = None
    last_used_at: float | None = None


class NewKey(msgspec.Struct, frozen=True, kw_only=True):
    """A key just made; its text is shown this once."""

    key: Key
    text: str


class SecretInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A secret as it may be shown: its name and age, never its value."""

    name: str
    project_id: ProjectId
    updated_at: float
    updated_by: str


class AuditEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Who did, or was refused, what and when."""

    seq: int = 0
    at: float
    user: str
    key_id: str = ""
    action: str
    subject: str = ""
    project_id: str = ""
    outcome: str = "done"
    """``done`` or ``denied``; what takes several steps is ``begun``, and then ``done`` or ``failed``."""
    detail: str = ""


class AuditPage(msgspec.Struct, frozen=True, kw_only=True):
    """Some of the audit log, newest first, and where to go on."""

    entries: tuple[AuditEntry, ...]
    next_cursor: str | None = None
