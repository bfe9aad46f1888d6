"""Transactions: whole or not at all, repeated when two of them got into each other's way."""

import threading
from functools import partial
from pathlib import Path

import anyio
import anyio.to_thread
import pytest
import sqlalchemy as sa
from sqlalchemy import exc
from sqlalchemy.engine import Connection

from yunhe.scheduling.perception.store import FEEDS
from yunhe.storage.database import Database, insert_if_missing, insert_missing
from yunhe.storage.outbox import CURSORS

pytestmark = pytest.mark.anyio


def cursors(connection: Connection) -> dict[str, int]:
    return {row.consumer: row.seq for row in connection.execute(sa.select(CURSORS))}


async def test_a_transaction_that_fails_leaves_nothing(database: Database) -> None:
    def fail(connection: Connection) -> None:
        connection.execute(CURSORS.insert().values(consumer="a", seq=1))
        raise ValueError("changed my mind")

    with pytest.raises(ValueError, match="changed my mind"):
        await database.write(fail)
    assert await database.read(cursors) == {}


async def test_two_transactions_that_block_each_other_both_get_done(database: Database) -> None:
    """On SQLite writers queue; on PostgreSQL one is chosen as victim and repeated."""
    for name in ("a", "b"):
        await database.write(lambda c, n=name: c.execute(CURSORS.insert().values(consumer=n, seq=0)))
    meeting = threading.Barrier(2)
    met: set[str] = set()

    def add_to_both(connection: Connection, *, first: str, second: str) -> None:
        for name in (first, second):
            connection.execute(
                CURSORS.update().where(CURSORS.c.consumer == name).values(seq=CURSORS.c.seq + 1)
            )
            if first not in met and not database.is_sqlite:
                met.add(first)
                meeting.wait(10)  # now each holds a row that the other wants

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(database.write, partial(add_to_both, first="a", second="b"))
        tasks.start_soon(database.write, partial(add_to_both, first="b", second="a"))
    assert await database.read(cursors) == {"a": 2, "b": 2}


async def test_of_many_who_insert_the_same_row_at_once_one_does(database: Database) -> None:
    won: list[bool] = []

    async def insert() -> None:
        won.append(await database.write(lambda c: insert_if_missing(c, CURSORS, consumer="a", seq=0)))

    async with anyio.create_task_group() as tasks:
        for _ in range(8):
            tasks.start_soon(insert)
    assert sorted(won) == [False] * 7 + [True]


async def test_a_reader_is_not_held_up_by_a_writer_and_sees_the_state_before_it(database: Database) -> None:
    written, seen = threading.Event(), threading.Event()

    def write(connection: Connection) -> None:
        connection.execute(CURSORS.insert().values(consumer="a", seq=1))
        written.set()
        assert seen.wait(20)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(database.write, write)
        await anyio.to_thread.run_sync(written.wait, 20)
        assert await database.read(cursors) == {}
        seen.set()
    assert await database.read(cursors) == {"a": 1}


async def test_the_database_file_is_for_its_owner_alone(tmp_path: Path) -> None:
    folder = tmp_path / "new"
    Database(f"sqlite:///{folder / 'yunhe.db'}").close()
    assert folder.stat().st_mode & 0o077 == 0


async def test_of_many_who_insert_overlapping_rows_at_once_each_row_is_inserted_by_one(
    database: Database,
) -> None:
    new: list[set[str]] = []

    async def insert(first: int) -> None:
        rows = [{"id": f"row-{number:03}"} for number in range(first, first + 30)]
        new.append(await database.write(lambda c: insert_missing(c, FEEDS, rows)))

    async with anyio.create_task_group() as tasks:
        for first in (0, 0, 10, 20):
            tasks.start_soon(insert, first)
    assert sorted(name for names in new for name in names) == [f"row-{number:03}" for number in range(50)]


async def test_a_writer_that_is_cancelled_as_its_turn_comes_takes_nobodys_write_with_it(
    database: Database,
) -> None:
    async def write(name: str) -> None:
        await database.write(lambda c: c.execute(CURSORS.insert().values(consumer=name, seq=0)))

    cancelled = anyio.CancelScope()

    async def write_and_be_cancelled() -> None:
        with cancelled:
            await write("cancelled")

    async def cancel() -> None:
        cancelled.cancel()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(write_and_be_cancelled)
        for number in range(5):
            tasks.start_soon(write, f"patient-{number}")
        tasks.start_soon(cancel)
    assert set(await database.read(cursors)) >= {f"patient-{number}" for number in range(5)}


async def test_of_writers_that_share_a_commit_only_the_one_that_fails_fails(database: Database) -> None:
    async def write(name: str) -> None:
        await database.write(lambda c: c.execute(CURSORS.insert().values(consumer=name, seq=0)))

    async def fail() -> None:
        with pytest.raises(exc.IntegrityError):
            await database.write(
                lambda c: c.execute(
                    CURSORS.insert(), [{"consumer": "x", "seq": 0}, {"consumer": "x", "seq": 0}]
                )
            )

    async with anyio.create_task_group() as tasks:
        for number in range(5):
            tasks.start_soon(write, f"good-{number}")
            tasks.start_soon(fail)
    assert set(await database.read(cursors)) == {f"good-{number}" for number in range(5)}
