"""The migrations lead to the tables of the code, on both databases, whoever applies them."""

import hashlib
import importlib
from pathlib import Path

import anyio
import anyio.to_thread
import pytest
import sqlalchemy as sa
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import exc
from sqlalchemy.engine import Connection

from yunhe.control.pools.store import read_pool
from yunhe.kernel.ids import BlobId
from yunhe.kernel.places import Place
from yunhe.kernel.quotas import QuotaName
from yunhe.storage import audit
from yunhe.storage import database as database_module
from yunhe.storage.blobs import Blobs, drop
from yunhe.storage.database import Database, metadata
from yunhe.storage.migrate import configuration, migrate
from yunhe.storage.quotas import read_uses

pytestmark = pytest.mark.anyio

importlib.import_module("yunhe.runtime.start")  # imports every table


def difference(connection: Connection) -> list[object]:
    options = {"compare_type": True, "compare_server_default": default_differs}
    return list(compare_metadata(MigrationContext.configure(connection, opts=options), metadata))


def default_differs(*compared: object) -> bool | None:
    """Let alembic judge, but for SQLite's word for an empty text, which it does not recognise."""
    found, wanted = compared[3], compared[5]
    return False if (found, wanted) == ("('')", "") else None


async def test_an_empty_database_is_brought_to_the_tables_of_the_code(database_url: str) -> None:
    database = Database(database_url)
    await migrate(database)
    assert await database.read(difference) == []
    await migrate(database)  # again changes nothing
    assert await database.read(difference) == []
    database.close()


async def test_a_table_that_no_migration_makes_is_noticed(database_url: str) -> None:
    database = Database(database_url)
    await migrate(database)
    await database.write(lambda c: c.execute(sa.text("DROP TABLE trade_balance")))
    assert await database.read(difference) != []
    database.close()


async def test_several_processes_may_bring_an_empty_database_up_at_once(database_url: str) -> None:
    databases = [Database(database_url) for _ in range(3)]
    async with anyio.create_task_group() as tasks:
        for database in databases:
            tasks.start_soon(migrate, database)
    assert await databases[0].read(difference) == []
    for database in databases:
        database.close()


async def test_a_line_of_the_audit_log_can_be_added_and_not_replaced(tmp_path: Path) -> None:
    database = Database(f"sqlite:///{tmp_path / 'yunhe.db'}")
    await migrate(database)
    for number in range(2):
        await database.write(lambda c, n=number: audit.append(c, audit.Actor("ann"), n, "job submit"))
    replace = "INSERT OR REPLACE INTO account_audit SELECT * FROM account_audit WHERE seq = 1"
    with pytest.raises(exc.DBAPIError, match="append-only"):
        await database.write(lambda connection: connection.execute(sa.text(replace)))
    lines = await database.read(lambda c: list(c.execute(sa.select(audit.LOG.c.seq, audit.LOG.c.at))))
    assert [tuple(line) for line in lines] == [(1, 0.0), (2, 1.0)]
    database.close()


async def test_a_pool_that_was_drained_stays_so_when_draining_is_no_state_any_more(database_url: str) -> None:
    database = Database(database_url)
    await database.write(lambda connection: command.upgrade(configuration(connection), "0002"))
    pools = [("a", "draining"), ("b", "offline")]
    insert = "INSERT INTO plugin_pool (id, name, spec, state, reason, added_at) VALUES (:id, :id, :spec, :state, 'x', 0)"
    rows = [{"id": name, "state": state, "spec": b"{}"} for name, state in pools]
    await database.write(lambda connection: connection.execute(sa.text(insert), rows))
    await migrate(database)
    query = sa.text("SELECT id, state, reason, drained FROM plugin_pool ORDER BY id")
    found = await database.read(lambda connection: connection.execute(query).all())
    assert [tuple(row) for row in found] == [("a", "ready", "", True), ("b", "offline", "x", False)]
    database.close()


