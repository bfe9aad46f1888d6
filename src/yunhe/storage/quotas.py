"""Quotas: what each project has used, and the most it may; counted in the transaction that uses it.

Bytes are counters that change with what they count. Jobs are counted where they are kept, under the lock of their project.
"""

from collections.abc import Iterable
from functools import cache
from typing import Any

import msgspec
import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import Connection

from yunhe.kernel.quotas import NO_LIMIT, QuotaLimits, QuotaName, refusal
from yunhe.storage.database import insert_if_missing, metadata

DAY_S = 86400.0
_LOCK = 0x59554E51

SETTINGS = sa.Table(
    "project_setting",
    metadata,
    sa.Column("project_id", sa.String(64), primary_key=True),
    sa.Column("limits", sa.Text, nullable=False, server_default="{}"),  # its own, by name
    sa.Column("egress", sa.Text, nullable=False, server_default="null"),
)
USES = sa.Table(
    "project_use",
    metadata,
    sa.Column("project_id", sa.String(64), primary_key=True),
    sa.Column("name", sa.String(32), primary_key=True),
    sa.Column("period", sa.Integer, nullable=False, server_default="0"),  # of a quota by the day, the day
    sa.Column("used", sa.BigInteger, nullable=False),
)


class ProjectSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What an administrator has set for a project."""

    limits: dict[QuotaName, int] = {}
    """In place of the defaults; -1: no limit."""
    egress: tuple[str, ...] | None = None
    """Where its tasks may connect to: None: as by default; empty: nowhere; else these blocks of addresses alone."""


class QuotaBook:
    """Reads limits and counts use; *defaults* hold for projects that have none of their own."""

    def __init__(self, defaults: QuotaLimits = QuotaLimits()) -> None:  # noqa: B008 - frozen
        self.defaults = defaults

    def limits(self, connection: Connection, project_id: str) -> QuotaLimits:
        """Return the limits of a project."""
        return self.defaults.over(read_settings(connection, project_id).limits)

    def charge(
        self, connection: Connection, project_id: str, name: QuotaName, amount: int, period: int = 0
    ) -> None:
        """Count *amount* more of a project; raise ``QuotaExceededError`` when that is over its limit.

        Whoever raises it ends the transaction, and what was counted goes with it.
        """
        if not project_id:
            return
        used = _add(connection, project_id, name, amount, period)
        limit = self.limits(connection, project_id).of(name)
        if used > limit != NO_LIMIT:
            raise refusal(name, project_id, used=used - amount, asked=amount, limit=limit)

    def charge_if_room(self, connection: Connection, project_id: str, name: QuotaName, amount: int) -> bool:
        """Count *amount* more of a project if its limit allows; return whether it does."""
        limit = self.limits(connection, project_id).of(name)
        if limit != NO_LIMIT and _add(connection, project_id, name, amount) > limit:
            refund(connection, project_id, name, amount)
            return False
        if limit == NO_LIMIT:
            _add(connection, project_id, name, amount)
        return True

    def limited(self, connection: Connection, name: QuotaName) -> dict[str, int]:
        """Return the limits of the projects that have one of their own."""
        rows = connection.execute(sa.select(SETTINGS.c.project_id, SETTINGS.c.limits))
        found = {row.project_id: _LIMITS.decode(row.limits).get(name) for row in rows}
        return {project_id: limit for project_id, limit in found.items() if limit is not None}


_LIMITS = msgspec.json.Decoder(dict[QuotaName, int])
_EGRESS = msgspec.json.Decoder(tuple[str, ...] | None)


def day_of(now: float) -> int:
    """Return the day of a moment, by UTC."""
    return int(now // DAY_S)


def lock_projects(connection: Connection, projects: Iterable[str]) -> None:
    """Let no other process count jobs of these projects until this transaction ends; SQLite has one writer anyway."""
    if connection.dialect.name == "postgresql":
        for project_id in sorted(set(projects)):
            connection.execute(
                sa.select(sa.func.pg_advisory_xact_lock(sa.literal(_LOCK), sa.func.hashtext(project_id)))
            )


def refund(connection: Connection, project_id: str, name: QuotaName, amount: int) -> None:
    """Count *amount* less of a project."""
    if project_id and amount:
        mine = (USES.c.project_id == project_id) & (USES.c.name == name)
        connection.execute(USES.update().where(mine).values(used=USES.c.used - amount))


def read_uses(connection: Connection, project_id: str, day: int) -> dict[QuotaName, int]:
    """Return what is counted of a project; of a quota by the day, for *day*."""
    rows = connection.execute(sa.select(USES).where(USES.c.project_id == project_id))
    return {QuotaName(row.name): row.used for row in rows if row.period in (0, day)}


def read_settings(connection: Connection, project_id: str) -> ProjectSettings:
    """Return what is set for a project."""
    row = connection.execute(sa.select(SETTINGS).where(SETTINGS.c.project_id == project_id)).first()
    if row is None:
        return ProjectSettings()
    return ProjectSettings(limits=_LIMITS.decode(row.limits), egress=_EGRESS.decode(row.egress))


def write_settings(connection: Connection, project_id: str, settings: ProjectSettings) -> None:
    """Keep what is set for a project."""
    values = {
        "limits": msgspec.json.encode(settings.limits).decode(),
        "egress": msgspec.json.encode(settings.egress).decode(),
    }
    if not insert_if_missing(connection, SETTINGS, project_id=project_id, **values):
        connection.execute(SETTINGS.update().where(SETTINGS.c.project_id == project_id).values(**values))


def _add(connection: Connection, project_id: str, name: QuotaName, amount: int, period: int = 0) -> int:
    row = {"project_id": project_id, "name": name.value, "period": period, "used": amount}
    return connection.execute(_upsert(connection.dialect.name), row).scalar_one()


@cache
def _upsert(dialect_name: str) -> Any:
    """Return the statement that counts and answers; others who count the same wait until the transaction ends."""
    dialect = postgresql if dialect_name == "postgresql" else sqlite
    new = dialect.insert(USES)
    same = USES.c.period == new.excluded.period
    used = sa.case((same, USES.c.used + new.excluded.used), else_=new.excluded.used)
    changed = {"used": used, "period": new.excluded.period}
    return new.on_conflict_do_update(index_elements=["project_id", "name"], set_=changed).returning(
        USES.c.used
    )
