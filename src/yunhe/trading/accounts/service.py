"""Accounts: projects, users, keys and secrets; every change and every denial is audited.

Who calls has been authorized: the door asks ``authorize`` once for each request (ADR 52).
"""

import re
from collections.abc import AsyncIterator, Callable
from contextlib import suppress

import msgspec

from yunhe.kernel.clock import Clock
from yunhe.kernel.errors import (
    ConflictError,
    DiskFullError,
    FieldProblem,
    ForbiddenError,
    InvalidInputError,
    NotFoundError,
    UnauthenticatedError,
)
from yunhe.kernel.ids import ProjectId
from yunhe.kernel.quotas import QuotaName
from yunhe.observability.failpoints import failpoint
from yunhe.storage import audit
from yunhe.storage.database import Connection, Database
from yunhe.storage.quotas import (
    ProjectSettings,
    QuotaBook,
    day_of,
    read_settings,
    read_uses,
    write_settings,
)
from yunhe.storage.vault import Vault, secret_place
from yunhe.trading.accounts import keys, projects, store
from yunhe.trading.accounts.denials import Denials
from yunhe.trading.accounts.model import (
    EVERY_PROJECT,
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
from yunhe.trading.accounts.policy import NEEDS, may, role_in

NOBODY = "–"
"""Stands in the audit log for whoever came without a key that is known."""
DEFAULT_PROJECT = ProjectId("default")
SECRET_LIMIT_BYTES = 64 * 1024
MOST_SECRETS = 500
"""Of one project."""
REFUSALS_A_MINUTE = 30
"""Lines of the audit log that one key may cause by what it may not do."""
_NAME = re.compile(r"[a-z0-9]([a-z0-9._-]{0,62}[a-z0-9])?")
_ENVIRONMENT_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_REMEMBERED_S = 1.0  # how long a key revoked through another process may still open this one
_MOST_REMEMBERED = 10_000
_EXPORT_PAGE = 500
_USED_RESOLUTION_S = 60.0  # how exact last_used_at is; a write per request would be waste


class AccountService:
    """Implements ``Accounts``."""

    def __init__(
        self,
        database: Database,
        vault: Vault,
        clock: Clock,
        quotas: QuotaBook = QuotaBook(),  # noqa: B008 - it has no state
    ) -> None:
        self._quotas = quotas
        self._settings: dict[ProjectId, tuple[float, ProjectSettings]] = {}
        self._database = database
        self._vault = vault
        self._clock = clock
        self._known_projects: set[ProjectId] = set()
        self._remembered: dict[str, tuple[float, Principal]] = {}
        self._denials = Denials()
        self._refusals = Denials(lines=REFUSALS_A_MINUTE)

    async def bootstrap(self, leave: Callable[[str], None]) -> None:
        """Make the first project, user and key on an empty platform; *leave* puts the key where its owner finds it.

        The key is left before the transaction ends: dying in between leaves a key that opens nothing and is replaced
        at the next start, never a platform that nobody has a key to.
        """
        now = self._clock()

        def first(connection: Connection) -> None:
            # Several processes may start at once: this row lets one of them past, and the others see its user.
            store.ensure_project(connection, DEFAULT_PROJECT, now)
            if store.has_users(connection):
                return
            user_id = store.ensure_user(connection, "admin", now)
            store.set_role(connection, EVERY_PROJECT, user_id, Role.ADMIN)
            key = Key(id=keys.new_key_id(now), user_id=user_id, name="first", created_at=now)
            leave(keys.insert_new(connection, key).text)
            failpoint("first-key-before-commit")

        await self._database.write(first)
        failpoint("first-key-after-commit")

    async def authenticate(self, key_text: str) -> Principal:
        """Return who holds the key; whom it does not open is audited, a line a minute for each key."""
        if not key_text:
            await self._deny(audit.Actor(NOBODY), "No key came with the request.")
            raise UnauthenticatedError(
                "No key came with the request.", remedy="Send it as a header: Authorization: Bearer KEY."
            )
        now, digest = self._clock(), store.digest_of(key_text)
        until, known = self._remembered.get(digest, (0.0, None))
        if known is not None and now < until:
            return known

        principal, stale_key, problem = await self._database.read(lambda c: _look_up(c, digest, now))
        if principal is None or problem:
            nobody = audit.Actor(NOBODY)
            await self._deny(
                nobody if principal is None else audit.Actor(principal.name, principal.key_id), problem
            )
            raise UnauthenticatedError(
                problem, remedy="Log in with a valid key: yunhe login, or yunhe token create."
            )
        if stale_key is not None:
            await self._note_use(stale_key, now)
        if len(self._remembered) > _MOST_REMEMBERED:
            self._remembered.clear()
        ends_at = principal.key_expires_at
        self._remembered[digest] = (min(now + _REMEMBERED_S, ends_at or now + _REMEMBERED_S), principal)
        return principal

    async def _note_use(self, key_id: str, now: float) -> None:
        """Note when a key was last used; on a full disk that goes unnoted, so that reads go on."""
        with suppress(DiskFullError):
            await self._database.write(lambda c: store.note_use(c, key_id, now), uses_reserve=False)

    async def _deny(self, by: audit.Actor, problem: str) -> None:
        """Note that a key opened nothing; who knocks without end must not fill the log."""
        now = self._clock()
        before = self._denials.count(by, problem, now)
        if before is not None:
            since = f" {before} more since the last line." if before else ""
            await self._database.write(
                lambda c: audit.append(c, by, now, "authenticate", outcome="denied", detail=problem + since)
            )

    async def authorize(
        self, who: Principal, action: Action, project_id: ProjectId, subject: str = ""
    ) -> None:
        """Raise and audit unless *who* may do *action* there."""
        if may(who, action, project_id):
            return
        where = "the platform" if project_id == EVERY_PROJECT else f"project {project_id}"
        has = role_in(who, project_id)
        detail = f"needs {NEEDS[action]} on {where}, has {has or 'no role'}"
        beyond = bool(who.scope.actions) and action not in who.scope.actions
        detail = f"the key's scope leaves out {action}" if beyond else detail
        await self._note_denial(who, action, subject, project_id, detail)
        if beyond or who.scope != KeyScope():
            raise ForbiddenError(
                f"This key of {who.name} may not do this on {where}: {detail}.",
                remedy="Use a key of wider scope: yunhe token ls shows each key's.",
            )
        raise ForbiddenError(
            f"{who.name} may not do this on {where}: it needs the role {NEEDS[action]}.",
            remedy="Ask an admin to give you the role: yunhe project add PROJECT USER --role ROLE.",
        )

    async def authorize_plugin(self, who: Principal, plugin: str) -> None:
        """Raise and audit unless *who* came with the key of that plugin."""
        if who.scope.plugin == plugin:
            return
        its = f"is the key of plugin {who.scope.plugin}" if who.scope.plugin else "is no plugin's key"
        await self._database.write(
            lambda c: self._note(c, who, "plugin register", plugin, outcome="denied", detail=its)
        )
        raise ForbiddenError(
            f"Plugin {plugin} registers with a key of its own, and this {its}.",
            remedy=f"An admin makes one: yunhe token create NAME --plugin {plugin}.",
        )

    async def may(self, who: Principal, action: Action, project_id: ProjectId) -> bool:
        """Return whether *who* may do *action* there."""
        return may(who, action, project_id)

    async def _note_denial(
        self, who: Principal, action: Action, subject: str, project_id: str, detail: str
    ) -> None:
        """Note that somebody was refused: as many times a minute as a person errs, and then how many more."""
        by, now = audit.Actor(who.name, who.key_id), self._clock()
        before = self._refusals.count(by, "authorize", now)
        if before is None:
            return
        since = f"; {before} more without a line before" if before else ""
        await self._database.write(
            lambda c: self._note(c, who, action, subject, project_id, outcome="denied", detail=detail + since)
        )

    async def visible_projects(self, who: Principal) -> tuple[ProjectId, ...] | None:
        """Return the projects *who* may see; None: every one."""
        if any(m.project_id == EVERY_PROJECT for m in who.memberships):
            return None
        return tuple(m.project_id for m in who.memberships)

    async def require_project(self, project_id: ProjectId) -> None:
        """Raise unless the project exists; one that did stays, for projects are never removed."""
        if project_id not in self._known_projects:
            await self._database.read(lambda connection: store.require_project(connection, project_id))
            self._known_projects.add(project_id)

    async def create_project(self, who: Principal, project_id: ProjectId) -> Project:
        """Make a project; one that exists is returned as it is."""
        _check_name("project", project_id)
        now = self._clock()

        def create(connection: Connection) -> Project:
            project = store.ensure_project(connection, project_id, now)
            self._note(connection, who, "project create", project_id, project_id)
            return project

        return await self._database.write(create)

    async def projects(self, who: Principal) -> tuple[Project, ...]:
        """Return the projects *who* may see."""
        visible = await self.visible_projects(who)
        return await self._database.read(lambda connection: store.read_projects(connection, visible))

    async def project_settings(self, project_id: ProjectId) -> ProjectSettings:
        """Return what is set for a project, not more than a second old."""
        now = self._clock()
        until, known = self._settings.get(project_id, (0.0, None))
        if known is None or now >= until:
            known = await self._database.read(lambda c: read_settings(c, project_id))
            if len(self._settings) > _MOST_REMEMBERED:
                self._settings.clear()
            self._settings[project_id] = (now + _REMEMBERED_S, known)
        return known

    async def project_state(self, project_id: ProjectId, jobs: dict[QuotaName, int]) -> ProjectState:
        """Return a project with its limits and use."""
        day = day_of(self._clock())

        def read(connection: Connection) -> ProjectState:
            store.require_project(connection, project_id)
            (project,) = store.read_projects(connection, (project_id,))
            used = read_uses(connection, project_id, day) | jobs
            settings = read_settings(connection, project_id)
            return projects.state_of(project, settings, self._quotas.defaults, used)

        return await self._database.read(read)

    async def change_project(
        self, who: Principal, project_id: ProjectId, change: ProjectChange
    ) -> ProjectSettings:
        """Change limits and policy of a project."""

        def write(connection: Connection) -> ProjectSettings:
            store.require_project(connection, project_id)
            settings = projects.changed(read_settings(connection, project_id), change)
            write_settings(connection, project_id, settings)
            self._note(connection, who, "project set", project_id, project_id, detail=projects.told(change))
            return settings

        settings = await self._database.write(write)
        self._settings.pop(project_id, None)
        return settings

    async def members(self, who: Principal, project_id: ProjectId) -> tuple[Member, ...]:
        """Return who belongs to a project."""
        return await self._database.read(lambda connection: store.read_members(connection, project_id))

    async def set_member(self, who: Principal, project_id: ProjectId, user: str, role: Role) -> Member:
        """Give *user* (made when new) a role in a project."""
        _check_name("user", user)
        now = self._clock()

        def give(connection: Connection) -> Member:
            store.require_project(connection, project_id)
            user_id = store.ensure_user(connection, user, now)
            store.set_role(connection, project_id, user_id, role)
            self._note(connection, who, "member set", user, project_id, detail=role)
            return Member(user_id=user_id, name=user, role=role)

        self._remembered.clear()
        return await self._database.write(give)

    async def remove_member(self, who: Principal, project_id: ProjectId, user: str) -> None:
        """Take a user out of a project; one who is not in it stays out."""

        def take(connection: Connection) -> None:
            store.remove_role(connection, project_id, user)
            self._note(connection, who, "member remove", user, project_id)

        self._remembered.clear()
        await self._database.write(take)

    async def create_key(
        self,
        who: Principal,
        name: str,
        *,
        user: str = "",
        expires_in_s: float | None = None,
        scope: KeyScope = KeyScope(),  # noqa: B008 - frozen
    ) -> NewKey:
        """Make a key for oneself, or as admin for *user*; it ends with the key that *who* came with."""
        if user and user != who.name:
            _check_name("name", name)
        keys.require_may_mint(who)
        now = self._clock()
        key = Key(
            id=keys.new_key_id(now),
            user_id=who.user_id,
            name=name,
            created_at=now,
            expires_at=keys.child_end(who, expires_in_s, now),
            parent_id=who.key_id,
            scope=keys.child_scope(who.scope, scope),
        )

        def create(connection: Connection) -> NewKey:
            if scope.project_id:
                store.require_project(connection, scope.project_id)
            of = store.user_id(connection, user) if user and user != who.name else who.user_id
            mine = msgspec.structs.replace(key, user_id=of)
            keys.require_room(connection, mine, now)
            self._note(connection, who, "key create", key.id, detail=user or who.name)
            return keys.insert_new(connection, mine)

        return await self._database.write(create)

    async def rotate_key(
        self, who: Principal, key_id: str, *, overlap_s: float, expires_in_s: float | None = None
    ) -> NewKey:
        """Give a key another text; the old one stays good for *overlap_s* more."""
        keys.require_may_mint(who)
        keys.check_overlap(overlap_s)
        now, text = self._clock(), keys.new_text()
        ends_at = keys.child_end(who, expires_in_s, now) if expires_in_s is not None else None
        await self._require_mine(who, key_id)

        def rotate(connection: Connection) -> NewKey:
            keys.require_rotates(connection, who, key_id)
            key = store.read_key(connection, key_id)
            if key.revoked_at is not None:
                raise ConflictError("The key has been revoked.", remedy="Make a new one: yunhe token create.")
            changed = msgspec.structs.replace(
                key, rotated_at=now, overlap_until=now + overlap_s, expires_at=ends_at or key.expires_at
            )
            self._note(connection, who, "key rotate", key_id)
            # Who comes with the old text has lost the newer one: it is the old one that must stay good.
            keep = who.outdated and who.key_id == key_id
            return NewKey(key=store.rotate_key(connection, changed, text, keep_previous=keep), text=text)

        self._remembered.clear()
        return await self._database.write(rotate)

    async def keys(self, who: Principal) -> tuple[Key, ...]:
        """Return one's own keys; an admin of every project sees all."""
        of = None if may(who, Action.MEMBERS, EVERY_PROJECT) else who.user_id
        return await self._database.read(lambda connection: store.read_keys(connection, of))

    async def revoke_key(self, who: Principal, key_id: str, *, keep_children: bool = False) -> Key:
        """End a key and all made with it; one that has ended stays so."""
        if key_id != who.key_id:
            keys.require_may_mint(who)
        now = self._clock()
        await self._require_mine(who, key_id)

        def revoke(connection: Connection) -> Key:
            if keep_children:
                store.adopt_children(connection, key_id, who.key_id)
            self._note(connection, who, "key revoke", key_id, detail="children kept" if keep_children else "")
            return store.revoke_key(connection, key_id, now)

        self._remembered.clear()
        return await self._database.write(revoke)

    async def _require_mine(self, who: Principal, key_id: str) -> None:
        if key_id not in {key.id for key in await self.keys(who)}:
            raise NotFoundError(f"There is no key {key_id} of yours.", remedy="List them: yunhe token ls.")

    async def set_secret(self, who: Principal, project_id: ProjectId, name: str, value: str) -> SecretInfo:
        """Keep a secret, encrypted."""
        _check_secret(name, value)
        now = self._clock()

        def keep(connection: Connection) -> SecretInfo:
            store.require_project(connection, project_id)
            _require_room(store.read_secrets(connection, project_id), name)
            info = SecretInfo(name=name, project_id=project_id, updated_at=now, updated_by=who.name)
            store.write_secret(connection, info, self._vault.seal(value, *secret_place(project_id, name)))
            self._note(connection, who, "secret set", name, project_id)
            return info

        return await self._database.write(keep)

    async def secrets(self, who: Principal, project_id: ProjectId) -> tuple[SecretInfo, ...]:
        """Return the names of a project's secrets."""
        return await self._database.read(lambda connection: store.read_secrets(connection, project_id))

    async def delete_secret(self, who: Principal, project_id: ProjectId, name: str) -> None:
        """Forget a secret; one that is not there stays so."""

        def forget(connection: Connection) -> None:
            store.delete_secret(connection, project_id, name)
            self._note(connection, who, "secret delete", name, project_id)

        await self._database.write(forget)

    async def sealed_secrets(self, project_id: ProjectId, names: tuple[str, ...]) -> dict[str, str]:
        """Return the secrets still encrypted."""
        found = await self._database.read(lambda c: store.sealed_secrets(c, project_id, names))
        missing = [name for name in names if name not in found]
        if missing:
            raise InvalidInputError(
                f"Project {project_id} has no secret {', '.join(missing)}.",
                remedy=f"Set it first: yunhe secret set {missing[0]} --project {project_id}.",
                fields=tuple(
                    FieldProblem("secrets", "is not a secret of the project", name) for name in missing
                ),
            )
        return found

    async def audit(self, who: Principal, *, cursor: str | None = None, limit: int = 50) -> AuditPage:
        """Return the audit log, newest first."""
        before = _cursor(cursor) if cursor else None
        found = await self._database.read(lambda c: store.read_audit(c, before, limit + 1))
        entries = found[:limit]
        return AuditPage(entries=entries, next_cursor=str(entries[-1].seq) if len(found) > limit else None)

    async def audit_lines(self) -> AsyncIterator[AuditLine]:
        """Yield the audit log by the places of its lines in the chain."""
        after = 0
        while page := await self._database.read(lambda c, a=after: store.read_chain(c, a, _EXPORT_PAGE)):
            for line in page:
                yield line
            after = page[-1].number

    def _note(  # noqa: PLR0913 - one for each column
        self,
        connection: Connection,
        who: Principal,
        action: str,
        subject: str,
        project_id: str = "",
        *,
        outcome: str = "done",
        detail: str = "",
    ) -> None:
        by = audit.Actor(who.name, who.key_id)
        audit.append(
            connection,
            by,
            self._clock(),
            action,
            subject,
            project_id=project_id,
            outcome=outcome,
            detail=detail,
        )


def _look_up(connection: Connection, digest: str, now: float) -> tuple[Principal | None, str | None, str]:
    """Return who holds a key, its ID if its last use is to be noted, and why it opens nothing."""
    found = store.key_and_holder(connection, digest)
    if found is None:
        return None, None, "The key is not known."
    key, holder = found
    ended = _why_ended(key, now)
    if ended or (holder.outdated and (key.overlap_until or 0.0) <= now):
        return holder, None, ended or "The key has been rotated, and this is its old text."
    ancestors = store.ancestors(connection, key.parent_id)
    if any(_why_ended(one, now) for one in ancestors):
        return holder, None, "The key that this one was made with has ended."
    ends = [one.expires_at for one in (key, *ancestors) if one.expires_at is not None]
    ends += [key.overlap_until] if holder.outdated and key.overlap_until is not None else []
    principal = msgspec.structs.replace(
        holder,
        memberships=keys.narrowed(holder.memberships, key.scope),
        scope=key.scope,
        key_expires_at=min(ends, default=None),
    )
    stale = key.last_used_at is None or key.last_used_at < now - _USED_RESOLUTION_S
    return principal, key.id if stale else None, ""


def _why_ended(key: Key, now: float) -> str:
    if key.revoked_at is not None:
        return "The key has been revoked."
    return "The key has expired." if key.expires_at is not None and key.expires_at <= now else ""


def _check_name(field: str, name: str) -> None:
    if _NAME.fullmatch(name) is None:
        raise InvalidInputError(
            f"{name!r} cannot be a {field}.",
            remedy="Use up to 64 lower-case letters, digits, '.', '_' and '-', beginning and ending with a letter or digit.",
            fields=(FieldProblem(field, "is not a valid name", name),),
        )


def _check_secret(name: str, value: str) -> None:
    if _ENVIRONMENT_NAME.fullmatch(name) is None:
        raise InvalidInputError(
            f"{name!r} cannot name a secret: jobs find it in their environment.",
            remedy="Use letters, digits and '_', not beginning with a digit.",
            fields=(FieldProblem("name", "is not a valid environment name", name),),
        )
    if not value or len(value.encode()) > SECRET_LIMIT_BYTES or "\0" in value:
        raise InvalidInputError(
            f"A secret has between 1 and {SECRET_LIMIT_BYTES} bytes and no NUL.",
            fields=(FieldProblem("value", "has a length or a byte that is not allowed"),),
        )


def _require_room(there: tuple[SecretInfo, ...], name: str) -> None:
    if len(there) >= MOST_SECRETS and name not in {secret.name for secret in there}:
        raise ConflictError(
            f"The project has {len(there)} secrets, as many as a project may have.",
            remedy="Delete those that nobody uses: yunhe secret rm NAME.",
        )


def _cursor(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise InvalidInputError(
            "The cursor is not one of ours.",
            remedy="Use next_cursor of the page before.",
            fields=(FieldProblem("cursor", "is not a cursor", text),),
        ) from None
