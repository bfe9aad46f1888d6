"""What others may ask of accounts."""

from collections.abc import AsyncIterator
from typing import Protocol

from yunhe.kernel.ids import ProjectId
from yunhe.kernel.quotas import QuotaName
from yunhe.storage.quotas import ProjectSettings
from yunhe.trading.accounts.model import (
    Action,
    AuditLine,
    AuditPage,
    Key,
    KeyScope,
    Member,
    NewKey,
    Principal,
    Project,
    ProjectChange,
    ProjectState,
    Role,
    SecretInfo,
)


class Accounts(Protocol):
    """Owns projects, users, keys, secrets and the audit log.

    ``authorize`` judges; the door calls it once for each request. The others do as they are told: *who* is for the
    audit log, and says whose keys and projects are meant.
    """

    async def authenticate(self, key_text: str) -> Principal:
        """Return who holds the key, or raise ``UnauthenticatedError``."""
        ...

    async def authorize(
        self, who: Principal, action: Action, project_id: ProjectId, subject: str = ""
    ) -> None:
        """Raise ``ForbiddenError`` and audit the denial unless *who* may do *action* there."""
        ...

    async def authorize_plugin(self, who: Principal, plugin: str) -> None:
        """Raise ``ForbiddenError`` and audit the denial unless *who* came with the key of that plugin."""
        ...

    async def may(self, who: Principal, action: Action, project_id: ProjectId) -> bool:
        """Return whether *who* may do *action* there; a no is not audited."""
        ...

    async def visible_projects(self, who: Principal) -> tuple[ProjectId, ...] | None:
        """Return the projects *who* may see; None: every one."""
        ...

    async def require_project(self, project_id: ProjectId) -> None:
        """Raise ``NotFoundError`` unless the project exists."""
        ...

    async def create_project(self, who: Principal, project_id: ProjectId) -> Project:
        """Make a project; one that exists is returned as it is."""
        ...

    async def projects(self, who: Principal) -> tuple[Project, ...]:
        """Return the projects *who* may see."""
        ...

    async def project_settings(self, project_id: ProjectId) -> ProjectSettings:
        """Return what is set for a project, not more than a second old."""
        ...

    async def project_state(self, project_id: ProjectId, jobs: dict[QuotaName, int]) -> ProjectState:
        """Return a project with its limits and use; how many *jobs* it has is known elsewhere."""
        ...

    async def change_project(
        self, who: Principal, project_id: ProjectId, change: ProjectChange
    ) -> ProjectSettings:
        """Change limits and policy of a project; ``InvalidInputError`` names every value that cannot be."""
        ...

    async def members(self, who: Principal, project_id: ProjectId) -> tuple[Member, ...]:
        """Return who belongs to a project."""
        ...

    async def set_member(self, who: Principal, project_id: ProjectId, user: str, role: Role) -> Member:
        """Give *user* (made when new) a role in a project."""
        ...

    async def remove_member(self, who: Principal, project_id: ProjectId, user: str) -> None:
        """Take a user out of a project; one who is not in it stays out."""
        ...

    async def create_key(
        self,
        who: Principal,
        name: str,
        *,
        user: str = "",
        expires_in_s: float | None = None,
        scope: KeyScope = KeyScope(),  # noqa: B008 - frozen
    ) -> NewKey:
        """Make a key for oneself, or for *user*: no wider and no longer than the key *who* came with, and ended with it."""
        ...

    async def rotate_key(
        self, who: Principal, key_id: str, *, overlap_s: float, expires_in_s: float | None = None
    ) -> NewKey:
        """Give a key another text; the old one stays good for *overlap_s* more."""
        ...

    async def keys(self, who: Principal) -> tuple[Key, ...]:
        """Return one's own keys; an admin of every project sees all."""
        ...

    async def revoke_key(self, who: Principal, key_id: str, *, keep_children: bool = False) -> Key:
        """End a key and all made with it, or let those have come from the key of *who*; one that has ended stays so."""
        ...

    async def set_secret(self, who: Principal, project_id: ProjectId, name: str, value: str) -> SecretInfo:
        """Keep a secret, encrypted."""
        ...

    async def secrets(self, who: Principal, project_id: ProjectId) -> tuple[SecretInfo, ...]:
        """Return the names of a project's secrets."""
        ...

    async def delete_secret(self, who: Principal, project_id: ProjectId, name: str) -> None:
        """Forget a secret; one that is not there stays so."""
        ...

    async def sealed_secrets(self, project_id: ProjectId, names: tuple[str, ...]) -> dict[str, str]:
        """Return the secrets still encrypted, or raise ``InvalidInputError`` naming those that do not exist."""
        ...

    async def audit(self, who: Principal, *, cursor: str | None = None, limit: int = 50) -> AuditPage:
        """Return the audit log, newest first."""
        ...

    def audit_lines(self) -> AsyncIterator[AuditLine]:
        """Yield the audit log by the places of its lines in the chain, the oldest first."""
        ...
