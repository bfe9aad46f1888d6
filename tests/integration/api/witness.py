"""What a refused request must leave as it was: rows of jobs, pools and ledger, archives, and the file tree."""

import sqlite3
from pathlib import Path

TABLES = (
    "orchestration_job",
    "orchestration_allocation",
    "orchestration_log",
    "plugin_pool",
    "plugin_node",
    "trade_price",
    "trade_ledger",
    "trade_balance",
    "account_project",
    "account_user",
    "account_member",
    "account_secret",
    "blob",
    "blob_chunk",
)
MOVES_BY_ITSELF = {"seen_at", "lease_owner", "lease_until", "lease_token"}
"""Columns that background work touches whether or not anybody calls."""


def state_of(home: Path) -> dict[str, object]:
    """Return every row and file that a refused request could have changed."""
    with sqlite3.connect(f"file:{home / 'yunhe.db'}?mode=ro", uri=True) as connection:
        connection.row_factory = sqlite3.Row
        rows: dict[str, object] = {table: _rows(connection, table) for table in TABLES}
    connection.close()
    rows["files"] = sorted(str(path) for path in home.rglob("*") if not path.name.startswith("yunhe.db"))
    return rows


def _rows(connection: sqlite3.Connection, table: str) -> list[tuple[object, ...]]:
    found = connection.execute(f"SELECT * FROM {table} ORDER BY 1, 2").fetchall()
    return [tuple(row[name] for name in row.keys() if name not in MOVES_BY_ITSELF) for row in found]  # noqa: SIM118 - Row iterates over values
