"""Blobs: archives as lists of chunks, dropped when long unused; the bytes of chunks are ``Contents``.

An archive that is sent whole, and outputs, are cut as they come, and nobody else has their chunks. An archive that is put
together names chunks by the SHA-256 of what they unpack to: each is a gzip member, and members in a row are a gzip file.
Such chunks are shared within their scope, and stay while an archive there needs them.
"""

import hashlib
import math
import secrets
import zlib
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from pathlib import Path

import anyio
import anyio.to_thread
import msgspec
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from yunhe.kernel.clock import Clock
from yunhe.kernel.errors import (
    DiskFullError,
    FieldProblem,
    InvalidInputError,
    NotFoundError,
    TooLargeError,
)
from yunhe.kernel.ids import BlobId
from yunhe.kernel.quotas import NO_LIMIT, QuotaName, refusal
from yunhe.storage.contents import Contents, claim, discard, drop_row, new_names
from yunhe.storage.database import AnyRow, Database, insert_if_missing, metadata
from yunhe.storage.quotas import QuotaBook, day_of, refund

CHUNK_BYTES = 1024 * 1024
MOST_CHUNK_BYTES = 4 * CHUNK_BYTES
"""A chunk that is sent may be so large, packed and unpacked."""
TOGETHER_BYTES = 4 * CHUNK_BYTES
"""So much of what is sent is written at once."""
LEAST_BYTES = 4096
"""A chunk, and a list of chunks, counts for no less: its row takes room too."""
CUT_OFF_S = 86400.0
"""What no archive needs goes so long after it came: an upload that was cut off may go on until then."""
_AT_ONCE = 500
_NAMES = 16
"""For contents, of an upload, are made at once."""

BLOBS = sa.Table(
    "blob",
    metadata,
    sa.Column("id", sa.String(200), primary_key=True),
    sa.Column("size_bytes", sa.BigInteger, nullable=False),
    sa.Column("used_at", sa.Float, nullable=False, index=True),
    sa.Column("project_id", sa.String(64), nullable=False, server_default=""),  # for whose quota it counts
    sa.Column("digest", sa.String(64), nullable=False, server_default=""),  # its SHA-256, when it is known
    sa.Column("chunks", sa.LargeBinary, nullable=False, server_default=""),  # their IDs, in order
    sa.Column("list_bytes", sa.BigInteger, nullable=False, server_default="0"),  # what the list counts for
)
CHUNKS = sa.Table(
    "chunk",
    metadata,
    sa.Column("id", sa.String(220), primary_key=True),
    sa.Column("name", sa.String(220), nullable=False, index=True),  # of its content
    sa.Column("size_bytes", sa.BigInteger, nullable=False),
    sa.Column("refs", sa.Integer, nullable=False),  # how many blobs need it
    sa.Column("used_at", sa.Float, nullable=False),
    sa.Column("project_id", sa.String(64), nullable=False),
    sa.Index("ix_chunk_refs_used_at", "refs", "used_at"),
)

Also = Callable[[Connection], object]
_IDS = msgspec.msgpack.Decoder(tuple[str, ...])


