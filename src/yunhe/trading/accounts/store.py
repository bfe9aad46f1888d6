"""Tables of accounts."""

import hashlib
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from yunhe.kernel.ids import ProjectId, UserId
from yunhe.storage.database import AnyRow, insert_if_missing, metadata
from yunhe.trading.accounts.model import (
    AuditEntry,
    Key,
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


def digest_of(key_text: str) -> str:
    """Return what is kept of a key: keys are long and random, so one fast hash is enough."""
    return hashlib.sha256(key_text.encode()).hexdigest()


def ensure(connection: Connection, table: sa.Table, found: sa.ColumnElement[bool], **values: Any) -> AnyRow:
    """Return the row that matches *found*, inserting *values* when there is none."""
    insert_if_missing(connection, table, **values)
    return connection.execute(sa.select(table).where(found)).one()


def principal_of(connection: Connection, key: AnyRow) -> Principal:
    """Return who holds a key, with every membership."""
    user = connection.execute(sa.select(USERS).where(USERS.c.id == key.user_id)).one()
    memberships = connection.execute(sa.select(MEMBERS).where(MEMBERS.c.user_id == key.user_id))
    return Principal(
        user_id=UserId(user.id),
        name=user.name,
        key_id=key.id,
        memberships=tuple(Membership(ProjectId(m.project_id), Role(m.role)) for m in memberships),
    )


def to_project(row: AnyRow) -> Project:
    """Return the project of a row."""
    return Project(id=ProjectId(row.id), created_at=row.created_at)


def to_key(row: AnyRow, user: str = "") -> Key:
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
    )


def to_member(row: AnyRow) -> Member:
    """Return the member of a row that joins user and membership."""
    return Member(user_id=UserId(row.user_id), name=row.name, role=Role(row.role))


def to_secret(row: AnyRow) -> SecretInfo:
    """Return what may be shown of a secret."""
    return SecretInfo(
        name=row.name,
        project_id=ProjectId(row.project_id),
        updated_at=row.updated_at,
        updated_by=row.updated_by,
    )


def to_audit(row: AnyRow) -> AuditEntry:
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
