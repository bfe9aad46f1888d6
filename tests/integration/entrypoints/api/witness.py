"""What a refused request must leave as it was: rows of jobs, pools and ledger, archives, and the file tree."""

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from yunhe.runtime.settings import Settings
from yunhe.storage.database import Database

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
    "chunk",
    "blob_garbage",
)
MOVES_BY_ITSELF = {"seen_at", "lease_owner", "lease_until", "lease_token"}
"""Columns that background work touches whether or not anybody calls."""


def state_of(settings: Settings) -> dict[str, object]:
    """Return every row and file that a refused request could have changed."""
    database = Database(settings.resolved_database_url())
    try:
        with database.engine.connect() as connection:
            rows: dict[str, object] = {table: _rows(connection, table) for table in TABLES}
    finally:
        database.close()
    rows["files"] = sorted(
        str(path)
        for path in settings.home.rglob("*")
        if not path.name.startswith(("yunhe.db", "audit.head", "ledger.head"))  # published behind the answer
        and not (path.is_dir() and settings.home / "files" in (path, path.parent))
    )
    return rows


def _rows(connection: Connection, table: str) -> list[tuple[object, ...]]:
    found = connection.execute(sa.text(f"SELECT * FROM {table} ORDER BY 1, 2"))
    kept = [name for name in found.keys() if name not in MOVES_BY_ITSELF]  # noqa: SIM118 - a call, not a mapping
    return [tuple(getattr(row, name) for name in kept) for row in found]
