"""An allocation's directory, in memory."""

import hashlib
import io
import tarfile
import zlib
from fnmatch import fnmatchcase
from pathlib import PurePosixPath

from yunhe.infrastructure.contract.model import Upload
from yunhe.kernel.errors import InvalidInputError


class FakeDirectory:
    """Files by path, and which archives have come."""

    def __init__(self) -> None:
        self._files: dict[PurePosixPath, bytes] = {}
        self._arrived: dict[PurePosixPath, str] = {}
        self.written_bytes = 0

    @property
    def size_bytes(self) -> int:
        """How much the files hold."""
        return sum(len(data) for data in self._files.values())

    def read(self, path: str) -> bytes | None:
        """Return a file's content, or None where there is none."""
        return self._files.get(inside(path))

    def write(self, path: str, data: bytes, *, append: bool) -> None:
        """Put *data* into a file."""
        name = inside(path)
        self.written_bytes += len(data)
        self._files[name] = (self._files.get(name, b"") if append else b"") + data

    def has(self, upload: Upload) -> bool:
        """Return whether this very archive is unpacked there already."""
        return self._arrived.get(inside(upload.path)) == upload.digest

    def unpack(self, upload: Upload, archive: bytes) -> None:
        """Unpack *archive*, whole or not at all."""
        if len(archive) != upload.size_bytes or hashlib.sha256(archive).hexdigest() != upload.digest:
            raise InvalidInputError(
                "The archive is not the one that was announced.", remedy="Send it again from the start."
            )
        base = inside(upload.path)
        files = {base / name: data for name, data in _members(archive).items()}
        self._files.update(files)
        self._arrived[base] = upload.digest

    def pack(self, patterns: tuple[str, ...]) -> bytes:
        """Return a gzip-compressed tar of every file that a pattern, or a folder it names, covers."""
        wanted = [inside(pattern).parts for pattern in patterns]
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w:gz", format=tarfile.PAX_FORMAT) as tar:
            for path, data in sorted(self._files.items()):
                if any(_covers(pattern, path.parts) for pattern in wanted):
                    member = tarfile.TarInfo(str(path))
                    member.size = len(data)
                    tar.addfile(member, io.BytesIO(data))
        return buffer.getvalue()


def inside(path: str) -> PurePosixPath:
    """Return *path* as a relative one; refuse a path that leaves the directory."""
    pure = PurePosixPath(path)
    if pure.is_absolute() or ".." in pure.parts:
        raise InvalidInputError(
            f"{path!r} leaves the allocation's directory.", remedy="Name a path inside it, without '..'."
        )
    return pure


def _covers(pattern: tuple[str, ...], path: tuple[str, ...]) -> bool:
    return len(pattern) <= len(path) and all(map(fnmatchcase, path, pattern))


def _members(archive: bytes) -> dict[PurePosixPath, bytes]:
    files: dict[PurePosixPath, bytes] = {}
    try:
        with tarfile.open(fileobj=io.BytesIO(archive), mode="r:gz") as tar:
            for member in tar:
                name = inside(member.name)
                if member.isdir():
                    continue
                content = tar.extractfile(member) if member.isfile() else None
                if content is None:
                    raise InvalidInputError(
                        f"{member.name!r} is neither a file nor a folder.",
                        remedy="Leave links and devices out of the archive.",
                    )
                files[name] = content.read()
    except (tarfile.TarError, EOFError, OSError, zlib.error) as error:
        raise InvalidInputError(
            f"This is not a gzip-compressed tar: {error}.", remedy="Make it with tar -czf."
        ) from error
    return files
