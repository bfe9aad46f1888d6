"""Tables of accounts."""

import hashlib
from collections.abc import Iterable
from typing import Any

import msgspec
import sqlalchemy as sa

from yunhe.kernel.errors import NotFoundError
from yunhe.kernel.ids import ProjectId, UserId, new_id
from yunhe.kernel.validation import nearest
from yunhe.storage import audit
from yunhe.storage.database import AnyRow, Connection, insert_if_missing, metadata
from yunhe.storage.resealing import SealedColumn
from yunhe.storage.vault import secret_place
from yunhe.trading.accounts.model import (
    EVERY_PROJECT,
    AuditEntry,
    AuditLine,
    Key,
    KeyScope,
    Member,
    Membership,
    Principal,
    Project,
    Role,
    SecretInfo,
)

PROJECTS = sa.Table(
    "account_project",
    metadata,
    sa.Column("id", sa.String(64), primary_key=True),
    sa.Column("created_at", sa.Float, nullable=False),
)
USERS = sa.Table(
    "account_user",
    metadata,
    sa.Column("id", sa.String(40), primary_key=True),
    sa.Column("name", sa.String(64), nullable=False, unique=True),
    sa.Column("created_at", sa.Float, nullable=False),
)
MEMBERS = sa.Table(
    "account_member",
    metadata,
    sa.Column("project_id", sa.String(64), primary_key=True),
    sa.Column("user_id", sa.ForeignKey("account_user.id"), primary_key=True),
    sa.Column("role", sa.String(16), nullable=False),
)
KEYS = sa.Table(
    "account_key",
    metadata,
    sa.Column("id", sa.String(40), primary_key=True),
    sa.Column("user_id", sa.ForeignKey("account_user.id"), nullable=False, index=True),
    sa.Column("name", sa.String(64), nullable=False),
    sa.Column("digest", sa.String(64), nullable=False, unique=True),
    sa.Column("created_at", sa.Float, nullable=False),
    sa.Column("expires_at", sa.Float),
    sa.Column("revoked_at", sa.Float),
    sa.Column("last_used_at", sa.Float),
    sa.Column("parent_id", sa.String(40), nullable=False, server_default="", index=True),
    sa.Column("scope", sa.Text, nullable=False, server_default="{}"),
    sa.Column("rotated_at", sa.Float),
    sa.Column("previous_digest", sa.String(64), unique=True, index=True),
    sa.Column("overlap_until", sa.Float),
)
SECRETS = sa.Table(
    "account_secret",
    metadata,
    sa.Column("project_id", sa.String(64), primary_key=True),
    sa.Column("name", sa.String(128), primary_key=True),
    sa.Column("sealed", sa.Text, nullable=False),
    sa.Column("updated_at", sa.Float, nullable=False),
    sa.Column("updated_by", sa.String(64), nullable=False),
)
SEALED = SealedColumn(
    "secret",
    SECRETS,
    "sealed",
    lambda vault, row: vault.renew(row.sealed, *secret_place(row.project_id, row.name)),
)


def digest_of(key_text: str) -> str:
    """Return what is kept of a key: keys are long and random, so one fast hash is enough."""
    return hashlib.sha256(key_text.encode()).hexdigest()


def ensure_project(connection: Connection, project_id: ProjectId, now: float) -> Project:
    """Return a project, made when there is none of that name."""
    return _to_project(
        _ensure(connection, PROJECTS, PROJECTS.c.id == project_id, id=project_id, created_at=now)
    )


def ensure_user(connection: Connection, name: str, now: float) -> UserId:
    """Return a user's ID, made when there is none of that name."""
    found = _ensure(
        connection, USERS, USERS.c.name == name, id=new_id("user", now), name=name, created_at=now
    )
    return UserId(found.id)


def _ensure(connection: Connection, table: sa.Table, found: sa.ColumnElement[bool], **values: Any) -> AnyRow:
    """Return the row that matches *found*, inserting *values* when there is none."""
    insert_if_missing(connection, table, **values)
    return connection.execute(sa.select(table).where(found)).one()


