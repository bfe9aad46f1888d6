"""Accounts: load, judge by the policy, apply; every change and every denial is audited."""

import re
import secrets as randomness
from collections.abc import Callable
from contextlib import suppress

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from yunhe.kernel.clock import Clock
from yunhe.kernel.errors import (
    DiskFullError,
    FieldProblem,
    ForbiddenError,
    InvalidInputError,
    NotFoundError,
    UnauthenticatedError,
)
from yunhe.kernel.ids import ProjectId, UserId, new_id
from yunhe.kernel.validation import nearest
from yunhe.observability.failpoints import failpoint
from yunhe.storage import audit
from yunhe.storage.database import Database
from yunhe.storage.vault import Vault
from yunhe.trading.accounts import store
from yunhe.trading.accounts.denials import Denials
from yunhe.trading.accounts.model import (
    EVERY_PROJECT,
    Action,
    AuditPage,
    Key,
    Member,
    NewKey,
    Principal,
    Project,
    Role,
    SecretInfo,
)
from yunhe.trading.accounts.policy import NEEDS, may, role_in

KEY_PREFIX = "yk_"
NOBODY = "–"
"""Stands in the audit log for whoever came without a key that is known."""
DEFAULT_PROJECT = ProjectId("default")
SECRET_LIMIT_BYTES = 64 * 1024
_NAME = re.compile(r"[a-z0-9]([a-z0-9._-]{0,62}[a-z0-9])?")
_ENVIRONMENT_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_REMEMBERED_S = 1.0  # how long a key revoked through another process may still open this one
_MOST_REMEMBERED = 10_000
_USED_RESOLUTION_S = 60.0  # how exact last_used_at is; a write per request would be waste


