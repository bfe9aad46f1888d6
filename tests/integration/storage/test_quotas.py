"""Quotas: what is counted is what is there, whoever counts at once, and nothing goes over its limit."""

import gzip
import hashlib
from collections.abc import AsyncIterator
from random import Random

import anyio
import pytest
import sqlalchemy as sa

from yunhe.kernel.errors import InvalidInputError, QuotaExceededError
from yunhe.kernel.quotas import QuotaLimits, QuotaName
from yunhe.storage.blobs import BLOBS, CHUNKS, CUT_OFF_S, LEAST_BYTES, Blobs
from yunhe.storage.database import Connection, Database
from yunhe.storage.migrate import migrate
from yunhe.storage.quotas import ProjectSettings, QuotaBook, read_uses, write_settings

pytestmark = pytest.mark.anyio

LIMITS = QuotaLimits(blob_bytes=60_000, upload_bytes_per_day=200_000, upload_file_bytes=20_000)


UNBOUNDED = QuotaBook(QuotaLimits(blob_bytes=-1))


class Clock:
    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
async def databases(database_url: str) -> AsyncIterator[list[Database]]:
    """Two processes on one database, where it takes two."""
    made = [Database(database_url) for _ in range(1 if database_url.startswith("sqlite") else 2)]
    await migrate(made[0])
    yield made
    for database in made:
        database.close()


@pytest.fixture
def clock() -> Clock:
    return Clock()


async def pieces(data: bytes, *, breaks: bool = False) -> AsyncIterator[bytes]:
    yield data
    if breaks:
        raise ConnectionResetError


async def members(parts: list[bytes]) -> AsyncIterator[tuple[str, bytes]]:
    for part in parts:
        yield hashlib.sha256(part).hexdigest(), gzip.compress(part)


async def put_together(blobs: Blobs, parts: list[bytes]) -> None:
    await blobs.keep_chunks("project/p", members(parts), project_id="p")
    digests = [hashlib.sha256(part).hexdigest() for part in parts]
    await blobs.put_together("project/p", digests, project_id="p")


def weight(connection: Connection) -> int:
    """Return what blobs and uploads of project p weigh, from their rows."""
    kept = connection.scalars(sa.select(CHUNKS.c.size_bytes).where(CHUNKS.c.project_id == "p"))
    lists = sa.select(sa.func.sum(BLOBS.c.list_bytes)).where(BLOBS.c.project_id == "p")
    return sum(max(LEAST_BYTES, size) for size in kept) + (connection.scalar(lists) or 0)


async def used(database: Database, name: QuotaName, day: int = 0) -> int:
    return (await database.read(lambda c: read_uses(c, "p", day))).get(name, 0)


@pytest.mark.parametrize("seed", range(3))
async def test_the_counter_is_what_the_rows_weigh_after_anything(
    databases: list[Database], clock: Clock, seed: int
) -> None:
    rng, blobs = Random(seed), Blobs(databases[0], clock, 1 << 20, QuotaBook(LIMITS))
    refused = killed = 0
    for _ in range(80):
        data = bytes([rng.randrange(6)]) * rng.choice((1, 300, 5_000, 12_000, 25_000))
        digest = hashlib.sha256(data).hexdigest()
        match rng.choice(("put", "put", "chunks", "chunks", "output", "wrong", "cut", "killed", "sweep")):
            case "chunks":
                work = put_together(blobs, [data, bytes([rng.randrange(6)]) * 5_000])
            case "put":
                work = blobs.put("project/p", pieces(data), digest=digest, project_id="p", sent=True)
            case "output":
                work = blobs.put(f"outputs/{rng.randrange(5)}", pieces(data), project_id="p")
            case "wrong":
                work = blobs.put("project/p", pieces(data), digest="0" * 64, project_id="p", sent=True)
            case "cut":
                work = blobs.put("project/p", pieces(data, breaks=True), project_id="p", sent=True)
            case "killed":
                killed += 1  # its process died: what came stays until it is swept
                died = Blobs(databases[0], lambda: clock.now - CUT_OFF_S - 5, 1 << 20, UNBOUNDED)
                work = died.keep_chunks("project/p", members([rng.randbytes(9)]), project_id="p")
            case _:
                clock.now += 40_000
                before = clock.now - 60_000
                work = databases[0].write(lambda c, b=before: blobs.forget_some(c, b, 3))
        try:
            await work
        except QuotaExceededError:
            refused += 1
        except (InvalidInputError, ConnectionResetError):
            pass
        assert await used(databases[0], QuotaName.BLOB_BYTES) == await databases[0].read(weight)
        assert await databases[0].read(weight) <= LIMITS.blob_bytes + LEAST_BYTES * killed
    assert refused


