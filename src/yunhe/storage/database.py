"""One database, SQLite or PostgreSQL, spoken to in short transactions from worker threads.

A transaction is a plain function of a connection: it cannot await, so no call to the outside can sneak into it, and
the same code serves both databases at the cost of one thread hop per transaction.
"""

import logging
import os
import sqlite3
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from functools import cache, partial
from pathlib import Path
from typing import Any, TypeVar

import anyio
import anyio.to_thread
import sqlalchemy as sa
from sqlalchemy import event, exc
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import Connection, Engine
from sqlalchemy.engine.interfaces import ExceptionContext

from yunhe.kernel.errors import DatabaseUnavailableError, DiskFullError
from yunhe.kernel.units import MIB
from yunhe.storage.freezes import FreezeWatch
from yunhe.storage.reserve import Reserve, has_no_room

T = TypeVar("T")
Transaction = Callable[[Connection], T]
Took = Callable[[str, float], None]
"""Told ``read`` or ``write`` and how many seconds a transaction took, with the wait for its turn."""
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
WAL_KEPT_BYTES = 16 * MIB
VACUUM_BYTES = 64 * MIB
_RETRYABLE_SQLSTATES = {"40001", "40P01"}
_DISK_FULL_SQLSTATE = "53100"
_UNAVAILABLE_SQLSTATES = ("08", "57P", "53300", "25P03")
"""Connection errors, a server that starts or stops, no connection left, a connection ended while it was idle."""
_REFUSED_FOR_GOOD = ("authentication failed", "does not exist", "no pg_hba.conf entry")
"""What a server says that answers and will not let us in; waiting does not help."""
RECONNECT_EVERY_S = 0.25
"""After a connection could not be made, calls fail at once for so long: they do not queue behind each other."""
WARN_EVERY_S = 10.0
CONNECT_DEFAULTS = {
    "connect_timeout": "3",
    "keepalives_idle": "5",
    "keepalives_interval": "2",
    "keepalives_count": "3",
    "tcp_user_timeout": "10000",
}
"""How soon a database host that has vanished is noticed; the URL may say otherwise."""
_FAILURE = "failure"
_ATTEMPTS = 5

log = logging.getLogger(__name__)


class _Waiting:
    """A transaction that waits for its turn, and what came of it."""

    def __init__(self, transaction: Transaction[Any], *, uses_reserve: bool) -> None:
        self.transaction = transaction
        self.uses_reserve = uses_reserve
        self.done = False
        self.answer: Any = None
        self.error: Exception | None = None


