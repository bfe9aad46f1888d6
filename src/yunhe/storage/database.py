"""One database, SQLite or PostgreSQL, spoken to in short transactions from worker threads.

A transaction is a plain function of a connection: it cannot await, so no call to the outside can sneak into it, and
the same code serves both databases at the cost of one thread hop per transaction.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import anyio
import anyio.to_thread
import sqlalchemy as sa
from sqlalchemy import event, exc
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import Connection, Engine

from yunhe.kernel.errors import DiskFullError

T = TypeVar("T")
Transaction = Callable[[Connection], T]
AnyRow = Any
"""A row of a Core query: its columns have no static types."""

metadata = sa.MetaData(
    naming_convention={
        "pk": "pk_%(table_name)s",
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
    }
)

BUSY_TIMEOUT_MS = 20_000
IDLE_IN_TRANSACTION_MS = 10_000
POSTGRES_CONNECTIONS = 10
SQLITE_READERS = 4
_RETRYABLE_SQLSTATES = {"40001", "40P01"}
_ATTEMPTS = 5


class Database:
    """Runs transactions; reads may overlap, on SQLite writes queue."""

    def __init__(self, url: str) -> None:
        self.is_sqlite = url.startswith("sqlite")
        self.engine = _sqlite_engine(url) if self.is_sqlite else _postgres_engine(url)
        self._writers = anyio.CapacityLimiter(1 if self.is_sqlite else POSTGRES_CONNECTIONS)
        self._readers = anyio.CapacityLimiter(SQLITE_READERS if self.is_sqlite else POSTGRES_CONNECTIONS)

    async def read(self, transaction: Transaction[T]) -> T:
        """Run a transaction that changes nothing."""
        return await anyio.to_thread.run_sync(self._run, transaction, False, limiter=self._readers)

    async def write(self, transaction: Transaction[T]) -> T:
        """Run a transaction that may change rows: whole or not at all; repeated when the database asks for it."""
        return await anyio.to_thread.run_sync(self._run, transaction, True, limiter=self._writers)

    def _run(self, transaction: Transaction[T], writes: bool) -> T:  # noqa: FBT001 - called positionally by the thread
        for attempt in range(_ATTEMPTS):
            try:
                with self.engine.connect().execution_options(writes=writes) as connection, connection.begin():
                    return transaction(connection)
            except exc.OperationalError as error:
                if _is_full(error):
                    raise DiskFullError(
                        "The database has no room to write.", remedy="Free some space where its files live."
                    ) from error
                if (
                    attempt == _ATTEMPTS - 1
                    or getattr(error.orig, "sqlstate", None) not in _RETRYABLE_SQLSTATES
                ):
                    raise
        raise AssertionError("unreachable: the last attempt returns or raises")

    def close(self) -> None:
        """Close every connection."""
        self.engine.dispose()


def _is_full(error: exc.OperationalError) -> bool:
    return "database or disk is full" in str(error.orig) or getattr(error.orig, "sqlstate", None) == "53100"


def _postgres_engine(url: str) -> Engine:
    url = url.replace("postgresql://", "postgresql+psycopg://", 1).replace(
        "postgres://", "postgresql+psycopg://", 1
    )
    # Our transactions never wait for anybody; one that does belongs to a process that hangs, with its locks.
    options = f"-c idle_in_transaction_session_timeout={IDLE_IN_TRANSACTION_MS}"
    return sa.create_engine(
        url,
        pool_size=POSTGRES_CONNECTIONS,
        max_overflow=POSTGRES_CONNECTIONS,
        pool_pre_ping=True,
        connect_args={"options": options},
    )


def _sqlite_engine(url: str) -> Engine:
    path = Path(url.removeprefix("sqlite:///"))
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    engine = sa.create_engine(url, pool_size=SQLITE_READERS + 1, max_overflow=2)

    def configure(connection: Any, _record: object) -> None:
        connection.isolation_level = None  # we say BEGIN ourselves, below
        connection.execute(f"PRAGMA busy_timeout={BUSY_TIMEOUT_MS}")  # first: the next may have to wait
        connection.execute("PRAGMA journal_mode=WAL")
        # An accepted job survives a power cut, not only kill -9.
        connection.execute("PRAGMA synchronous=FULL")
        connection.execute("PRAGMA foreign_keys=ON")

    def begin(connection: Connection) -> None:
        # A writer that begins as a reader can find the database changed under it; it must begin as a writer.
        writes = connection.get_execution_options().get("writes", True)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    event.listen(engine, "connect", configure)
    event.listen(engine, "begin", begin)
    return engine


def json_column(name: str, **options: Any) -> sa.Column[bytes]:
    """Return a column that holds a msgspec-encoded value."""
    return sa.Column(name, sa.LargeBinary, nullable=False, **options)


def insert_if_missing(connection: Connection, table: sa.Table, **values: Any) -> bool:
    """Insert a row unless its key is taken, whoever else may be inserting it right now; return whether we did."""
    key = next(iter(table.primary_key.columns))
    return (
        connection.execute(_insert_missing(connection, table).values(**values).returning(key)).first()
        is not None
    )


def insert_missing(connection: Connection, table: sa.Table, rows: Sequence[dict[str, Any]]) -> set[str]:
    """Insert those of *rows* whose ``id`` is not taken, whoever else may be inserting them; return their IDs."""
    if not rows:
        return set()
    return set(connection.scalars(_insert_missing(connection, table).returning(table.c.id), rows))


def _insert_missing(connection: Connection, table: sa.Table) -> Any:
    dialect = postgresql if connection.dialect.name == "postgresql" else sqlite
    return dialect.insert(table).on_conflict_do_nothing()