async def test_those_who_upload_at_once_never_go_over_the_quota(
    databases: list[Database], clock: Clock
) -> None:
    refusals: list[QuotaExceededError] = []
    stores = [Blobs(database, clock, 1 << 20, QuotaBook(LIMITS)) for database in databases]

    async def send(number: int) -> None:
        try:
            await stores[number % len(stores)].put(
                "project/p", pieces(bytes([number]) * 9_000), project_id="p", sent=True
            )
        except QuotaExceededError as error:
            refusals.append(error)

    async with anyio.create_task_group() as tasks:
        for number in range(12):
            tasks.start_soon(send, number)
    assert await databases[0].read(weight) <= LIMITS.blob_bytes
    assert await used(databases[0], QuotaName.BLOB_BYTES) == await databases[0].read(weight)
    kept = await databases[0].read(lambda c: len(list(c.scalars(sa.select(BLOBS.c.id)))))
    assert len(refusals) == 12 - kept
    assert "60000 bytes of archives and outputs" in refusals[0].problem
    assert refusals[0].fields[0].field == "quota.blob_bytes"
    assert "--max-blob-bytes" in refusals[0].remedy


async def test_what_was_sent_in_a_day_counts_though_it_is_gone_and_not_the_next_day(
    databases: list[Database], clock: Clock
) -> None:
    book = QuotaBook(QuotaLimits(upload_bytes_per_day=10_000))
    blobs = Blobs(databases[0], clock, 1 << 20, book)
    for number in range(2):
        await blobs.put("project/p", pieces(bytes([number]) * 5_000), project_id="p", sent=True)
        await databases[0].write(lambda c: blobs.forget_some(c, clock.now + 1, 10))
    assert await used(databases[0], QuotaName.BLOB_BYTES) == 0
    with pytest.raises(QuotaExceededError, match="10000 of 10000 bytes uploaded today"):
        await blobs.put("project/p", pieces(b"y"), project_id="p", sent=True)
    clock.now += 86_400
    await blobs.put("project/p", pieces(b"y" * 4_000), project_id="p", sent=True)
    day = int(clock.now // 86_400)
    assert await used(databases[0], QuotaName.UPLOAD_BYTES_PER_DAY, day) == 4_000
    assert await used(databases[0], QuotaName.UPLOAD_BYTES_PER_DAY, day - 1) == 0


async def test_an_archive_over_its_bound_is_refused_before_all_of_it_came(
    databases: list[Database], clock: Clock
) -> None:
    blobs = Blobs(databases[0], clock, 1 << 20, QuotaBook(LIMITS))
    with pytest.raises(QuotaExceededError, match="archives of 20000 bytes"):
        await blobs.put("project/p", pieces(b"z" * 20_001), project_id="p", sent=True)
    assert await databases[0].read(weight) == 0


async def test_a_project_has_its_own_limit_or_none_in_place_of_the_default(
    databases: list[Database],
) -> None:
    book = QuotaBook(QuotaLimits(blob_bytes=10))
    for limit, fits in ((30, 30), (-1, 10**9)):
        settings = ProjectSettings(limits={QuotaName.BLOB_BYTES: limit})
        await databases[0].write(lambda c, s=settings: write_settings(c, "p", s))
        await databases[0].write(lambda c, n=fits: book.charge(c, "p", QuotaName.BLOB_BYTES, n))
    with pytest.raises(QuotaExceededError):
        await databases[0].write(lambda c: book.charge(c, "other", QuotaName.BLOB_BYTES, 11))
    assert (await databases[0].read(lambda c: read_uses(c, "other", 0))) == {}