async def test_the_place_of_a_pool_is_a_fact_after_the_tables_of_facts_came(database_url: str) -> None:
    database = Database(database_url)
    await database.write(lambda connection: command.upgrade(configuration(connection), "0006"))
    spec = b'{"name":"lab","kind":"local","place":{"region":"cn-north"}}'
    insert = "INSERT INTO plugin_pool (id, name, spec, state, reason, added_at) VALUES ('p', 'lab', :spec, 'ready', '', 7)"
    await database.write(lambda c: c.execute(sa.text(insert), {"spec": spec}))
    await migrate(database)
    pool = await database.read(lambda connection: read_pool(connection, "lab"))
    assert pool.spec.place == Place("cn-north")
    assert (pool.facts["place"].source, pool.facts["place"].at) == ("told", 7)
    database.close()


async def test_what_was_kept_in_the_database_is_read_moved_and_counted_after_contents_were_kept_apart(
    database_url: str, tmp_path: Path
) -> None:
    database = Database(database_url)
    await database.write(lambda connection: command.upgrade(configuration(connection), "0013"))
    data = b"x" * 5000 + b"y" * 10
    blob_id = f"project/p/{hashlib.sha256(data).hexdigest()}"
    pieces = [
        {"id": blob_id, "number": 0, "data": data[:5000]},
        {"id": blob_id, "number": 1, "data": data[5000:]},
        {"id": "upload/5/p/ab", "number": 0, "data": b"cut off"},
    ]
    insert = "INSERT INTO blob_chunk (blob_id, number, data) VALUES (:id, :number, :data)"
    await database.write(lambda c: c.execute(sa.text(insert), pieces))
    blob = "INSERT INTO blob (id, size_bytes, used_at, project_id) VALUES (:id, 5010, 100, 'p')"
    await database.write(lambda c: c.execute(sa.text(blob), {"id": blob_id}))
    await migrate(database)
    assert (await database.read(lambda c: read_uses(c, "p", 0)))[QuotaName.BLOB_BYTES] == 5000 + 2 * 4096
    blobs = Blobs(database, lambda: 200_000.0, 1 << 20, folder=tmp_path / "files")
    for _ in range(2):
        assert b"".join([piece async for piece in blobs.chunks(BlobId(blob_id))]) == data
        assert await blobs.digest(BlobId(blob_id)) == hashlib.sha256(data).hexdigest()
        while await blobs.move_row():
            pass
    rows = await database.read(lambda c: c.scalar(sa.text("SELECT count(*) FROM blob_chunk")))
    assert rows == 0
    await database.write(lambda c: blobs.forget_some(c, 0, 10))  # what was cut off
    assert (await database.read(lambda c: read_uses(c, "p", 0)))[QuotaName.BLOB_BYTES] == 5000 + 4096
    await database.write(lambda c: drop(c, blob_id))
    assert (await database.read(lambda c: read_uses(c, "p", 0)))[QuotaName.BLOB_BYTES] == 0
    while await blobs.remove_contents(10):
        pass
    files = await anyio.to_thread.run_sync(
        lambda: [one for one in tmp_path.rglob("*") if one.name != "yunhe.db"]
    )
    assert not [one for one in files if one.is_file() and one.parent.parent.name == "files"]
    database.close()


async def test_a_database_that_is_mostly_empty_is_made_smaller(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "yunhe.db"
    database = Database(f"sqlite:///{path}")
    await migrate(database)
    monkeypatch.setattr(database_module, "VACUUM_BYTES", 1 << 20)
    insert = sa.text("INSERT INTO blob_chunk (blob_id, number, data) VALUES ('a', 0, zeroblob(8000000))")
    await database.write(lambda c: c.execute(insert))
    await database.give_back_room()
    database.close()
    assert (before := path.stat().st_size) > 8_000_000
    database = Database(f"sqlite:///{path}")
    await database.write(lambda c: c.execute(sa.text("DELETE FROM blob_chunk")))
    await database.give_back_room()
    assert await database.read(difference) == []
    database.close()
    assert path.stat().st_size < before / 4
