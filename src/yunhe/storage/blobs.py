"""Blobs: archives kept in the database in chunks, named by their SHA-256, dropped when long unused."""

import hashlib
import math
import secrets
from collections.abc import AsyncIterator, Callable
from typing import NamedTuple

import anyio
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from yunhe.kernel.clock import Clock
from yunhe.kernel.errors import DiskFullError, InvalidInputError, NotFoundError, TooLargeError
from yunhe.kernel.ids import BlobId
from yunhe.kernel.quotas import NO_LIMIT, QuotaName, refusal
from yunhe.storage.database import Database, insert_if_missing, metadata
from yunhe.storage.quotas import QuotaBook, day_of, refund

CHUNK_BYTES = 1024 * 1024
LEAST_BYTES = 4096
"""A blob counts for no less: its row takes room too."""
CUT_OFF_S = 86400.0
"""Uploads that began longer ago are not going on any more."""

BLOBS = sa.Table(
    "blob",
    metadata,
    sa.Column("id", sa.String(200), primary_key=True),
    sa.Column("size_bytes", sa.BigInteger, nullable=False),
    sa.Column("used_at", sa.Float, nullable=False, index=True),
    sa.Column("project_id", sa.String(64), nullable=False, server_default=""),  # for whose quota it counts
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

    def __init__(
        self,
        database: Database,
        clock: Clock,
        limit_bytes: int,
        quotas: QuotaBook = QuotaBook(),  # noqa: B008 - it has no state
    ) -> None:
        self._database = database
        self._clock = clock
        self._limit_bytes = limit_bytes
        self._quotas = quotas

    async def put(
        self,
        scope: str,
        chunks: AsyncIterator[bytes],
        *,
        digest: str | None = None,
        also: Callable[[Connection], object] = lambda _: None,
        project_id: str = "",
        sent: bool = False,
    ) -> BlobId:
        """Keep what *chunks* yield and return its ID; with *digest*, only if that is its SHA-256.

        What *also* writes is one with what makes the blob visible. It counts for the quotas of *project_id* as it comes;
        what was *sent* by a user, for those of uploads too.
        """
        upload = f"upload/{self._clock():.0f}/{project_id}/{secrets.token_hex(8)}"
        try:
            actual, size = await self._receive(_Upload(upload, project_id, sent), chunks)
            _check_digest(actual, digest)
            blob_id = BlobId(f"{scope}/{actual}")

            def finish(connection: Connection) -> None:
                self._quotas.charge(connection, project_id, QuotaName.BLOB_BYTES, max(0, LEAST_BYTES - size))
                _finish(connection, upload, blob_id, (size, project_id), self._clock())
                also(connection)

            await self._database.write(finish)
        except BaseException:
            with anyio.CancelScope(shield=True):
                await self._database.write(lambda connection: _drop_upload(connection, upload))
            raise
        return blob_id

    async def _receive(self, upload: "_Upload", chunks: AsyncIterator[bytes]) -> tuple[str, int]:
        """Store the pieces under the upload's name and return their digest and size."""
        hasher = hashlib.sha256()
        most = await self._database.read(lambda c: self._quotas.limits(c, upload.project_id))
        file_bytes = most.upload_file_bytes if upload.sent else NO_LIMIT
        size, number, pending = 0, 0, bytearray()
        async for piece in chunks:
            hasher.update(piece)
            size += len(piece)
            if size > file_bytes != NO_LIMIT:
                name = QuotaName.UPLOAD_FILE_BYTES
                raise refusal(name, upload.project_id, used=0, asked=size, limit=file_bytes)
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

    async def _put_chunk(self, upload: "_Upload", number: int, data: bytes) -> None:
        day = day_of(self._clock())

        def put(connection: Connection) -> None:
            if upload.sent:
                self._quotas.charge(
                    connection, upload.project_id, QuotaName.UPLOAD_BYTES_PER_DAY, len(data), day
                )
            self._quotas.charge(connection, upload.project_id, QuotaName.BLOB_BYTES, len(data))
            connection.execute(CHUNKS.insert().values(blob_id=upload.name, number=number, data=data))

        await self._database.write(put, uses_reserve=False)

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

    def forget_some(self, connection: Connection, before: float, limit: int) -> int:
        """Drop up to *limit* blobs unused since *before*, and of uploads that were cut off; return how many."""
        old = sa.select(BLOBS.c.id).where(BLOBS.c.used_at < before).order_by(BLOBS.c.used_at).limit(limit)
        blobs = list(connection.scalars(old))
        for blob_id in blobs:
            drop(connection, blob_id, before)
        ends = f"upload/{self._clock() - CUT_OFF_S:.0f}/"
        cut_off = CHUNKS.c.blob_id.between("upload/", ends)
        uploads = list(connection.scalars(sa.select(CHUNKS.c.blob_id).where(cut_off).distinct().limit(limit)))
        for upload in uploads:
            _drop_upload(connection, upload)
        return len(blobs) + len(uploads)


class _Upload(NamedTuple):
    """An archive that is on its way."""

    name: str
    project_id: str
    sent: bool


def _check_digest(actual: str, wanted: str | None) -> None:
    if wanted not in (None, actual):
        raise InvalidInputError(
            f"The archive's SHA-256 is {actual}, not {wanted}.", remedy="Upload it again."
        )


def _finish(
    connection: Connection, upload: str, blob_id: BlobId, weight: tuple[int, str], now: float
) -> None:
    """Give the upload its name; of several that bring the same content at once, one is kept."""
    size, project_id = weight
    made = insert_if_missing(
        connection, BLOBS, id=blob_id, size_bytes=size, used_at=now, project_id=project_id
    )
    if made:
        connection.execute(CHUNKS.update().where(CHUNKS.c.blob_id == upload).values(blob_id=blob_id))
        return
    connection.execute(CHUNKS.delete().where(CHUNKS.c.blob_id == upload))
    refund(connection, project_id, QuotaName.BLOB_BYTES, max(size, LEAST_BYTES))
    connection.execute(BLOBS.update().where(BLOBS.c.id == blob_id).values(used_at=now))


def drop(connection: Connection, blob_id: str, unused_since: float = math.inf) -> None:
    """Drop a blob, and count it no more; one that is not there, or was used since then, stays so."""
    mine = (BLOBS.c.id == blob_id) & (BLOBS.c.used_at < unused_since)
    row = connection.execute(sa.select(BLOBS).where(mine).with_for_update()).first()
    if row is None:
        return
    connection.execute(CHUNKS.delete().where(CHUNKS.c.blob_id == blob_id))
    connection.execute(BLOBS.delete().where(BLOBS.c.id == blob_id))
    refund(connection, row.project_id, QuotaName.BLOB_BYTES, max(row.size_bytes, LEAST_BYTES))


def _drop_upload(connection: Connection, upload: str) -> None:
    """Drop what came of an upload, and count it no more."""
    size = sa.func.coalesce(sa.func.sum(sa.func.length(CHUNKS.c.data)), 0)
    came = connection.scalar(sa.select(size).where(CHUNKS.c.blob_id == upload)) or 0
    connection.execute(CHUNKS.delete().where(CHUNKS.c.blob_id == upload))
    refund(connection, upload.split("/")[2], QuotaName.BLOB_BYTES, int(came))
