"""Blobs: named by what they hold, visible only when whole, gone when long unused."""

import gzip
import hashlib
import os
from collections.abc import AsyncGenerator
from pathlib import Path

import anyio
import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy.engine import Connection

from yunhe.kernel.errors import InvalidInputError, NotFoundError, TooLargeError
from yunhe.kernel.ids import BlobId
from yunhe.storage import blobs as blobs_module
from yunhe.storage.blobs import BLOBS, CHUNKS, CUT_OFF_S, MOST_CHUNK_BYTES, Blobs
from yunhe.storage.contents import GARBAGE, ROWS
from yunhe.storage.database import Database

pytestmark = pytest.mark.anyio

LIMIT_BYTES = 4096


class Clock:
    def __init__(self) -> None:
        self.now = 1_700_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(params=["folder", "database"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path | None:
    return tmp_path / "files" if request.param == "folder" else None


@pytest.fixture
def blobs(database: Database, clock: Clock, folder: Path | None, monkeypatch: pytest.MonkeyPatch) -> Blobs:
    monkeypatch.setattr(blobs_module, "CHUNK_BYTES", 64)
    return Blobs(database, clock, LIMIT_BYTES, folder=folder)


def files_in(folder: Path) -> int:
    return len([path for path in folder.rglob("*") if path.is_file()])


async def contents(database: Database, folder: Path | None) -> int:
    """Return how many contents there are, as rows and as files."""
    rows = await database.read(lambda c: c.scalar(sa.select(sa.func.count()).select_from(ROWS)) or 0)
    assert rows == 0 or folder is None
    return rows + (files_in(folder) if folder else 0)


async def pieces(*parts: bytes) -> AsyncGenerator[bytes]:
    for part in parts:
        yield part


async def content(blobs: Blobs, blob_id: BlobId) -> bytes:
    return b"".join([chunk async for chunk in blobs.chunks(blob_id)])


async def rows(database: Database) -> tuple[int, int]:
    def count(connection: Connection, table: sa.Table) -> int:
        return connection.scalar(sa.select(sa.func.count()).select_from(table)) or 0

    return await database.read(lambda connection: (count(connection, BLOBS), count(connection, CHUNKS)))


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(parts=st.lists(st.binary(max_size=200), max_size=8))
async def test_what_was_put_comes_back_however_it_was_cut(blobs: Blobs, parts: list[bytes]) -> None:
    whole = b"".join(parts)
    digest = hashlib.sha256(whole).hexdigest()
    blob_id = await blobs.put("project/a", pieces(*parts), digest=digest)
    assert blob_id == f"project/a/{digest}"
    assert await content(blobs, blob_id) == whole
    assert await blobs.size_bytes(blob_id) == len(whole)


async def broken(parts: int) -> AsyncGenerator[bytes]:
    for _ in range(parts):
        yield b"x" * 100
    raise ConnectionError("cut")


@pytest.mark.parametrize(
    "case",
    [
        (lambda: pieces(b"abc"), "0" * 64, InvalidInputError),
        (lambda: pieces(b"x" * LIMIT_BYTES, b"x"), None, TooLargeError),
        (lambda: broken(3), None, ConnectionError),
    ],
    ids=["wrong digest", "too large", "cut off"],
)
async def test_an_upload_that_fails_leaves_nothing(
    blobs: Blobs,
    database: Database,
    folder: Path | None,
    clock: Clock,
    case: tuple[object, str | None, type[Exception]],
) -> None:
    chunks, digest, error = case
    assert callable(chunks)
    with pytest.raises(error):
        await blobs.put("project/a", chunks(), digest=digest)  # pyright: ignore[reportArgumentType]
    assert await rows(database) == (0, 0)
    clock.now += CUT_OFF_S + 1
    while await blobs.remove_contents(100):
        pass
    assert await contents(database, folder) == 0


async def test_the_same_content_brought_by_many_at_once_is_kept_once(
    blobs: Blobs, database: Database
) -> None:
    ids: list[BlobId] = []

    async def put() -> None:
        ids.append(await blobs.put("project/a", pieces(b"y" * 100, b"z" * 60)))

    async with anyio.create_task_group() as tasks:
        for _ in range(8):
            tasks.start_soon(put)
    assert len(set(ids)) == 1
    assert await rows(database) == (1, 3)
    assert await content(blobs, ids[0]) == b"y" * 100 + b"z" * 60


async def test_a_project_does_not_find_what_another_has_brought(blobs: Blobs) -> None:
    blob_id = await blobs.put("project/a", pieces(b"mine"))
    other = BlobId(blob_id.replace("project/a", "project/b"))
    assert await blobs.size_bytes(other) is None
    with pytest.raises(NotFoundError):
        await content(blobs, other)


async def test_what_is_used_stays_and_what_is_not_goes(
    blobs: Blobs, clock: Clock, database: Database
) -> None:
    used = await blobs.put("project/a", pieces(b"used"))
    unused = await blobs.put("project/a", pieces(b"unused"))
    clock.now += 1000
    assert await content(blobs, used) == b"used"
    clock.now += 1000
    before = clock.now - 1500
    assert await database.write(lambda c: blobs.forget_some(c, before, 100)) == 1
    assert await blobs.size_bytes(unused) is None
    assert await content(blobs, used) == b"used"


def member(data: bytes) -> tuple[str, bytes]:
    return hashlib.sha256(data).hexdigest(), gzip.compress(data)


async def members(*parts: bytes) -> AsyncGenerator[tuple[str, bytes]]:
    for part in parts:
        yield member(part)


async def put_together(blobs: Blobs, *parts: bytes, scope: str = "project/a") -> BlobId:
    await blobs.keep_chunks(scope, members(*parts))
    made = await blobs.put_together(scope, [member(part)[0] for part in parts])
    assert isinstance(made, str)
    return made


async def test_an_archive_is_put_together_of_chunks_that_came_before(
    blobs: Blobs, database: Database, folder: Path | None
) -> None:
    digests = [member(part)[0] for part in (b"one", b"two", b"one")]
    assert await blobs.put_together("project/a", digests) == tuple(digests[:2])
    await blobs.keep_chunks("project/a", members(b"one"))
    assert await blobs.put_together("project/a", digests) == (digests[1],)
    await blobs.keep_chunks("project/a", members(b"two", b"one"))
    blob_id = await blobs.put_together("project/a", digests)
    assert isinstance(blob_id, str)
    whole = await content(blobs, blob_id)
    assert gzip.decompress(whole) == b"onetwoone"
    assert await blobs.size_bytes(blob_id) == len(whole)
    assert await blobs.digest(blob_id) == hashlib.sha256(whole).hexdigest()
    assert await blobs.digest(blob_id) == hashlib.sha256(whole).hexdigest()
    assert await blobs.put_together("project/a", digests) == blob_id
    while await blobs.remove_contents(100):
        pass
    assert await rows(database) == (1, 2)


async def test_another_project_has_none_of_the_chunks(blobs: Blobs) -> None:
    await put_together(blobs, b"secret")
    digest = member(b"secret")[0]
    assert await blobs.put_together("project/b", [digest]) == (digest,)


@pytest.mark.parametrize(
    ("digest", "data"),
    [
        ("0" * 64, gzip.compress(b"x")),
        (member(b"x")[0], b"x"),
        (member(b"x")[0], gzip.compress(b"x")[:-1]),
        (member(b"x")[0], gzip.compress(b"x") + b"y"),
        (member(b"xx")[0], gzip.compress(b"x") + gzip.compress(b"x")),
        (member(bytes(MOST_CHUNK_BYTES + 1))[0], gzip.compress(bytes(MOST_CHUNK_BYTES + 1))),
    ],
    ids=["another digest", "no gzip", "cut", "more behind", "two members", "too large"],
)
async def test_a_chunk_that_is_not_what_it_says_is_refused_with_all_that_came_with_it(
    blobs: Blobs, database: Database, digest: str, data: bytes
) -> None:
    async def chunks() -> AsyncGenerator[tuple[str, bytes]]:
        yield member(b"good")
        yield digest, data

    with pytest.raises(InvalidInputError, match=f"Chunk {digest}"):
        await blobs.keep_chunks("project/a", chunks())
    assert await rows(database) == (0, 0)


async def test_an_archive_that_gets_too_large_is_refused_before_all_of_it_came(blobs: Blobs) -> None:
    parts = [os.urandom(1500) for _ in range(6)]
    await blobs.keep_chunks("project/a", members(*parts[:3]))
    with pytest.raises(TooLargeError):
        await blobs.put_together("project/a", [member(part)[0] for part in parts])


async def test_a_chunk_stays_while_an_archive_needs_it(
    blobs: Blobs, database: Database, clock: Clock, folder: Path | None
) -> None:
    old = await put_together(blobs, b"shared", b"old")
    clock.now += 2 * CUT_OFF_S
    new = await put_together(blobs, b"shared", b"new")
    await database.write(lambda c: blobs.forget_some(c, clock.now - 1, 100))
    while await blobs.remove_contents(100):
        pass
    assert await blobs.size_bytes(old) is None
    assert gzip.decompress(await content(blobs, new)) == b"sharednew"
    clock.now += 1
    await database.write(lambda c: blobs.forget_some(c, clock.now, 100))
    clock.now += CUT_OFF_S
    while await blobs.remove_contents(100):
        pass
    assert await rows(database) == (0, 0)
    assert await contents(database, folder) == 0


async def test_what_a_killed_upload_left_goes_and_one_under_way_stays(
    blobs: Blobs, clock: Clock, database: Database, folder: Path | None
) -> None:
    await blobs.keep_chunks("project/a", members(b"old"))  # and never an archive of it
    await blobs._new_names(1)  # pyright: ignore[reportPrivateUsage] - died before anything was written
    clock.now += CUT_OFF_S + 1
    await blobs.keep_chunks("project/a", members(b"under way"))
    assert await database.write(lambda c: blobs.forget_some(c, 0, 100)) == 1
    while await blobs.remove_contents(100):
        pass
    left = await database.read(lambda c: list(c.scalars(sa.select(CHUNKS.c.id))))
    assert left == [f"project/a/{member(b'under way')[0]}"]
    assert await contents(database, folder) == 1
    due = await database.read(lambda c: list(c.scalars(sa.select(GARBAGE.c.due))))
    assert all(when > clock.now for when in due)


async def test_a_process_that_dies_before_its_rows_leaves_no_content_for_good(
    blobs: Blobs, clock: Clock, database: Database, folder: Path | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def nothing(_: object) -> None:
        pass

    def die(_: Connection) -> None:
        raise RuntimeError("killed")

    with pytest.raises(RuntimeError):
        await blobs.keep_chunks("project/a", members(b"x"), also=die)
    assert await contents(database, folder) == 0  # it lives and cleans up
    monkeypatch.setattr(blobs_module._Upload, "give_up", nothing)  # pyright: ignore[reportPrivateUsage]
    with pytest.raises(RuntimeError):
        await blobs.keep_chunks("project/a", members(b"x"), also=die)
    assert await rows(database) == (0, 0)
    assert await contents(database, folder) == 1
    assert await blobs.remove_contents(100) == 0  # it might still be under way
    clock.now += CUT_OFF_S
    while await blobs.remove_contents(100):
        pass
    assert await contents(database, folder) == 0


async def test_what_is_in_the_database_moves_into_a_folder_that_is_there_now(
    database: Database, clock: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blobs_module, "CHUNK_BYTES", 64)
    before = Blobs(database, clock, LIMIT_BYTES)
    sent = await before.put("project/a", pieces(b"z" * 100))
    made = await put_together(before, b"one", b"two")
    after = Blobs(database, clock, LIMIT_BYTES, folder=tmp_path / "files")
    assert await content(after, sent) == b"z" * 100
    while await after.move_row():
        pass
    assert await contents(database, tmp_path / "files") == 4
    assert await content(after, sent) == b"z" * 100
    assert gzip.decompress(await content(after, made)) == b"onetwo"
