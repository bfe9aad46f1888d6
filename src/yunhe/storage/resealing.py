"""Sealing anew what tables hold sealed, a few rows at a time; a row that somebody changes meanwhile stays theirs."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import sqlalchemy as sa

from yunhe.storage.database import AnyRow, Connection
from yunhe.storage.vault import SealBrokenError, Vault

ROWS_AT_ONCE = 200


@dataclass(frozen=True, slots=True)
class SealedColumn:
    """A column with sealed texts, and how one of its values is sealed anew."""

    what: str
    """What it holds, in a word, for reports."""
    table: sa.Table
    column: str
    renew: Callable[[Vault, AnyRow], Any]
    """Returns the value as the key of today seals it; the same value where it did."""
    needs: tuple[str, ...] = ()
    """What it must know of the row beside its primary key."""


class ResealedBatch(NamedTuple):
    """What became of some rows."""

    renewed: int
    changed_meanwhile: int
    broken: list[str]
    """Rows with a text that opens with no key that is here."""
    last: tuple[Any, ...] | None
    """Where to go on; None: these were the last rows."""


def reseal_batch(
    connection: Connection, sealed: SealedColumn, vault: Vault, after: tuple[Any, ...] | None
) -> ResealedBatch:
    """Seal anew some rows, those whose primary key follows *after*."""
    table, column = sealed.table, sealed.table.c[sealed.column]
    keys = list(table.primary_key.columns)
    query = (
        sa.select(*keys, *(table.c[name] for name in sealed.needs), column)
        .order_by(*keys)
        .limit(ROWS_AT_ONCE)
    )
    if after is not None:
        query = query.where(sa.tuple_(*keys) > sa.tuple_(*(sa.literal(value) for value in after)))
    rows, renewed, meanwhile, broken = connection.execute(query).all(), 0, 0, list[str]()
    for row in rows:
        before = getattr(row, sealed.column)
        same_row = [key == value for key, value in zip(keys, row, strict=False)]
        try:
            new = sealed.renew(vault, row)
        except SealBrokenError:
            broken.append(f"{sealed.what} {' '.join(str(value) for value in row[: len(keys)])}")
            continue
        if new != before:
            written = connection.execute(
                table.update().where(*same_row, column == before).values({sealed.column: new})
            )
            renewed += written.rowcount
            meanwhile += 1 - written.rowcount
    last = tuple(rows[-1][: len(keys)]) if len(rows) == ROWS_AT_ONCE else None
    return ResealedBatch(renewed, meanwhile, broken, last)
