"""A full disk under SQLite: a transaction stands whole or not at all, and some room is kept for what has begun."""

import os
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from support.small_disks import fill, free_bytes, mounted
from yunhe.kernel.errors import DiskFullError
from yunhe.kernel.units import MIB
from yunhe.storage import reserve
from yunhe.storage.contents import ROWS as CHUNKS
from yunhe.storage.database import Database
from yunhe.storage.migrate import migrate
from yunhe.storage.outbox import CURSORS
from yunhe.storage.reserve import Reserve

pytestmark = pytest.mark.anyio

MORE_THAN_THE_CACHE = 6 * MIB


@pytest.fixture
def disk(tmp_path: Path) -> Generator[Path]:
    with mounted(tmp_path / "disk", "size=6m") as folder:
        yield folder


@asynccontextmanager
async def on(disk: Path, *, reserve_bytes: int = 0) -> AsyncGenerator[Database]:
    database = Database(f"sqlite:///{disk / 'yunhe.db'}", reserve_bytes=reserve_bytes)
    try:
        await migrate(database)
        yield database
    finally:
        database.close()


def note(connection: Connection, consumer: str) -> None:
    connection.execute(CURSORS.insert().values(consumer=consumer, seq=1))


def write_much(connection: Connection) -> None:
    for number in range(MORE_THAN_THE_CACHE // MIB):
        connection.execute(CHUNKS.insert().values(blob_id="a", number=number, data=os.urandom(MIB)))


def consumers(connection: Connection) -> set[str]:
    return set(connection.scalars(sa.select(CURSORS.c.consumer)))


async def test_a_transaction_that_goes_on_after_the_disk_was_full_leaves_nothing(disk: Path) -> None:
    def go_on(connection: Connection) -> None:
        note(connection, "before")
        with suppress(DiskFullError):
            write_much(connection)
        note(connection, "after")

    def end(connection: Connection) -> None:
        note(connection, "before")
        with suppress(DiskFullError):
            write_much(connection)

    async with on(disk) as database:
        for transaction in (go_on, end):
            with pytest.raises(DiskFullError):
                await database.write(transaction)
            assert await database.read(consumers) == set()
        await database.write(lambda connection: note(connection, "next"))
        assert await database.read(consumers) == {"next"}


async def test_new_work_leaves_the_reserve_to_what_has_begun(
    disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reserve, "LOOK_EVERY_S", 0.0)
    async with on(disk, reserve_bytes=MIB) as database:
        fill(disk / "ballast")
        assert not database.is_full
        with pytest.raises(DiskFullError):
            await database.write(write_much, uses_reserve=False)
        assert database.is_full
        await database.write(lambda connection: note(connection, "begun"))
        with pytest.raises(DiskFullError, match="no room"):
            await database.write(lambda connection: note(connection, "new"), uses_reserve=False)
        (disk / "ballast").unlink()
        await database.write(lambda connection: note(connection, "new"), uses_reserve=False)
        assert not database.is_full
        assert await database.read(consumers) == {"begun", "new"}


def test_a_reserve_is_room_that_others_cannot_have_until_it_is_spent(disk: Path) -> None:
    kept = Reserve(disk / "yunhe.db", 2 * MIB)
    assert not kept.spent
    fill(disk / "ballast")
    assert free_bytes(disk) == 0
    assert kept.spend()
    assert free_bytes(disk) == 2 * MIB
    assert not kept.spend()


def test_a_reserve_outlives_its_process_and_is_not_taken_where_there_is_no_room(disk: Path) -> None:
    Reserve(disk / "yunhe.db", 2 * MIB)
    fill(disk / "ballast")
    assert not Reserve(disk / "yunhe.db", 2 * MIB).spent
    assert Reserve(disk / "other.db", 2 * MIB).spent
    assert free_bytes(disk) == 0


def test_a_reserve_that_somebody_removed_has_nothing_to_give(disk: Path) -> None:
    kept = Reserve(disk / "yunhe.db", 2 * MIB)
    (disk / "yunhe.db.reserve").unlink()
    assert not kept.spend()
    assert kept.spent