class Blobs:
    """Keeps archives; a blob is visible only once it is whole and its digest is right."""

    def __init__(
        self,
        database: Database,
        clock: Clock,
        limit_bytes: int,
        quotas: QuotaBook = QuotaBook(),  # noqa: B008 - it has no state
        folder: Path | None = None,
    ) -> None:
        self._database = database
        self._clock = clock
        self._limit_bytes = limit_bytes
        self._quotas = quotas
        self._contents = Contents(database, folder)

    async def put(
        self,
        scope: str,
        chunks: AsyncIterator[bytes],
        *,
        digest: str | None = None,
        also: Also = lambda _: None,
        project_id: str = "",
        sent: bool = False,
    ) -> BlobId:
        """Keep what *chunks* yield and return its ID; with *digest*, only if that is its SHA-256.

        What *also* writes is one with what makes the blob visible. It counts for the quotas of *project_id* as it comes;
        what was *sent* by a user, for those of uploads too.
        """
        upload = _Upload(self._database, self._contents, self._quotas, self._clock, project_id)
        prefix = f"upload/{self._clock():.0f}/{project_id}/{secrets.token_hex(8)}"
        try:
            actual, size = await self._receive(upload, prefix, chunks, sent=sent)
            _check_digest(actual, digest)
            blob_id = BlobId(f"{scope}/{actual}")

            def finish(connection: Connection) -> None:
                whole = _Blob(blob_id, size, project_id, digest=actual, chunks=tuple(upload.ids))
                self._finish(connection, whole, LEAST_BYTES if not upload.ids else 0)
                claim(connection, upload.unused)
                also(connection)

            await self._database.write(finish)
        except BaseException:
            await upload.give_up()
            raise
        return blob_id

    async def _receive(
        self, upload: "_Upload", prefix: str, chunks: AsyncIterator[bytes], *, sent: bool
    ) -> tuple[str, int]:
        """Store the pieces and return their digest and size."""
        hasher = hashlib.sha256()
        most = await self._database.read(lambda c: self._quotas.limits(c, upload.project_id))
        file_bytes = most.upload_file_bytes if sent else NO_LIMIT
        size, pending = 0, bytearray()

        async def store(data: bytes) -> None:
            await upload.write([(f"{prefix}/{len(upload.ids)}", data)])
            await upload.record(len(data) if sent else 0)

        async for piece in chunks:
            hasher.update(piece)
            size += len(piece)
            self._check_size(upload.project_id, size, file_bytes)
            pending += piece
            while len(pending) >= CHUNK_BYTES:
                await store(bytes(pending[:CHUNK_BYTES]))
                del pending[:CHUNK_BYTES]
        if pending:
            await store(bytes(pending))
        return hasher.hexdigest(), size

    def _check_size(self, project_id: str, size: int, file_bytes: int) -> None:
        if size > file_bytes != NO_LIMIT:
            raise refusal(QuotaName.UPLOAD_FILE_BYTES, project_id, used=0, asked=size, limit=file_bytes)
        if size > self._limit_bytes:
            raise TooLargeError(
                f"The archive is larger than {self._limit_bytes} bytes.",
                remedy="Leave large data out of workdir and file_mounts.",
            )

    async def keep_chunks(
        self,
        scope: str,
        chunks: AsyncIterator[tuple[str, bytes]],
        *,
        project_id: str = "",
        also: Also = lambda _: None,
    ) -> int:
        """Keep gzip members, each with the SHA-256 of what it unpacks to, all or none; return how many came.

        They count for the quotas of *project_id*; those that no archive needs within a day go again.
        """
        upload = _Upload(self._database, self._contents, self._quotas, self._clock, project_id)
        pending, pending_bytes, came_bytes = list[tuple[str, bytes]](), 0, 0
        try:
            async for digest, member in chunks:
                await anyio.to_thread.run_sync(_check_member, digest, member)
                pending.append((f"{scope}/{digest}", member))
                pending_bytes += len(member)
                came_bytes += len(member)
                if pending_bytes >= TOGETHER_BYTES:
                    await upload.write(pending)
                    pending, pending_bytes = [], 0
            await upload.write(pending)
            await upload.record(came_bytes, also)
        except BaseException:
            await upload.give_up()
            raise
        return len(upload.ids)

    async def put_together(
        self,
        scope: str,
        digests: Sequence[str],
        *,
        project_id: str = "",
        also: Also = lambda _: None,
    ) -> BlobId | tuple[str, ...]:
        """Make one archive of chunks that are there and return its ID; else return the digests of those that are not."""
        whole = hashlib.sha256(b"".join(map(bytes.fromhex, digests))).hexdigest()
        blob_id = BlobId(f"{scope}/{whole}")
        ids = tuple(f"{scope}/{digest}" for digest in digests)

        def make(connection: Connection) -> BlobId | tuple[str, ...]:
            mine = BLOBS.c.id == blob_id
            if connection.execute(BLOBS.update().where(mine).values(used_at=self._clock())).rowcount:
                return blob_id
            sizes = _sizes(connection, ids)
            size = sum(sizes.get(one, 0) for one in ids)
            most = self._quotas.limits(connection, project_id).upload_file_bytes
            self._check_size(project_id, size, most)
            missing = [digest for digest, one in zip(digests, ids, strict=True) if one not in sizes]
            if missing:
                return tuple(dict.fromkeys(missing))
            new = _Blob(blob_id, size, project_id, chunks=ids)
            self._finish(connection, new, max(LEAST_BYTES, len(new.packed())))
            also(connection)
            return blob_id

        return await self._database.write(make, uses_reserve=False)

    def _finish(self, connection: Connection, blob: "_Blob", list_bytes: int) -> None:
        """Make a blob visible; of several that bring the same content at once, one is kept."""
        now = self._clock()
        made = insert_if_missing(
            connection,
            BLOBS,
            id=blob.id,
            size_bytes=blob.size_bytes,
            used_at=now,
            project_id=blob.project_id,
            digest=blob.digest,
            chunks=blob.packed(),
            list_bytes=list_bytes,
        )
        if not made:
            if blob.digest:  # it came whole, with chunks of its own
                _drop_chunks(connection, blob.chunks)
            connection.execute(BLOBS.update().where(BLOBS.c.id == blob.id).values(used_at=now))
            return
        if list_bytes:
            self._quotas.charge(connection, blob.project_id, QuotaName.BLOB_BYTES, list_bytes)
        held = 0
        ids = sorted(set(blob.chunks))
        for some in _some(ids):
            more = CHUNKS.update().where(CHUNKS.c.id.in_(some)).values(refs=CHUNKS.c.refs + 1)
            held += connection.execute(more).rowcount
        if held != len(ids):
            raise NotFoundError("A part of the archive is gone.", remedy="Send it again.")

    async def size_bytes(self, blob_id: BlobId) -> int | None:
        """Return how large a blob is and note that it is in use; None when it is not there."""
        row = await self._used(blob_id)
        return None if row is None else row.size_bytes

    async def _used(self, blob_id: BlobId) -> AnyRow | None:
        now = self._clock()
        mine = sa.select(BLOBS).where(BLOBS.c.id == blob_id)

        def touch(connection: Connection) -> AnyRow | None:
            connection.execute(BLOBS.update().where(BLOBS.c.id == blob_id).values(used_at=now))
            return connection.execute(mine).first()

        try:
            return await self._database.write(touch, uses_reserve=False)
        except DiskFullError:  # a blob can still be read
            return await self._database.read(lambda c: c.execute(mine).first())

    async def digest(self, blob_id: BlobId) -> str:
        """Return a blob's SHA-256; of one that was put together, it is read for that once."""
        row = await self._used(blob_id)
        if row is not None and row.digest:
            return row.digest
        hasher = hashlib.sha256()
        async for piece in self.chunks(blob_id):
            await anyio.to_thread.run_sync(hasher.update, piece)
        digest = hasher.hexdigest()
        keep = BLOBS.update().where(BLOBS.c.id == blob_id).values(digest=digest)
        await self._database.write(lambda c: c.execute(keep))
        return digest

    async def chunks(self, blob_id: BlobId) -> AsyncIterator[bytes]:
        """Yield a blob's bytes."""
        row = await self._used(blob_id)
        if row is None:
            raise NotFoundError(f"There is no archive {blob_id}.", remedy="Upload it again.")
        ids = _unpacked(row.chunks)
        for some in _some(ids):
            query = sa.select(CHUNKS.c.id, CHUNKS.c.name).where(CHUNKS.c.id.in_(set(some)))
            found = await self._database.read(lambda c, q=query: list(c.execute(q)))
            names: dict[str, str] = {one.id: one.name for one in found}
            for chunk_id in some:
                data = await self._content(chunk_id, names.get(chunk_id, ""))
                if data is None:
                    raise NotFoundError(f"A part of archive {blob_id} is gone.", remedy="Upload it again.")
                yield data

    async def _content(self, chunk_id: str, name: str) -> bytes | None:
        """Return a chunk's bytes; where they have just become a file, they are looked for again."""
        data = await self._contents.read(name)
        if data is not None:
            return data
        query = sa.select(CHUNKS.c.name).where(CHUNKS.c.id == chunk_id)
        return await self._contents.read(await self._database.read(lambda c: c.scalar(query)) or "")

    def forget_some(self, connection: Connection, before: float, limit: int) -> int:
        """Drop up to *limit* blobs unused since *before*, and chunks that no blob needs; return how many."""
        old = sa.select(BLOBS.c.id).where(BLOBS.c.used_at < before).order_by(BLOBS.c.used_at).limit(limit)
        blobs = list(connection.scalars(old))
        for blob_id in blobs:
            drop(connection, blob_id, before)
        unneeded = (CHUNKS.c.refs <= 0) & (CHUNKS.c.used_at < self._clock() - CUT_OFF_S)
        chunks = list(connection.scalars(sa.select(CHUNKS.c.id).where(unneeded).limit(limit)))
        _drop_chunks(connection, chunks)
        return len(blobs) + len(chunks)

    async def remove_contents(self, most: int) -> int:
        """Remove up to *most* contents of what was dropped; return how many there were."""
        return await self._contents.remove_garbage(self._clock(), most)

    async def move_row(self) -> bool:
        """Move one content that is a row of the database into the folder; return whether there was one."""
        old = await self._contents.first_row()
        if old is None:
            return False
        data = await self._contents.read(old)
        (name,) = await self._new_names(1)
        if data is not None:
            await self._contents.write([(name, data)])

        def moved(connection: Connection) -> None:
            drop_row(connection, old)
            if connection.execute(CHUNKS.update().where(CHUNKS.c.name == old).values(name=name)).rowcount:
                claim(connection, [name])

        await self._database.write(moved)
        return True

    async def _new_names(self, count: int) -> list[str]:
        names, due = new_names(count), self._clock() + CUT_OFF_S
        await self._database.write(lambda c: discard(c, names, due), uses_reserve=False)
        return names