class Database:
    """Runs transactions; reads may overlap, on SQLite writes that come together share a commit.

    On SQLite *reserve_bytes* of the disk are kept for writes that finish what has begun.
    """

    def __init__(self, url: str, *, reserve_bytes: int = 0, took: Took | None = None) -> None:
        self._took = took
        self.is_sqlite = url.startswith("sqlite")
        path = Path(url.removeprefix("sqlite:///")) if self.is_sqlite else None
        self.engine = _postgres_engine(url) if path is None else _sqlite_engine(url, path)
        event.listen(self.engine, "handle_error", partial(_told, path))
        self._watch = FreezeWatch(partial(_answers, url))
        if path is None:
            event.listen(self.engine, "connect", self._watch.add)
        self._reserve = Reserve(path, reserve_bytes)
        self._writers = anyio.CapacityLimiter(1 if self.is_sqlite else POSTGRES_CONNECTIONS)
        self._readers = anyio.CapacityLimiter(SQLITE_READERS if self.is_sqlite else POSTGRES_CONNECTIONS)
        self._turn = anyio.Lock()
        self._waiting: list[_Waiting] = []
        self._reconnect_at = 0.0

    @property
    def is_full(self) -> bool:
        """Whether the reserve is spent: what may wait is refused until there is room again."""
        return self._reserve.spent

    async def is_available(self) -> bool:
        """Return whether the database answers; raise what waiting does not change."""
        try:
            await self.read(_ask)
        except DatabaseUnavailableError:
            return False
        return True

    async def wait_until_available(self) -> None:
        """Return once the database answers; raise only what waiting does not change."""
        warn_at = 0.0
        while True:
            try:
                return await self.read(_ask)
            except DatabaseUnavailableError as error:
                if time.monotonic() >= warn_at:
                    warn_at = time.monotonic() + WARN_EVERY_S
                    log.warning("database is awaited", extra={"problem": str(error.__cause__ or error)})
            await anyio.sleep(RECONNECT_EVERY_S)

    async def read(self, transaction: Transaction[T]) -> T:
        """Run a transaction that changes nothing."""
        with self._timed("read"):
            return await anyio.to_thread.run_sync(self._run, transaction, False, limiter=self._readers)

    async def write(self, transaction: Transaction[T], *, uses_reserve: bool = True) -> T:
        """Run a transaction that may change rows: whole or not at all; repeated when the database asks for it.

        Raise ``DiskFullError`` when there is no room, ``DatabaseUnavailableError`` when it is away. New work says *uses_reserve* false: it is refused before the
        room is used up that the end of older work needs.
        """
        with self._timed("write"):
            if self.is_sqlite:
                return await self._write_together(_Waiting(transaction, uses_reserve=uses_reserve))
            return await anyio.to_thread.run_sync(self._run, transaction, True, limiter=self._writers)

    @contextmanager
    def _timed(self, operation: str) -> Generator[None]:
        began = time.perf_counter()
        try:
            yield
        finally:
            if self._took is not None:
                self._took(operation, time.perf_counter() - began)

    async def _write_together(self, mine: _Waiting) -> Any:
        """Commit with whoever else is waiting: SQLite has one writer, and each commit waits for the disk."""
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
        """Run every transaction of *batch* in one commit.

        Where one fails, all are rolled back and run again, each in a savepoint so that its failure is its own. Want of
        room is everybody's failure: SQLite may have rolled back the savepoints of the others too.
        """
        self._reserve.renew()
        try:
            try:
                self._run(lambda connection: self._run_all(connection, batch), True)
            except (DiskFullError, DatabaseUnavailableError):
                raise
            except Exception:
                if len(batch) == 1:
                    raise
                self._run(lambda connection: self._run_members(connection, batch), True)
        except Exception as error:  # noqa: BLE001 - the commit failed: nobody's transaction stands
            for waiting in batch:
                waiting.error = error
        for waiting in batch:
            waiting.done = True

    def _run_all(self, connection: Connection, batch: list[_Waiting]) -> None:
        for waiting in batch:
            self._run_one(connection, waiting)

    def _run_members(self, connection: Connection, batch: list[_Waiting]) -> None:
        for waiting in batch:
            try:
                with connection.begin_nested():
                    self._run_one(connection, waiting)
            except DiskFullError:
                raise
            except Exception as error:  # noqa: BLE001 - told to whoever asked
                _require_transaction(connection)
                waiting.error = error

    def _run_one(self, connection: Connection, waiting: _Waiting) -> None:
        waiting.error = _no_room() if self.is_full and not waiting.uses_reserve else None
        if waiting.error is None:
            waiting.answer = waiting.transaction(connection)

    def _run(self, transaction: Transaction[T], writes: bool) -> T:  # noqa: FBT001 - called positionally by the thread
        for attempt in range(_ATTEMPTS):
            try:
                with (
                    self._watch.transaction(),
                    self._connect().execution_options(writes=writes) as connection,
                    connection.begin(),
                ):
                    return transaction(connection)
            except DiskFullError:
                if not self._reserve.spend():
                    raise
            except exc.OperationalError as error:
                again = getattr(error.orig, "sqlstate", None) in _RETRYABLE_SQLSTATES
                if attempt == _ATTEMPTS - 1 or not again:
                    raise
        raise AssertionError("unreachable: the last attempt returns or raises")

    def _connect(self) -> Connection:
        if time.monotonic() < self._reconnect_at or self._watch.is_frozen:
            raise _unavailable()
        try:
            return self.engine.connect()
        except DatabaseUnavailableError:
            self._reconnect_at = time.monotonic() + RECONNECT_EVERY_S
            raise

    async def give_back_room(self) -> None:
        """Give the disk the room that removed rows have left, where that is most of SQLite's file."""
        if self.is_sqlite:
            await anyio.to_thread.run_sync(self._vacuum, limiter=self._writers)

    def _vacuum(self) -> None:
        connection = self.engine.raw_connection()
        try:
            pages, free, page_bytes = (
                connection.cursor().execute(f"PRAGMA {name}").fetchone()[0]
                for name in ("page_count", "freelist_count", "page_size")
            )
            if free * page_bytes >= VACUUM_BYTES and free * 2 > pages:
                connection.cursor().execute("VACUUM")
                log.info("database was made smaller", extra={"bytes": free * page_bytes})
        except sqlite3.OperationalError as error:  # no room for the copy: it stays as it is
            log.warning("database could not be made smaller", extra={"problem": str(error)})
        finally:
            connection.close()

    def close(self) -> None:
        """Close every connection."""
        self._watch.close()
        self.engine.dispose()


def _ask(connection: Connection) -> None:
    connection.execute(sa.select(1)).close()


def _no_room() -> DiskFullError:
    return DiskFullError(
        "The database has no room to write.",
        remedy="Free some space where its files live; then it goes on by itself.",
    )


def _unavailable() -> DatabaseUnavailableError:
    return DatabaseUnavailableError(
        "The database does not answer.", remedy="Try again in a moment; what runs goes on meanwhile."
    )


def _told(path: Path | None, context: ExceptionContext) -> DiskFullError | DatabaseUnavailableError | None:
    """Return the error to raise instead when the disk is full or the database is away.

    What failed is remembered for those who go on after it.
    """
    if context.is_pre_ping:
        return None  # the pool then makes a new connection
    told = _no_room() if _is_full(context.original_exception, path) else None
    if path is None and _is_unavailable(context):
        return _unavailable()
    if context.connection is not None and not context.is_disconnect:
        context.connection.info[_FAILURE] = told or context.sqlalchemy_exception
    return told


