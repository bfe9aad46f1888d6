"""The nouns of accounts: who may do what, in which project."""

from enum import StrEnum

import msgspec

from yunhe.kernel.ids import ProjectId, UserId
from yunhe.kernel.quotas import QuotaName, QuotaUse

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
    KEYS = "keys"
    """Make, rotate and end one's own keys; a key whose scope names actions needs it named too."""


class Membership(msgspec.Struct, frozen=True):
    """A user's role in one project."""

    project_id: ProjectId
    role: Role


class KeyScope(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a key is good for; what is left out is not limited."""

    project_id: ProjectId = ProjectId("")
    """Only in this project."""
    role: Role | None = None
    """As this role at most, whatever the user's own is."""
    actions: tuple[Action, ...] = ()
    """Only these."""
    plugin: str = ""
    """Only to register the plugin of this name; such a key opens nothing else."""


class Principal(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Who is calling, as proven by a key."""

    user_id: UserId
    name: str
    key_id: str
    memberships: tuple[Membership, ...]
    """What the user may do, less what the key's scope leaves out."""
    scope: KeyScope = KeyScope()
    key_expires_at: float | None = None
    """When the key ends: itself, or with one that it was made with."""
    outdated: bool = False
    """The key has been rotated, and this is its old text."""


class Project(msgspec.Struct, frozen=True, kw_only=True):
    """Who pays and who may see."""

    id: ProjectId
    created_at: float


class ProjectState(msgspec.Struct, frozen=True, kw_only=True):
    """A project with what it may have, and what it has."""

    id: ProjectId
    created_at: float
    egress: tuple[str, ...] | None
    """Where its tasks may connect to: null: as pools allow; empty: nowhere; else these blocks of addresses alone."""
    quotas: tuple[QuotaUse, ...]


class ProjectChange(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What shall be different about a project; what is left out stays as it is."""

    limits: dict[QuotaName, int | None] = {}
    """The most it may have of each; -1: no limit; null: as by default."""
    egress: tuple[str, ...] | msgspec.UnsetType | None = msgspec.UNSET
    """Where its tasks may connect to; null: as pools allow; empty: nowhere."""


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
    parent_id: str = ""
    """The key it was made with; it ends when that one does."""
    scope: KeyScope = KeyScope()
    rotated_at: float | None = None
    overlap_until: float | None = None
    """Until when the text from before the last rotation is good, too."""


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


class AuditLine(msgspec.Struct, frozen=True, kw_only=True, tag="line"):
    """A line of the audit log as it is exported: what it says, and its place in the chain."""

    number: int
    seq: int
    at: float
    user: str
    key_id: str
    action: str
    subject: str
    project_id: str
    outcome: str
    detail: str
    previous: str
    hash: str


class AuditPage(msgspec.Struct, frozen=True, kw_only=True):
    """Some of the audit log, newest first, and where to go on."""

    entries: tuple[AuditEntry, ...]
    next_cursor: str | None = None
