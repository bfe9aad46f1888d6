"""What was used and is owed: sums over the ledger by job, project or pool, a page of them at a time."""

from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from yunhe.kernel.errors import FieldProblem, InvalidInputError
from yunhe.storage.database import AnyRow
from yunhe.trading.trades.bill import DEFAULT_CURRENCY
from yunhe.trading.trades.model import CostLine, CostQuery, CostReport
from yunhe.trading.trades.store import LEDGER, last_line

_GROUPS: dict[str, str] = {"job": "job_id", "project": "project_id", "pool": "pool_id"}

_DIGITS = 18
"""More than any ledger's length has; a longer number would not fit the database."""

_USED = (LEDGER.c.cpu_us, LEDGER.c.memory_mib_ms, LEDGER.c.io_bytes, LEDGER.c.network_bytes)
_MONEY = (LEDGER.c.amount_micros, LEDGER.c.reserved_micros)


def report(connection: Connection, query: CostQuery) -> CostReport:
    """Return a page of costs, and what all pages come to.

    Every page is of the ledger as it was when the first was asked for. It only grows, so that its length then is all
    that has to be remembered; a job that is billed meanwhile is neither missed nor told twice.
    """
    key = _key(query)
    if query.cursor is None:
        length, before = last_line(connection)[0], None
    else:
        length, before = _read_cursor(query.cursor)
    chosen = _chosen(query, length)
    total = connection.execute(
        sa.select(sa.func.count(sa.distinct(key)), *_sums(_MONEY)).where(*chosen)
    ).one()
    rows = connection.execute(_page(key, chosen, before, query.limit + 1)).all()
    page = rows[: query.limit]
    return CostReport(
        by=query.by,
        lines=tuple(_line(row) for row in page),
        count=total[0],
        amount_micros=int(total.amount_micros or 0),
        reserved_micros=int(total.reserved_micros or 0),
        currency=DEFAULT_CURRENCY,
        next_cursor=f"{length}.{page[-1].newest}" if len(rows) > len(page) else None,
    )


def _key(query: CostQuery) -> sa.Column[Any]:
    if query.by not in _GROUPS:
        raise InvalidInputError(
            f"Costs cannot be grouped by {query.by!r}.",
            remedy="Use job, project or pool.",
            fields=(FieldProblem("by", "must be job, project or pool", query.by),),
        )
    return LEDGER.c[_GROUPS[query.by]]


def _read_cursor(text: str) -> tuple[int, int]:
    """Return the length of the ledger that is paged through, and the newest line of the last group told."""
    length, _, newest = text.partition(".")
    if not all(number.isdecimal() and len(number) <= _DIGITS for number in (length, newest)):
        raise InvalidInputError(
            "The cursor is not one of ours.",
            remedy="Use next_cursor of the page before.",
            fields=(FieldProblem("cursor", "is not a cursor", text),),
        )
    return int(length), int(newest)


def _chosen(query: CostQuery, length: int) -> list[sa.ColumnElement[bool]]:
    chosen = [LEDGER.c.seq <= length]
    if query.projects is not None:
        chosen.append(LEDGER.c.project_id.in_(query.projects))
    if query.job_id is not None:
        chosen.append(LEDGER.c.job_id == query.job_id)
    if query.since is not None:
        chosen.append(LEDGER.c.at >= query.since)
    if query.until is not None:
        chosen.append(LEDGER.c.at < query.until)
    return chosen


def _page(
    key: sa.Column[Any], chosen: list[sa.ColumnElement[bool]], before: int | None, limit: int
) -> sa.Select[Any]:
    newest = sa.func.max(LEDGER.c.seq)
    page = sa.select(
        key.label("key"),
        newest.label("newest"),
        sa.func.count().label("entries"),
        sa.func.min(LEDGER.c.tier).label("tier"),
        sa.func.count(sa.distinct(LEDGER.c.tier)).label("tiers"),
        *_sums(_USED),
        *_sums(_MONEY),
    ).where(*chosen)
    if before is not None:
        page = page.having(newest < before)
    return page.group_by(key).order_by(newest.desc()).limit(limit)


def _sums(columns: tuple[sa.Column[Any], ...]) -> list[sa.Label[Any]]:
    return [sa.func.sum(column).label(column.name) for column in columns]


def _line(row: AnyRow) -> CostLine:
    return CostLine(
        key=row.key,
        tier=row.tier if row.tiers == 1 else "mixed",
        entries=row.entries,
        cpu_us=int(row.cpu_us),
        memory_mib_ms=int(row.memory_mib_ms),
        io_bytes=int(row.io_bytes),
        network_bytes=None if row.network_bytes is None else int(row.network_bytes),
        amount_micros=int(row.amount_micros),
        reserved_micros=int(row.reserved_micros),
        currency=DEFAULT_CURRENCY,
    )
