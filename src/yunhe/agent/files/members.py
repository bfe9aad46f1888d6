"""The members of an archive that nobody vouches for, read within bounds: whatever it claims to be, it costs little.

A few kilobytes of compressed tar can claim names of gigabytes, millions of members or a tree without end. Here every
header is bounded before it is read, and so are the members, their depth, and all that comes out of the compression.
"""

from __future__ import annotations

import gzip
import tarfile
import zlib
from typing import Any, BinaryIO, Iterator, cast

from yunhe.agent.protocol.refusals import INVALID, TOO_LARGE, Refusal, invalid

MAX_MEMBERS = 200_000
MAX_UNPACKED_BYTES = 64 * 1024**3
MAX_DEPTH = 256
MAX_PATH_BYTES = 3072
"""Less than the kernel's 4096, since a path lies below the allocation's directory."""
MAX_HEADER_BYTES = 16 * 1024
"""Of one extended header: a name and the target of a link have room in it."""
_HEADERS_IN_A_ROW = 8
_BUFFER_BYTES = 128 * 1024
_MEMBER_BYTES = 1024
"""What a member takes in an archive beyond its content: a header and the rest of a block."""
_EXTENDED = frozenset(
    (
        tarfile.GNUTYPE_LONGNAME,
        tarfile.GNUTYPE_LONGLINK,
        tarfile.XHDTYPE,
        tarfile.XGLTYPE,
        tarfile.SOLARIS_XHDTYPE,
    )
)
NOT_AN_ARCHIVE = (tarfile.TarError, gzip.BadGzipFile, zlib.error, EOFError, ValueError, RecursionError)
"""What reading raises for bytes that are no gzip-compressed tar."""


def check_path(path: str, field: str) -> list[str]:
    """Return the parts of a relative path; refuse one that could lead out, or is too long or too deep."""
    if path.startswith("/") or "\0" in path or "\\" in path:
        raise invalid(field, "must be relative to the allocation's directory", path)
    if len(path) > MAX_PATH_BYTES or len(path.encode("utf-8", "surrogateescape")) > MAX_PATH_BYTES:
        raise invalid(field, f"is longer than {MAX_PATH_BYTES} bytes", path)
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if ".." in parts:
        raise invalid(field, "must not lead out of the allocation's directory", path)
    if len(parts) > MAX_DEPTH:
        raise invalid(field, f"is more than {MAX_DEPTH} directories deep", path)
    return parts


class CheckedMember(tarfile.TarInfo):
    """A member whose headers are bounded before they are read."""

    def _proc_member(self, archive: CheckedArchive) -> Any:  # the hook that ``tarfile`` has for subclasses
        archive.check_header(self)
        return super()._proc_member(archive)  # pyright: ignore[reportAttributeAccessIssue]

    def _refuse_sparse(self, *_: object) -> None:
        raise invalid("member", "is a sparse file", self.name)

    _proc_sparse = _proc_gnusparse_00 = _proc_gnusparse_01 = _proc_gnusparse_10 = _refuse_sparse


class CheckedArchive(tarfile.TarFile):
    """A tar that is read from its beginning to its end, once."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self._in_a_row = 0
        self._global_bytes = 0
        super().__init__(*arguments, **options)

    def check_header(self, member: tarfile.TarInfo) -> None:
        """Refuse a header that costs more than a good archive has reason to."""
        if member.size < 0:
            raise invalid("member", "has a negative size", member.name)
        if member.type not in _EXTENDED:
            self._in_a_row = 0
            return
        self._in_a_row += 1
        self._global_bytes += member.size if member.type == tarfile.XGLTYPE else 0
        if max(member.size, self._global_bytes) > MAX_HEADER_BYTES or self._in_a_row > _HEADERS_IN_A_ROW:
            raise Refusal(TOO_LARGE, f"A header of the archive is larger than {MAX_HEADER_BYTES} bytes.")


class _Bounded:
    """Reads no more than *most* bytes from a file."""

    def __init__(self, file: BinaryIO, most: int, problem: str) -> None:
        self._file = file
        self._left = most
        self._problem = problem

    def read(self, size: int) -> bytes:
        data = self._file.read(size)
        self._left -= len(data)
        if self._left < 0:
            raise Refusal(TOO_LARGE, self._problem)
        return data


def members_of(
    file: BinaryIO, limit_bytes: int = MAX_UNPACKED_BYTES
) -> Iterator[tuple[tarfile.TarFile, tarfile.TarInfo, list[str]]]:
    """Yield each member of a gzip-compressed tar with the parts of its path; refuse what is too large in any way.

    Raise one of ``NOT_AN_ARCHIVE`` for anything else.
    """
    problem = f"An archive may hold {MAX_MEMBERS} files, and here {limit_bytes} bytes."
    with gzip.GzipFile(fileobj=file, mode="rb") as unpacked:
        # Not all of what a header costs is content, so there must be some room for headers too.
        most_bytes = limit_bytes + MAX_MEMBERS * _MEMBER_BYTES
        bounded = _Bounded(cast("BinaryIO", unpacked), most_bytes, problem)
        total = 0
        options: dict[str, Any] = {"bufsize": _BUFFER_BYTES, "tarinfo": CheckedMember}
        with CheckedArchive.open(fileobj=cast("BinaryIO", bounded), mode="r|", **options) as archive:
            for count, member in enumerate(archive):
                archive.members = []  # pyright: ignore[reportAttributeAccessIssue] - else it keeps every one
                total += member.size
                if count >= MAX_MEMBERS or total > limit_bytes:
                    raise Refusal(TOO_LARGE, problem)
                yield archive, member, check_path(member.name, "member")


def not_an_archive(fault: BaseException) -> Refusal:
    """Return the answer for bytes that could not be read as an archive."""
    return Refusal(INVALID, f"Not a gzip-compressed tar: {str(fault)[:200]}.")
