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


class _Waiting:
    """A transaction that waits for its turn, and what came of it."""

    def __init__(self, transaction: Transaction[Any]) -> None:
        self.transaction = transaction
        self.done = False
        self.answer: Any = None
        self.error: Exception | None = None


class Database:
    """Runs transactions; reads may overlap, on SQLite writes that come together share a commit."""

    def __init__(self, url: str) -> None:
        self.is_sqlite = url.startswith("sqlite")
        self.engine = _sqlite_engine(url) if self.is_sqlite else _postgres_engine(url)
        self._writers = anyio.CapacityLimiter(1 if self.is_sqlite else POSTGRES_CONNECTIONS)
        self._readers = anyio.CapacityLimiter(SQLITE_READERS if self.is_sqlite else POSTGRES_CONNECTIONS)
        self._turn = anyio.Lock()
        self._waiting: list[_Waiting] = []

    async def read(self, transaction: Transaction[T]) -> T:
        """Run a transaction that changes nothing."""
        return await anyio.to_thread.run_sync(self._run, transaction, False, limiter=self._readers)

    async def write(self, transaction: Transaction[T]) -> T:
        """Run a transaction that may change rows: whole or not at all; repeated when the database asks for it."""
        if self.is_sqlite:
            return await self._write_together(transaction)
        return await anyio.to_thread.run_sync(self._run, transaction, True, limiter=self._writers)

    async def _write_together(self, transaction: Transaction[T]) -> T:
        """Commit with whoever else is waiting: SQLite has one writer, and each commit waits for the disk."""
        mine = _Waiting(transaction)
        self._waiting.append(mine)
        try:
            async with self._turn:
                if not mine.done:
                    batch, self._waiting = self._waiting, []
                    with anyio.CancelScope(shield=True):  # the batch is others' too: it must not end with us
                        await anyio.to_thread.run_sync(self._run_batch, batch, limiter=self._writers)
        except BaseException:
            if mine in self._waiting:
                self._waiting.remove(mine)
            raise
        if mine.error is not None:
            raise mine.error
        return mine.answer

    def _run_batch(self, batch: list[_Waiting]) -> None:
        """Run every transaction of *batch* in one commit, each in a savepoint so that its failure is its own."""
        if len(batch) == 1:
            self._run_alone(batch[0])
            return

        def run(connection: Connection) -> None:
            for waiting in batch:
                try:
                    with connection.begin_nested():
                        waiting.answer = waiting.transaction(connection)
                except Exception as error:  # noqa: BLE001 - told to whoever asked
                    waiting.error = _told(error)

        try:
            self._run(run, True)
        except Exception as error:  # noqa: BLE001 - the commit failed: nobody's transaction stands
            for waiting in batch:
                waiting.error = error
        for waiting in batch:
            waiting.done = True

    def _run_alone(self, waiting: _Waiting) -> None:
        try:
            waiting.answer = self._run(waiting.transaction, True)
        except Exception as error:  # noqa: BLE001 - told to whoever asked
            waiting.error = error
        waiting.done = True

    def _run(self, transaction: Transaction[T], writes: bool) -> T:  # noqa: FBT001 - called positionally by the thread
        for attempt in range(_ATTEMPTS):
            try:
                with self.engine.connect().execution_options(writes=writes) as connection, connection.begin():
                    return transaction(connection)
            except exc.OperationalError as error:
                again = getattr(error.orig, "sqlstate", None) in _RETRYABLE_SQLSTATES
                if attempt == _ATTEMPTS - 1 or not again:
                    raise _told(error) from error
        raise AssertionError("unreachable: the last attempt returns or raises")

    def close(self) -> None:
        """Close every connection."""
        self.engine.dispose()


def _told(error: Exception) -> Exception:
    """Return an error in our words where we have any for it."""
    origin = getattr(error, "orig", None)
    if "database or disk is full" in str(origin) or getattr(origin, "sqlstate", None) == "53100":
        return DiskFullError(
            "The database has no room to write.", remedy="Free some space where its files live."
        )
    return error


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