def require_project(connection: Connection, project_id: ProjectId) -> None:
    """Raise ``NotFoundError`` unless the project exists."""
    known = connection.scalar(sa.select(PROJECTS.c.id).where(PROJECTS.c.id == project_id))
    if known is None and project_id != EVERY_PROJECT:
        meant = nearest(project_id, list(connection.scalars(sa.select(PROJECTS.c.id))))
        hint = f"Did you mean {meant}? Or make it" if meant else "Make it"
        raise NotFoundError(
            f"There is no project {project_id}.", remedy=f"{hint} first: yunhe project create {project_id}."
        )


def read_projects(connection: Connection, which: tuple[ProjectId, ...] | None) -> tuple[Project, ...]:
    """Return projects by name; None: every one."""
    query = sa.select(PROJECTS).order_by(PROJECTS.c.id)
    if which is not None:
        query = query.where(PROJECTS.c.id.in_(which))
    return tuple(_to_project(row) for row in connection.execute(query))


def has_users(connection: Connection) -> bool:
    """Return whether anybody is known yet."""
    return connection.scalar(sa.select(USERS.c.id).limit(1)) is not None


def user_id(connection: Connection, name: str) -> UserId:
    """Return a user's ID, or raise ``NotFoundError``."""
    found = connection.scalar(sa.select(USERS.c.id).where(USERS.c.name == name))
    if found is None:
        raise NotFoundError(
            f"There is no user {name}.",
            remedy="Add them to a project first: yunhe project add PROJECT USER --role ROLE.",
        )
    return UserId(found)


def set_role(connection: Connection, project_id: ProjectId, user: UserId, role: Role) -> None:
    """Give a user a role in a project in place of the one they had."""
    connection.execute(MEMBERS.delete().where(MEMBERS.c.project_id == project_id, MEMBERS.c.user_id == user))
    connection.execute(MEMBERS.insert().values(project_id=project_id, user_id=user, role=role))


def remove_role(connection: Connection, project_id: ProjectId, user: str) -> None:
    """Take a user out of a project."""
    ids = sa.select(USERS.c.id).where(USERS.c.name == user)
    connection.execute(MEMBERS.delete().where(MEMBERS.c.project_id == project_id, MEMBERS.c.user_id.in_(ids)))


def read_members(connection: Connection, project_id: ProjectId) -> tuple[Member, ...]:
    """Return who belongs to a project, by name."""
    rows = connection.execute(
        sa.select(MEMBERS.c.user_id, MEMBERS.c.role, USERS.c.name)
        .join(USERS, USERS.c.id == MEMBERS.c.user_id)
        .where(MEMBERS.c.project_id == project_id)
        .order_by(USERS.c.name)
    )
    return tuple(_to_member(row) for row in rows)


def insert_key(connection: Connection, key: Key, text: str) -> None:
    """Keep a new key; of its text only the digest."""
    connection.execute(
        KEYS.insert().values(
            id=key.id,
            user_id=key.user_id,
            name=key.name,
            digest=digest_of(text),
            created_at=key.created_at,
            expires_at=key.expires_at,
            parent_id=key.parent_id,
            scope=msgspec.json.encode(key.scope).decode(),
        )
    )


def key_and_holder(connection: Connection, digest: str) -> tuple[Key, Principal] | None:
    """Return the key with this digest and who holds it; None when it is not known."""
    either = sa.or_(KEYS.c.digest == digest, KEYS.c.previous_digest == digest)
    row = connection.execute(sa.select(KEYS).where(either)).first()
    if row is None:
        return None
    holder = _holder(connection, row)
    return _to_key(row), msgspec.structs.replace(holder, outdated=row.digest != digest)


def ancestors(connection: Connection, key_id: str) -> list[Key]:
    """Return the key *key_id* and those it came from, nearest first; none for a key that came from none."""
    line: list[Key] = []
    while key_id:
        row = connection.execute(sa.select(KEYS).where(KEYS.c.id == key_id)).one()
        line.append(_to_key(row))
        key_id = row.parent_id
    return line


