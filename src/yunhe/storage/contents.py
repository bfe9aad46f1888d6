"""Contents: bytes under names that are used once, as files below a folder where there is one, else as rows.

A name is written down as garbage before its bytes are, and struck off in the transaction that needs them. So whoever dies
on the way leaves nothing that is not removed later, and nobody removes what another has just written.
"""

import errno
import os
import secrets
from collections.abc import Iterable, Sequence
from pathlib import Path

import anyio.to_thread
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from yunhe.agent.durable import sync_directory, write_whole
from yunhe.kernel.errors import DiskFullError
from yunhe.storage.database import Database, metadata

ROWS = sa.Table(
    "blob_chunk",
    metadata,
    sa.Column("blob_id", sa.String(200), primary_key=True),
    sa.Column("number", sa.Integer, primary_key=True),
    sa.Column("data", sa.LargeBinary, nullable=False),
)
GARBAGE = sa.Table(
    "blob_garbage",
    metadata,
    sa.Column("name", sa.String(220), primary_key=True),
    sa.Column("due", sa.Float, nullable=False, index=True),  # when it may go
)
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)


class Contents:
    """Keeps bytes; *folder* must be one that every server sees. Without it, they are rows of the database."""

    def __init__(self, database: Database, folder: Path | None) -> None:
        self._database = database
        self._folder = folder

    async def write(self, pieces: Sequence[tuple[str, bytes]]) -> None:
        """Keep pieces for good, each under a name of ``new_names``; raise ``DiskFullError`` when there is no room."""
        if self._folder is None:
            rows = [{"blob_id": name, "number": 0, "data": data} for name, data in pieces]
            await self._database.write(lambda c: c.execute(ROWS.insert(), rows), uses_reserve=False)
        elif pieces:
            await anyio.to_thread.run_sync(_write_files, self._folder, pieces)

    async def read(self, name: str) -> bytes | None:
        """Return what is kept under *name*; None: nothing is."""
        if self._folder is not None and "/" not in name:
            data = await anyio.to_thread.run_sync(_read_file, _path(self._folder, name))
            if data is not None:
                return data
        query = sa.select(ROWS.c.data).where(_row(name))
        return await self._database.read(lambda c: c.scalar(query))

    async def remove_garbage(self, now: float, most: int) -> int:
        """Remove up to *most* contents that nobody needs; return how many there were."""
        query = sa.select(GARBAGE.c.name).where(GARBAGE.c.due <= now).limit(most)
        names = await self._database.read(lambda c: list(c.scalars(query)))
        if not names:
            return 0
        if self._folder is not None:
            paths = [_path(self._folder, name) for name in names if "/" not in name]
            await anyio.to_thread.run_sync(_remove_files, paths)

        def forget(connection: Connection) -> None:
            for name in names:
                connection.execute(ROWS.delete().where(_row(name)))
            claim(connection, names)

        await self._database.write(forget)
        return len(names)

    async def first_row(self) -> str | None:
        """Return the name of a content that is a row and should be a file; None: all is as it should be."""
        if self._folder is None:
            return None
        row = await self._database.read(
            lambda c: c.execute(sa.select(ROWS.c.blob_id, ROWS.c.number).limit(1)).first()
        )
        if row is None:
            return None
        return f"{row.blob_id}/{row.number}" if "/" in row.blob_id else row.blob_id


def new_names(count: int) -> list[str]:
    """Return names for contents that are written together; they lie in one folder, which is synced once."""
    shelf = secrets.token_hex(1)
    return [shelf + secrets.token_hex(15) for _ in range(count)]


def discard(connection: Connection, names: Iterable[str], due: float) -> None:
    """Let contents go when they are *due*, unless somebody claims them before."""
    rows = [{"name": name, "due": due} for name in names]
    if rows:
        connection.execute(GARBAGE.insert(), rows)


def claim(connection: Connection, names: Sequence[str]) -> None:
    """Keep contents after all, or strike off those that are gone."""
    for start in range(0, len(names), 500):
        connection.execute(GARBAGE.delete().where(GARBAGE.c.name.in_(names[start : start + 500])))


def drop_row(connection: Connection, name: str) -> None:
    """Remove a content that was a row and is a file now."""
    connection.execute(ROWS.delete().where(_row(name)))


def _row(name: str) -> sa.ColumnElement[bool]:
    """Return which row holds *name*: those of before are named after their archive, with a number."""
    blob_id, _, number = name.rpartition("/")
    return (ROWS.c.blob_id == (blob_id or name)) & (ROWS.c.number == (int(number) if blob_id else 0))


def _path(folder: Path, name: str) -> Path:
    return folder / name[:2] / name


def _write_files(folder: Path, pieces: Sequence[tuple[str, bytes]]) -> None:
    shelves = {_path(folder, name).parent for name, _ in pieces}
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for shelf in shelves:
            shelf.mkdir(mode=0o700, exist_ok=True)
        sync_directory(str(folder))
        for name, data in pieces:
            handle = os.open(_path(folder, name), os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            try:
                write_whole(handle, data)
                os.fsync(handle)
            finally:
                os.close(handle)
        for shelf in shelves:
            sync_directory(str(shelf))
    except OSError as error:
        if error.errno in _NO_ROOM:
            raise DiskFullError(
                "There is no room to keep files.",
                remedy=f"Free some space where {folder} is; then it goes on by itself.",
            ) from error
        raise


def _read_file(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


def _remove_files(paths: Iterable[Path]) -> None:
    for path in paths:
        path.unlink(missing_ok=True)