class _Blob(msgspec.Struct, frozen=True):
    """A blob that becomes visible."""

    id: BlobId
    size_bytes: int
    project_id: str
    digest: str = ""
    chunks: tuple[str, ...] = ()

    def packed(self) -> bytes:
        """Return the list of chunks as it is kept."""
        return zlib.compress(msgspec.msgpack.encode(self.chunks), 1)


class _Upload:
    """Chunks that are on their way: first their names are known, then their bytes are kept, then their rows."""

    def __init__(
        self, database: Database, contents: Contents, quotas: QuotaBook, clock: Clock, project_id: str
    ) -> None:
        self._database = database
        self._contents = contents
        self._quotas = quotas
        self._clock = clock
        self.project_id = project_id
        self.unused: list[str] = []
        """Names that nothing was written under."""
        self.written: list[tuple[str, str, int]] = []
        """ID, name of the content and size of what has no row yet."""
        self.ids: list[str] = []
        """Of the chunks that have one."""

    async def write(self, pieces: Sequence[tuple[str, bytes]]) -> None:
        """Keep the bytes of chunks."""
        if not pieces:
            return
        if len(self.unused) < len(pieces):
            fresh, due = new_names(max(_NAMES, len(pieces))), self._clock() + CUT_OFF_S
            await self._database.write(lambda c: discard(c, fresh, due), uses_reserve=False)
            self.unused += fresh
        names = [self.unused.pop() for _ in pieces]
        await self._contents.write([(name, data) for name, (_, data) in zip(names, pieces, strict=True)])
        self.written += [
            (chunk_id, name, len(data)) for name, (chunk_id, data) in zip(names, pieces, strict=True)
        ]

    async def record(self, sent_bytes: int, also: Also = lambda _: None) -> None:
        """Make rows of what was written, and count it; what is there already stays as it is."""
        now = self._clock()

        def insert(connection: Connection) -> None:
            if sent_bytes:
                name = QuotaName.UPLOAD_BYTES_PER_DAY
                self._quotas.charge(connection, self.project_id, name, sent_bytes, day_of(now))
            kept, weight = list[str](), 0
            for chunk_id, content, size in self.written:
                row = {"id": chunk_id, "name": content, "size_bytes": size, "refs": 0, "used_at": now}
                if insert_if_missing(connection, CHUNKS, **row, project_id=self.project_id):
                    kept.append(content)
                    weight += max(size, LEAST_BYTES)
                else:
                    connection.execute(CHUNKS.update().where(CHUNKS.c.id == chunk_id).values(used_at=now))
            if weight:
                self._quotas.charge(connection, self.project_id, QuotaName.BLOB_BYTES, weight)
            claim(connection, kept)
            again = [content for _, content, _ in self.written if content not in kept]
            claim(connection, again)
            discard(connection, again, 0.0)
            also(connection)

        await self._database.write(insert, uses_reserve=False)
        self.ids += [chunk_id for chunk_id, _, _ in self.written]
        self.written.clear()

    async def give_up(self) -> None:
        """Remove what came, whoever else is told to stop meanwhile."""
        names = [*self.unused, *(name for _, name, _ in self.written)]

        def forget(connection: Connection) -> None:
            _drop_chunks(connection, self.ids)
            claim(connection, names)
            discard(connection, names, 0.0)

        with anyio.CancelScope(shield=True):
            await self._database.write(forget)
            await self._contents.remove_garbage(self._clock(), len(names) + len(self.ids))