def parent_of(connection: Connection, key_id: str) -> str:
    """Return the ID of the key that a key was made with; empty: none."""
    return connection.scalar(sa.select(KEYS.c.parent_id).where(KEYS.c.id == key_id)) or ""


def count_keys(connection: Connection, user: UserId, now: float) -> tuple[int, int]:
    """Return how many keys of a user are valid, and how many were made within the last hour."""
    own = sa.select(sa.func.count()).select_from(KEYS).where(KEYS.c.user_id == user)
    unexpired = sa.or_(KEYS.c.expires_at.is_(None), KEYS.c.expires_at > now)
    live = connection.scalar(own.where(KEYS.c.revoked_at.is_(None), unexpired))
    return live or 0, connection.scalar(own.where(KEYS.c.created_at > now - 3600)) or 0


def rotate_key(connection: Connection, key: Key, text: str, *, keep_previous: bool) -> Key:
    """Give a key another text; the one of before stays good until ``overlap_until``, or the one before that."""
    row = connection.execute(sa.select(KEYS).where(KEYS.c.id == key.id)).one()
    connection.execute(
        KEYS.update()
        .where(KEYS.c.id == key.id)
        .values(
            digest=digest_of(text),
            previous_digest=row.previous_digest if keep_previous else row.digest,
            rotated_at=key.rotated_at,
            overlap_until=key.overlap_until,
            expires_at=key.expires_at,
        )
    )
    return read_key(connection, key.id)


def read_key(connection: Connection, key_id: str) -> Key:
    """Return one key."""
    return _to_key(connection.execute(sa.select(KEYS).where(KEYS.c.id == key_id)).one())


def note_use(connection: Connection, key_id: str, now: float) -> None:
    """Note when a key was last used."""
    connection.execute(KEYS.update().where(KEYS.c.id == key_id).values(last_used_at=now))


def read_keys(connection: Connection, of: UserId | None) -> tuple[Key, ...]:
    """Return the keys of a user, the oldest first; None: of everybody."""
    query = (
        sa.select(KEYS, USERS.c.name.label("user_name"))
        .join(USERS, USERS.c.id == KEYS.c.user_id)
        .order_by(KEYS.c.created_at)
    )
    if of is not None:
        query = query.where(KEYS.c.user_id == of)
    return tuple(_to_key(row, row.user_name) for row in connection.execute(query))


def revoke_key(connection: Connection, key_id: str, now: float) -> Key:
    """End a key and all that came from it, and return it; one that has ended keeps its end."""
    ending = {key_id}
    while ending:
        live = KEYS.c.revoked_at.is_(None)
        connection.execute(KEYS.update().where(KEYS.c.id.in_(ending), live).values(revoked_at=now))
        ending = set(connection.scalars(sa.select(KEYS.c.id).where(KEYS.c.parent_id.in_(ending), live)))
    return read_key(connection, key_id)


def forget_keys(connection: Connection, before: float) -> int:
    """Drop keys that ended before a moment, those made with them first; return how many."""
    children = KEYS.alias()
    ended = sa.or_(KEYS.c.revoked_at < before, KEYS.c.expires_at < before)
    childless = ~sa.exists().where(children.c.parent_id == KEYS.c.id)
    return connection.execute(KEYS.delete().where(ended, childless)).rowcount


def adopt_children(connection: Connection, key_id: str, parent_id: str) -> None:
    """Let the keys that were made with one key have come from another."""
    connection.execute(KEYS.update().where(KEYS.c.parent_id == key_id).values(parent_id=parent_id))


def write_secret(connection: Connection, info: SecretInfo, sealed: str) -> None:
    """Keep a secret in place of the one that had its name."""
    delete_secret(connection, info.project_id, info.name)
    connection.execute(
        SECRETS.insert().values(
            project_id=info.project_id,
            name=info.name,
            sealed=sealed,
            updated_at=info.updated_at,
            updated_by=info.updated_by,
        )
    )