def _is_full(error: BaseException, path: Path | None) -> bool:
    if path is None:
        return getattr(error, "sqlstate", None) == _DISK_FULL_SQLSTATE
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    # What syncs, maps memory or makes a file does not say why it could not.
    vague = code in (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN)
    return code == sqlite3.SQLITE_FULL or (vague and has_no_room(path))


def _is_unavailable(context: ExceptionContext) -> bool:
    error = context.original_exception
    if context.is_disconnect:
        return True
    if not isinstance(context.sqlalchemy_exception, exc.OperationalError):
        return False
    state = getattr(error, "sqlstate", None)
    if state is not None:
        return state.startswith(_UNAVAILABLE_SQLSTATES)
    return context.connection is None and not any(text in str(error) for text in _REFUSED_FOR_GOOD)


def _require_transaction(connection: Connection) -> None:
    """Raise what failed if SQLite then rolled the whole transaction back: what follows would be committed on its own."""
    dbapi: Any = connection.connection.dbapi_connection
    if not dbapi.in_transaction:
        raise connection.info.get(_FAILURE) or RuntimeError("SQLite has rolled the transaction back.")


def _postgres_engine(url: str) -> Engine:
    url = url.replace("postgresql://", "postgresql+psycopg://", 1).replace(
        "postgres://", "postgresql+psycopg://", 1
    )
    # Our transactions never wait for anybody; one that does belongs to a process that hangs, with its locks.
    options = f"-c idle_in_transaction_session_timeout={IDLE_IN_TRANSACTION_MS}"
    defaults = {name: value for name, value in CONNECT_DEFAULTS.items() if name not in sa.make_url(url).query}
    return sa.create_engine(
        url,
        pool_size=POSTGRES_CONNECTIONS,
        max_overflow=POSTGRES_CONNECTIONS,
        pool_pre_ping=True,
        connect_args={"options": options, **defaults},
    )


def _answers(url: str) -> bool:
    """Return whether PostgreSQL takes a new connection, or refuses it with a reason, within a few seconds."""
    import psycopg  # noqa: PLC0415 - an optional extra

    try:
        psycopg.connect(url, connect_timeout=int(CONNECT_DEFAULTS["connect_timeout"])).close()
    except psycopg.errors.ConnectionTimeout:
        return False
    except psycopg.Error:
        return True
    return True


def _sqlite_engine(url: str, path: Path) -> Engine:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with suppress(OSError):  # who cannot make it is told when it is opened
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))  # its journals then get the same permissions
    engine = sa.create_engine(url, pool_size=SQLITE_READERS + 1, max_overflow=2)

    def configure(connection: Any, _record: object) -> None:
        connection.isolation_level = None  # we say BEGIN ourselves, below
        connection.execute(f"PRAGMA busy_timeout={BUSY_TIMEOUT_MS}")  # first: the next may have to wait
        connection.execute("PRAGMA journal_mode=WAL")
        # An accepted job survives a power cut, not only kill -9.
        connection.execute("PRAGMA synchronous=FULL")
        connection.execute("PRAGMA foreign_keys=ON")
        connection.execute("PRAGMA temp_store=MEMORY")  # a savepoint or a sort must not need a file
        connection.execute(f"PRAGMA journal_size_limit={WAL_KEPT_BYTES}")

    def begin(connection: Connection) -> None:
        # A writer that begins as a reader can find the database changed under it; it must begin as a writer.
        writes = connection.get_execution_options().get("writes", True)
        connection.info.pop(_FAILURE, None)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    def execute(connection: Connection, _cursor: object, statement: str, *_: object) -> None:
        if not statement.startswith("BEGIN"):
            _require_transaction(connection)

    event.listen(engine, "connect", configure)
    event.listen(engine, "begin", begin)
    event.listen(engine, "before_cursor_execute", execute)
    event.listen(engine, "commit", _require_transaction)
    return engine


def json_column(name: str, **options: Any) -> sa.Column[bytes]:
    """Return a column that holds a msgspec-encoded value."""
    return sa.Column(name, sa.LargeBinary, nullable=False, **options)


def insert_if_missing(connection: Connection, table: sa.Table, **values: Any) -> bool:
    """Insert a row unless its key is taken, whoever else may be inserting it right now; return whether we did."""
    return connection.execute(_insert_missing(connection.dialect.name, table), values).first() is not None


def insert_missing(connection: Connection, table: sa.Table, rows: Sequence[dict[str, Any]]) -> set[str]:
    """Insert those of *rows* whose key is not taken, whoever else may be inserting them; return their keys."""
    if not rows:
        return set()
    return set(connection.scalars(_insert_missing(connection.dialect.name, table), rows))


@cache
def _insert_missing(dialect_name: str, table: sa.Table) -> Any:
    """Return the statement, made once for each table: making it costs as much as running it."""
    dialect = postgresql if dialect_name == "postgresql" else sqlite
    key = next(iter(table.primary_key.columns))
    return dialect.insert(table).on_conflict_do_nothing().returning(key)