class AccountService:
    """Implements ``Accounts``."""

    def __init__(self, database: Database, vault: Vault, clock: Clock) -> None:
        self._database = database
        self._vault = vault
        self._clock = clock
        self._known_projects: set[ProjectId] = set()
        self._remembered: dict[str, tuple[float, Principal]] = {}
        self._denials = Denials()

    async def bootstrap(self, leave: Callable[[str], None]) -> None:
        """Make the first project, user and key on an empty platform; *leave* puts the key where its owner finds it.

        The key is left before the transaction ends: dying in between leaves a key that opens nothing and is replaced
        at the next start, never a platform that nobody has a key to.
        """
        now = self._clock()

        def first(connection: Connection) -> None:
            # Several processes may start at once: this row lets one of them past, and the others see its user.
            store.ensure(
                connection,
                store.PROJECTS,
                store.PROJECTS.c.id == DEFAULT_PROJECT,
                id=DEFAULT_PROJECT,
                created_at=now,
            )
            if connection.scalar(sa.select(sa.func.count()).select_from(store.USERS)):
                return
            user_id = UserId(new_id("user", now))
            connection.execute(store.USERS.insert().values(id=user_id, name="admin", created_at=now))
            connection.execute(
                store.MEMBERS.insert().values(project_id=EVERY_PROJECT, user_id=user_id, role=Role.ADMIN)
            )
            leave(self._new_key(connection, user_id, "first", None).text)
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

        good_until: list[float] = []

        def look(connection: Connection) -> tuple[Principal | None, str | None, str]:
            key = connection.execute(sa.select(store.KEYS).where(store.KEYS.c.digest == digest)).first()
            if key is None:
                return None, None, "The key is not known."
            holder = store.principal_of(connection, key)
            if key.revoked_at is not None:
                return holder, None, "The key has been revoked."
            if key.expires_at is not None and key.expires_at <= now:
                return holder, None, "The key has expired."
            stale = key.last_used_at is None or key.last_used_at < now - _USED_RESOLUTION_S
            good_until.append(min(now + _REMEMBERED_S, key.expires_at or now + _REMEMBERED_S))
            return holder, key.id if stale else None, ""

        principal, stale_key, problem = await self._database.read(look)
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
        self._remembered[digest] = (good_until[-1], principal)
        return principal

    async def _note_use(self, key_id: str, now: float) -> None:
        """Note when a key was last used; on a full disk that goes unnoted, so that reads go on."""
        used = store.KEYS.update().where(store.KEYS.c.id == key_id).values(last_used_at=now)
        with suppress(DiskFullError):
            await self._database.write(lambda connection: connection.execute(used), uses_reserve=False)

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
        await self._database.write(
            lambda c: self._note(c, who, action, subject, project_id, outcome="denied", detail=detail)
        )
        raise ForbiddenError(
            f"{who.name} may not do this on {where}: it needs the role {NEEDS[action]}.",
            remedy="Ask an admin to give you the role: yunhe project add PROJECT USER --role ROLE.",
        )

    async def visible_projects(self, who: Principal) -> tuple[ProjectId, ...] | None:
        """Return the projects *who* may see; None: every one."""
        if any(m.project_id == EVERY_PROJECT for m in who.memberships):
            return None
        return tuple(m.project_id for m in who.memberships)

    async def require_project(self, project_id: ProjectId) -> None:
        """Raise unless the project exists; one that did stays, for projects are never removed."""
        if project_id not in self._known_projects:
            await self._database.read(lambda connection: self._require_project(connection, project_id))
            self._known_projects.add(project_id)

    async def create_project(self, who: Principal, project_id: ProjectId) -> Project:
        """Make a project; one that exists is returned as it is."""
        await self.authorize(who, Action.MEMBERS, EVERY_PROJECT, project_id)
        _check_name("project", project_id)
        now = self._clock()

        def create(connection: Connection) -> Project:
            row = store.ensure(
                connection, store.PROJECTS, store.PROJECTS.c.id == project_id, id=project_id, created_at=now
            )
            self._note(connection, who, "project create", project_id, project_id)
            return store.to_project(row)

        return await self._database.write(create)

    async def projects(self, who: Principal) -> tuple[Project, ...]:
        """Return the projects *who* may see."""
        visible = await self.visible_projects(who)
        query = sa.select(store.PROJECTS).order_by(store.PROJECTS.c.id)
        if visible is not None:
            query = query.where(store.PROJECTS.c.id.in_(visible))
        rows = await self._database.read(lambda connection: list(connection.execute(query)))
        return tuple(store.to_project(row) for row in rows)

    async def members(self, who: Principal, project_id: ProjectId) -> tuple[Member, ...]:
        """Return who belongs to a project."""
        await self.authorize(who, Action.SEE, project_id, project_id)
        query = (
            sa.select(store.MEMBERS.c.user_id, store.MEMBERS.c.role, store.USERS.c.name)
            .join(store.USERS, store.USERS.c.id == store.MEMBERS.c.user_id)
            .where(store.MEMBERS.c.project_id == project_id)
            .order_by(store.USERS.c.name)
        )
        rows = await self._database.read(lambda connection: list(connection.execute(query)))
        return tuple(store.to_member(row) for row in rows)

    async def set_member(self, who: Principal, project_id: ProjectId, user: str, role: Role) -> Member:
        """Give *user* (made when new) a role in a project."""
        await self.authorize(who, Action.MEMBERS, project_id, user)
        _check_name("user", user)
        now = self._clock()

        def give(connection: Connection) -> Member:
            self._require_project(connection, project_id)
            found = store.ensure(
                connection,
                store.USERS,
                store.USERS.c.name == user,
                id=new_id("user", now),
                name=user,
                created_at=now,
            )
            mine = (store.MEMBERS.c.project_id == project_id) & (store.MEMBERS.c.user_id == found.id)
            connection.execute(store.MEMBERS.delete().where(mine))
            connection.execute(
                store.MEMBERS.insert().values(project_id=project_id, user_id=found.id, role=role)
            )
            self._note(connection, who, "member set", user, project_id, detail=role)
            return Member(user_id=UserId(found.id), name=user, role=role)

        self._remembered.clear()
        return await self._database.write(give)

    async def remove_member(self, who: Principal, project_id: ProjectId, user: str) -> None:
        """Take a user out of a project; one who is not in it stays out."""
        await self.authorize(who, Action.MEMBERS, project_id, user)

        def take(connection: Connection) -> None:
            user_id = connection.scalar(sa.select(store.USERS.c.id).where(store.USERS.c.name == user))
            connection.execute(
                store.MEMBERS.delete().where(
                    store.MEMBERS.c.project_id == project_id, store.MEMBERS.c.user_id == user_id
                )
            )
            self._note(connection, who, "member remove", user, project_id)

        self._remembered.clear()
        await self._database.write(take)

    async def create_key(
        self, who: Principal, name: str, *, user: str = "", expires_in_s: float | None = None
    ) -> NewKey:
        """Make a key for oneself, or as admin for *user*."""
        if user and user != who.name:
            await self.authorize(who, Action.MEMBERS, EVERY_PROJECT, user)
        _check_name("name", name)
        if expires_in_s is not None and expires_in_s <= 0:
            raise InvalidInputError(
                "The key would be expired from the start.",
                remedy="Give a positive duration, such as 30d.",
                fields=(FieldProblem("expires_in_s", "must be positive", str(expires_in_s)),),
            )

        def create(connection: Connection) -> NewKey:
            user_id = who.user_id
            if user and user != who.name:
                user_id = connection.scalar(sa.select(store.USERS.c.id).where(store.USERS.c.name == user))
                if user_id is None:
                    raise NotFoundError(
                        f"There is no user {user}.",
                        remedy="Add them to a project first: yunhe project add PROJECT USER --role ROLE.",
                    )
            new = self._new_key(connection, UserId(user_id), name, expires_in_s)
            self._note(connection, who, "key create", new.key.id, detail=user or who.name)
            return new

        return await self._database.write(create)

    async def keys(self, who: Principal) -> tuple[Key, ...]:
        """Return one's own keys; an admin of every project sees all."""
        query = (
            sa.select(store.KEYS, store.USERS.c.name.label("user_name"))
            .join(store.USERS, store.USERS.c.id == store.KEYS.c.user_id)
            .order_by(store.KEYS.c.created_at)
        )
        if not may(who, Action.MEMBERS, EVERY_PROJECT):
            query = query.where(store.KEYS.c.user_id == who.user_id)
        rows = await self._database.read(lambda connection: list(connection.execute(query)))
        return tuple(store.to_key(row, row.user_name) for row in rows)

    async def revoke_key(self, who: Principal, key_id: str) -> Key:
        """End a key; one that has ended stays so."""
        now = self._clock()
        mine = {key.id for key in await self.keys(who)}
        if key_id not in mine:
            raise NotFoundError(f"There is no key {key_id} of yours.", remedy="List them: yunhe token ls.")

        def revoke(connection: Connection) -> Key:
            connection.execute(
                store.KEYS.update()
                .where(store.KEYS.c.id == key_id, store.KEYS.c.revoked_at.is_(None))
                .values(revoked_at=now)
            )
            self._note(connection, who, "key revoke", key_id)
            return store.to_key(
                connection.execute(sa.select(store.KEYS).where(store.KEYS.c.id == key_id)).one()
            )

        self._remembered.clear()
        return await self._database.write(revoke)

    async def set_secret(self, who: Principal, project_id: ProjectId, name: str, value: str) -> SecretInfo:
        """Keep a secret, encrypted."""
        await self.authorize(who, Action.SECRETS, project_id, name)
        _check_secret(name, value)
        sealed, now = self._vault.seal(value), self._clock()

        def keep(connection: Connection) -> SecretInfo:
            self._require_project(connection, project_id)
            mine = (store.SECRETS.c.project_id == project_id) & (store.SECRETS.c.name == name)
            connection.execute(store.SECRETS.delete().where(mine))
            connection.execute(
                store.SECRETS.insert().values(
                    project_id=project_id, name=name, sealed=sealed, updated_at=now, updated_by=who.name
                )
            )
            self._note(connection, who, "secret set", name, project_id)
            return SecretInfo(name=name, project_id=project_id, updated_at=now, updated_by=who.name)

        return await self._database.write(keep)

    async def secrets(self, who: Principal, project_id: ProjectId) -> tuple[SecretInfo, ...]:
        """Return the names of a project's secrets."""
        await self.authorize(who, Action.SEE, project_id, "secrets")
        query = (
            sa.select(store.SECRETS)
            .where(store.SECRETS.c.project_id == project_id)
            .order_by(store.SECRETS.c.name)
        )
        rows = await self._database.read(lambda connection: list(connection.execute(query)))
        return tuple(store.to_secret(row) for row in rows)

    async def delete_secret(self, who: Principal, project_id: ProjectId, name: str) -> None:
        """Forget a secret; one that is not there stays so."""
        await self.authorize(who, Action.SECRETS, project_id, name)

        def forget(connection: Connection) -> None:
            connection.execute(
                store.SECRETS.delete().where(
                    store.SECRETS.c.project_id == project_id, store.SECRETS.c.name == name
                )
            )
            self._note(connection, who, "secret delete", name, project_id)

        await self._database.write(forget)

    async def sealed_secrets(self, project_id: ProjectId, names: tuple[str, ...]) -> dict[str, str]:
        """Return the secrets still encrypted."""
        query = sa.select(store.SECRETS.c.name, store.SECRETS.c.sealed).where(
            store.SECRETS.c.project_id == project_id, store.SECRETS.c.name.in_(names)
        )
        found = {row.name: row.sealed for row in await self._database.read(lambda c: list(c.execute(query)))}
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
        await self.authorize(who, Action.AUDIT, EVERY_PROJECT, "audit")
        query = sa.select(audit.LOG).order_by(audit.LOG.c.seq.desc()).limit(limit + 1)
        if cursor:
            query = query.where(audit.LOG.c.seq < _cursor(cursor))
        rows = await self._database.read(lambda connection: list(connection.execute(query)))
        entries = tuple(store.to_audit(row) for row in rows[:limit])
        return AuditPage(entries=entries, next_cursor=str(entries[-1].seq) if len(rows) > limit else None)

    def _new_key(
        self, connection: Connection, user_id: UserId, name: str, expires_in_s: float | None
    ) -> NewKey:
        now = self._clock()
        text = KEY_PREFIX + randomness.token_urlsafe(32)
        key = Key(
            id=new_id("key", now),
            user_id=user_id,
            name=name,
            created_at=now,
            expires_at=None if expires_in_s is None else now + expires_in_s,
        )
        connection.execute(
            store.KEYS.insert().values(
                id=key.id,
                user_id=user_id,
                name=name,
                digest=store.digest_of(text),
                created_at=now,
                expires_at=key.expires_at,
            )
        )
        return NewKey(key=key, text=text)

    def _require_project(self, connection: Connection, project_id: ProjectId) -> None:
        known = connection.scalar(sa.select(store.PROJECTS.c.id).where(store.PROJECTS.c.id == project_id))
        if known is None and project_id != EVERY_PROJECT:
            meant = nearest(project_id, list(connection.scalars(sa.select(store.PROJECTS.c.id))))
            hint = f"Did you mean {meant}? Or make it" if meant else "Make it"
            raise NotFoundError(
                f"There is no project {project_id}.",
                remedy=f"{hint} first: yunhe project create {project_id}.",
            )

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


def _cursor(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise InvalidInputError(
            "The cursor is not one of ours.",
            remedy="Use next_cursor of the page before.",
            fields=(FieldProblem("cursor", "is not a cursor", text),),
        ) from None