def drop(connection: Connection, blob_id: str, unused_since: float = math.inf) -> None:
    """Drop a blob, and count it no more; one that is not there, or was used since then, stays so."""
    mine = (BLOBS.c.id == blob_id) & (BLOBS.c.used_at < unused_since)
    row = connection.execute(sa.select(BLOBS).where(mine).with_for_update()).first()
    if row is None:
        return
    connection.execute(BLOBS.delete().where(BLOBS.c.id == blob_id))
    refund(connection, row.project_id, QuotaName.BLOB_BYTES, row.list_bytes)
    ids = sorted(set(_unpacked(row.chunks)))
    for some in _some(ids):
        less = CHUNKS.update().where(CHUNKS.c.id.in_(some)).values(refs=CHUNKS.c.refs - 1)
        connection.execute(less)
    _drop_chunks(connection, ids)


def _drop_chunks(connection: Connection, ids: Sequence[str]) -> None:
    """Drop those of *ids* that no blob needs, and count them no more; their contents go later."""
    for some in _some(ids):
        gone = CHUNKS.delete().where(CHUNKS.c.id.in_(some), CHUNKS.c.refs <= 0)
        columns = (CHUNKS.c.name, CHUNKS.c.size_bytes, CHUNKS.c.project_id)
        rows = list(connection.execute(gone.returning(*columns)))
        discard(connection, [row.name for row in rows], 0.0)
        for project_id in {row.project_id for row in rows}:
            weight = sum(max(row.size_bytes, LEAST_BYTES) for row in rows if row.project_id == project_id)
            refund(connection, project_id, QuotaName.BLOB_BYTES, weight)