def read_secrets(connection: Connection, project_id: ProjectId) -> tuple[SecretInfo, ...]:
    """Return what may be shown of a project's secrets, by name."""
    query = sa.select(SECRETS).where(SECRETS.c.project_id == project_id).order_by(SECRETS.c.name)
    return tuple(_to_secret(row) for row in connection.execute(query))


def sealed_secrets(connection: Connection, project_id: ProjectId, names: Iterable[str]) -> dict[str, str]:
    """Return those of a project's secrets that are there, still encrypted."""
    query = sa.select(SECRETS.c.name, SECRETS.c.sealed).where(
        SECRETS.c.project_id == project_id, SECRETS.c.name.in_(list(names))
    )
    return {row.name: row.sealed for row in connection.execute(query)}


def delete_secret(connection: Connection, project_id: ProjectId, name: str) -> None:
    """Forget a secret."""
    connection.execute(SECRETS.delete().where(SECRETS.c.project_id == project_id, SECRETS.c.name == name))


def read_audit(connection: Connection, before: int | None, limit: int) -> tuple[AuditEntry, ...]:
    """Return lines of the audit log below number *before*, newest first."""
    query = sa.select(audit.LOG).order_by(audit.LOG.c.seq.desc()).limit(limit)
    if before is not None:
        query = query.where(audit.LOG.c.seq < before)
    return tuple(_to_audit(row) for row in connection.execute(query))


def read_chain(connection: Connection, after: int, limit: int) -> list[AuditLine]:
    """Return lines of the audit log by their place in the chain."""
    log, chain = audit.LOG, audit.CHAIN
    sealed = sa.select(log, chain.c.number, chain.c.previous, chain.c.hash).join(
        chain, chain.c.seq == log.c.seq
    )
    rows = connection.execute(sealed.where(chain.c.number > after).order_by(chain.c.number).limit(limit))
    fields = AuditLine.__struct_fields__
    return [AuditLine(**{name: getattr(row, name) for name in fields}) for row in rows]


def _holder(connection: Connection, key: AnyRow) -> Principal:
    """Return who holds a key, with every membership."""
    user = connection.execute(sa.select(USERS).where(USERS.c.id == key.user_id)).one()
    memberships = connection.execute(sa.select(MEMBERS).where(MEMBERS.c.user_id == key.user_id))
    return Principal(
        user_id=UserId(user.id),
        name=user.name,
        key_id=key.id,
        memberships=tuple(Membership(ProjectId(m.project_id), Role(m.role)) for m in memberships),
    )


def _to_project(row: AnyRow) -> Project:
    """Return the project of a row."""
    return Project(id=ProjectId(row.id), created_at=row.created_at)


def _to_key(row: AnyRow, user: str = "") -> Key:
    """Return the key of a row, without its digest."""
    return Key(
        id=row.id,
        user_id=UserId(row.user_id),
        user=user,
        name=row.name,
        created_at=row.created_at,
        expires_at=row.expires_at,
        revoked_at=row.revoked_at,
        last_used_at=row.last_used_at,
        parent_id=row.parent_id,
        scope=msgspec.json.decode(row.scope, type=KeyScope),
        rotated_at=row.rotated_at,
        overlap_until=row.overlap_until,
    )


def _to_member(row: AnyRow) -> Member:
    """Return the member of a row that joins user and membership."""
    return Member(user_id=UserId(row.user_id), name=row.name, role=Role(row.role))


def _to_secret(row: AnyRow) -> SecretInfo:
    """Return what may be shown of a secret."""
    return SecretInfo(
        name=row.name,
        project_id=ProjectId(row.project_id),
        updated_at=row.updated_at,
        updated_by=row.updated_by,
    )


def _to_audit(row: AnyRow) -> AuditEntry:
    """Return the audit entry of a row."""
    return AuditEntry(
        seq=row.seq,
        at=row.at,
        user=row.user,
        key_id=row.key_id,
        action=row.action,
        subject=row.subject,
        project_id=row.project_id,
        outcome=row.outcome,
        detail=row.detail,
    )
