"""Blobs: archives kept in the database in chunks, named by their SHA-256, dropped when long unused."""

import hashlib
import secrets
from collections.abc import AsyncIterator, Callable

import anyio
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from yunhe.kernel.clock import Clock
from yunhe.kernel.errors import DiskFullError, InvalidInputError, NotFoundError, TooLargeError
from yunhe.kernel.ids import BlobId
from yunhe.storage.database import Database, insert_if_missing, metadata

CHUNK_BYTES = 1024 * 1024

BLOBS = sa.Table(
    "blob",
    metadata,
    sa.Column("id", sa.String(200), primary_key=True),
    sa.Column("size_bytes", sa.BigInteger, nullable=False),
    sa.Column("used_at", sa.Float, nullable=False),
)
CHUNKS = sa.Table(
    "blob_chunk",
    metadata,
    sa.Column("blob_id", sa.String(200), primary_key=True),
    sa.Column("number", sa.Integer, primary_key=True),
    sa.Column("data", sa.LargeBinary, nullable=False),
)


class Blobs:
    """Keeps archives; a blob is visible only once it is whole and its digest is right."""

    def __init__(self, database: Database, clock: Clock, limit_bytes: int) -> None:
        self._database = database
        self._clock = clock
        self._limit_bytes = limit_bytes

    async def put(
        self,
        scope: str,
        chunks: AsyncIterator[bytes],
        *,
        digest: str | None = None,
        also: Callable[[Connection], object] = lambda _: None,
    ) -> BlobId:
        """Keep what *chunks* yield and return its ID; with *digest*, only if that is its SHA-256.

        What *also* writes is one with what makes the blob visible.
        """
        upload = f"upload/{self._clock():.0f}/{secrets.token_hex(8)}"
        try:
            actual, size = await self._receive(upload, chunks)
            _check_digest(actual, digest)
            blob_id = BlobId(f"{scope}/{actual}")

            def finish(connection: Connection) -> None:
                _finish(connection, upload, blob_id, size, self._clock())
                also(connection)

            await self._database.write(finish)
        except BaseException:
            with anyio.CancelScope(shield=True):
                await self._database.write(lambda connection: _drop(connection, upload))
            raise
        return blob_id

    async def _receive(self, upload: str, chunks: AsyncIterator[bytes]) -> tuple[str, int]:
        """Store the pieces under the upload's name and return their digest and size."""
        hasher = hashlib.sha256()
        size, number, pending = 0, 0, bytearray()
        async for piece in chunks:
            hasher.update(piece)
            size += len(piece)
            if size > self._limit_bytes:
                raise TooLargeError(
                    f"The archive is larger than {self._limit_bytes} bytes.",
                    remedy="Leave large data out of workdir and file_mounts.",
                )
            pending += piece
            while len(pending) >= CHUNK_BYTES:
                await self._put_chunk(upload, number, bytes(pending[:CHUNK_BYTES]))
                del pending[:CHUNK_BYTES]
                number += 1
        if pending:
            await self._put_chunk(upload, number, bytes(pending))
        return hasher.hexdigest(), size

    async def _put_chunk(self, upload: str, number: int, data: bytes) -> None:
        await self._database.write(
            lambda connection: connection.execute(
                CHUNKS.insert().values(blob_id=upload, number=number, data=data)
            ),
            uses_reserve=False,
        )

    async def size_bytes(self, blob_id: BlobId) -> int | None:
        """Return how large a blob is and note that it is in use; None when it is not there."""
        now = self._clock()

        def touch(connection: Connection) -> int | None:
            size = connection.scalar(sa.select(BLOBS.c.size_bytes).where(BLOBS.c.id == blob_id))
            if size is not None:
                connection.execute(BLOBS.update().where(BLOBS.c.id == blob_id).values(used_at=now))
            return size

        try:
            return await self._database.write(touch, uses_reserve=False)
        except DiskFullError:  # a blob can still be read
            return await self._database.read(
                lambda c: c.scalar(sa.select(BLOBS.c.size_bytes).where(BLOBS.c.id == blob_id))
            )

    async def chunks(self, blob_id: BlobId) -> AsyncIterator[bytes]:
        """Yield a blob's bytes."""
        if await self.size_bytes(blob_id) is None:
            raise NotFoundError(f"There is no archive {blob_id}.", remedy="Upload it again.")
        number = 0
        while True:
            data = await self._database.read(
                lambda connection, n=number: connection.scalar(
                    sa.select(CHUNKS.c.data).where(CHUNKS.c.blob_id == blob_id, CHUNKS.c.number == n)
                )
            )
            if data is None:
                return
            yield data
            number += 1

    async def forget_before(self, at: float) -> int:
        """Drop blobs unused since *at*, and what uploads cut off before then have left."""

        def drop(connection: Connection) -> int:
            old = list(connection.scalars(sa.select(BLOBS.c.id).where(BLOBS.c.used_at < at)))
            for blob_id in old:
                _drop(connection, blob_id)
            cut_off = CHUNKS.c.blob_id.between("upload/", f"upload/{at:.0f}/")
            connection.execute(CHUNKS.delete().where(cut_off))
            return len(old)

        return await self._database.write(drop)


def _check_digest(actual: str, wanted: str | None) -> None:
    if wanted not in (None, actual):
        raise InvalidInputError(
            f"The archive's SHA-256 is {actual}, not {wanted}.", remedy="Upload it again."
        )


def _finish(connection: Connection, upload: str, blob_id: BlobId, size: int, now: float) -> None:
    """Give the upload its name; of several that bring the same content at once, one is kept."""
    if insert_if_missing(connection, BLOBS, id=blob_id, size_bytes=size, used_at=now):
        connection.execute(CHUNKS.update().where(CHUNKS.c.blob_id == upload).values(blob_id=blob_id))
        return
    _drop(connection, upload)
    connection.execute(BLOBS.update().where(BLOBS.c.id == blob_id).values(used_at=now))


def _drop(connection: Connection, blob_id: str) -> None:
    connection.execute(CHUNKS.delete().where(CHUNKS.c.blob_id == blob_id))
    connection.execute(BLOBS.delete().where(BLOBS.c.id == blob_id))
