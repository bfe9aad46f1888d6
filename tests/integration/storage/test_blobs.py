"""Blobs: named by what they hold, visible only when whole, gone when long unused."""

import hashlib
from collections.abc import AsyncGenerator

import anyio
import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy.engine import Connection

from yunhe.kernel.errors import InvalidInputError, NotFoundError, TooLargeError
from yunhe.kernel.ids import BlobId
from yunhe.storage import blobs as blobs_module
from yunhe.storage.blobs import BLOBS, CHUNKS, CUT_OFF_S, Blobs
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


@pytest.fixture
def blobs(database: Database, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> Blobs:
    monkeypatch.setattr(blobs_module, "CHUNK_BYTES", 64)
    return Blobs(database, clock, LIMIT_BYTES)


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
    ("chunks", "digest", "error"),
    [
        (lambda: pieces(b"abc"), "0" * 64, InvalidInputError),
        (lambda: pieces(b"x" * LIMIT_BYTES, b"x"), None, TooLargeError),
        (lambda: broken(3), None, ConnectionError),
    ],
    ids=["wrong digest", "too large", "cut off"],
)
async def test_an_upload_that_fails_leaves_nothing(
    blobs: Blobs, database: Database, chunks: object, digest: str | None, error: type[Exception]
) -> None:
    assert callable(chunks)
    with pytest.raises(error):
        await blobs.put("project/a", chunks(), digest=digest)  # pyright: ignore[reportArgumentType]
    assert await rows(database) == (0, 0)


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


async def test_what_a_killed_upload_left_goes_and_one_under_way_stays(
    blobs: Blobs, clock: Clock, database: Database
) -> None:
    def chunk(began: float) -> dict[str, object]:
        return {"blob_id": f"upload/{began:.0f}/a/ab", "number": 0, "data": b"x"}

    old, under_way = clock.now - CUT_OFF_S - 1000, clock.now - 1000
    await database.write(lambda c: c.execute(CHUNKS.insert(), [chunk(old), chunk(under_way)]))
    assert await database.write(lambda c: blobs.forget_some(c, 0, 100)) == 1
    left = await database.read(lambda c: list(c.scalars(sa.select(CHUNKS.c.blob_id))))
    assert left == [f"upload/{under_way:.0f}/a/ab"]