def _sizes(connection: Connection, ids: Iterable[str]) -> dict[str, int]:
    found: dict[str, int] = {}
    for some in _some(list(dict.fromkeys(ids))):
        query = sa.select(CHUNKS.c.id, CHUNKS.c.size_bytes).where(CHUNKS.c.id.in_(some))
        found |= {row.id: row.size_bytes for row in connection.execute(query)}
    return found


def _some(ids: Sequence[str]) -> list[Sequence[str]]:
    """Return *ids* in parts that a statement takes."""
    return [ids[start : start + _AT_ONCE] for start in range(0, len(ids), _AT_ONCE)]


def _unpacked(chunks: bytes) -> tuple[str, ...]:
    return _IDS.decode(zlib.decompress(chunks))


def _check_digest(actual: str, wanted: str | None) -> None:
    if wanted not in (None, actual):
        raise InvalidInputError(
            f"The archive's SHA-256 is {actual}, not {wanted}.", remedy="Upload it again."
        )


def _check_member(digest: str, member: bytes) -> None:
    """Refuse what is not one gzip member, is too large unpacked, or unpacks to something else than it says."""
    reader = zlib.decompressobj(16 + zlib.MAX_WBITS)
    try:
        data = reader.decompress(member, MOST_CHUNK_BYTES + 1)
        whole = reader.eof and not reader.unused_data and len(data) <= MOST_CHUNK_BYTES
        problem = "" if whole else f"is not one gzip member of at most {MOST_CHUNK_BYTES} bytes"
    except zlib.error as error:
        data, problem = b"", f"cannot be unpacked: {error}"
    if not problem and hashlib.sha256(data).hexdigest() != digest:
        problem = "unpacks to something else"
    if problem:
        raise InvalidInputError(
            f"Chunk {digest} {problem}.",
            remedy="Send it again; yunhe run does so by itself.",
            fields=(FieldProblem("chunk", problem, digest),),
        )
