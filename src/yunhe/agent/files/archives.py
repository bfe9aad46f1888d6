"""Archives into and out of an allocation's directory, handled by a process that is its user and nobody else.

Everything needed is imported before that process becomes the user: afterwards it may not be able to read a module.
No member may leave the directory: no absolute names, no ``..``, no link that leads out, no device. What comes is
unpacked beside its place and moved there only when all of it is good.
"""

from __future__ import annotations

import fnmatch
import gzip
import json
import os
import shutil
import stat
import tarfile
import zlib
from typing import Any, BinaryIO, Iterator, cast

from yunhe.agent.protocol.refusals import CONFLICT, INVALID, TOO_LARGE, Refusal, invalid, refusal_of
from yunhe.agent.runs.users import become, end_with

MAX_MEMBERS = 200_000
MAX_UNPACKED_BYTES = 64 * 1024**3
_STAGE = ".yunhe-unpacking"


def check_path(path: str, field: str) -> list[str]:
    """Return the parts of a relative path; refuse one that could lead out."""
    if path.startswith("/") or "\0" in path or "\\" in path:
        raise invalid(field, "must be relative to the allocation's directory", path)
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if ".." in parts:
        raise invalid(field, "must not lead out of the allocation's directory", path)
    return parts


def unpack_job(order: dict[str, Any], handles: list[int]) -> None:
    """Unpack the archive of the first handle; tell the second how it went."""
    archive, status = handles
    become(order["uid"])
    end_with(order["spawner"])
    _answer(status, _unpack, order["work"], order["path"], archive)


def pack_job(order: dict[str, Any], handles: list[int]) -> None:
    """Write an archive of the wanted paths to the first handle; tell the second how it went."""
    output, status = handles
    become(order["uid"])
    end_with(order["spawner"])
    _answer(status, _pack, order["work"], order["paths"], output)


def _answer(status: int, work: Any, *arguments: Any) -> None:
    try:
        work(*arguments)
        answer: dict[str, Any] = {}
    except Refusal as refusal:
        answer = {"error": refusal.as_body()}
    except OSError as fault:
        answer = {"error": refusal_of(fault, "handling an archive").as_body()}
    except (tarfile.TarError, zlib.error, EOFError, ValueError) as fault:
        answer = {"error": Refusal(INVALID, f"Not a gzip-compressed tar: {fault}.").as_body()}
    os.write(status, json.dumps(answer).encode())


def _unpack(work: str, path: str, archive: int) -> None:
    parts = check_path(path, "path")
    stage = os.path.join(work, _STAGE)
    shutil.rmtree(stage, ignore_errors=True)
    os.mkdir(stage, 0o700)
    try:
        fresh = os.path.join(stage, "tree")
        os.mkdir(fresh, 0o700)
        with os.fdopen(archive, "rb") as file:
            _extract(cast("BinaryIO", file), fresh)
        _move(fresh, work, parts)
    finally:
        shutil.rmtree(stage, ignore_errors=True)


def _extract(file: BinaryIO, fresh: str) -> None:
    """Write every member below *fresh*; refuse the whole archive for one bad member."""
    total = 0
    with tarfile.open(fileobj=file, mode="r|gz") as members:
        for count, member in enumerate(members):
            total += member.size
            if count >= MAX_MEMBERS or total > MAX_UNPACKED_BYTES:
                raise Refusal(
                    TOO_LARGE, f"An archive may hold {MAX_MEMBERS} files and {MAX_UNPACKED_BYTES} bytes."
                )
            parts = check_path(member.name, "member")
            if parts:
                _write_member(members, member, fresh, parts)


def _write_member(members: tarfile.TarFile, member: tarfile.TarInfo, fresh: str, parts: list[str]) -> None:
    target = os.path.join(fresh, *parts)
    _make_parents(fresh, parts[:-1])
    if member.isdir():
        os.makedirs(target, mode=0o700, exist_ok=True)
    elif member.issym():
        _check_link(member, [*parts[:-1], *member.linkname.split("/")])
        os.symlink(member.linkname, target)
    elif member.islnk():
        source = os.path.join(fresh, *check_path(member.linkname, "member"))
        _refuse_links(fresh, check_path(member.linkname, "member"))
        os.link(source, target, follow_symlinks=False)
    elif member.isreg():
        source_file = members.extractfile(member)
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
        handle = os.open(target, flags, 0o600)
        with os.fdopen(handle, "wb") as output:
            if source_file is not None:
                shutil.copyfileobj(source_file, output, 256 * 1024)
            # Set-user-ID and other special bits are not carried; execution is.
            os.fchmod(output.fileno(), (member.mode & 0o777) | 0o600)
    else:
        raise invalid("member", "is neither file, directory nor link", member.name)


def _make_parents(fresh: str, parts: list[str]) -> None:
    _refuse_links(fresh, parts)
    os.makedirs(os.path.join(fresh, *parts), mode=0o700, exist_ok=True)


def _refuse_links(top: str, parts: list[str]) -> None:
    """Refuse a path below *top* that goes through a symbolic link."""
    for end in range(1, len(parts) + 1):
        if os.path.islink(os.path.join(top, *parts[:end])):
            raise invalid("path", "goes through a symbolic link", "/".join(parts[:end]))


def _check_link(member: tarfile.TarInfo, parts: list[str]) -> None:
    """Refuse a symbolic link whose target, followed from where it lies, leaves the directory."""
    depth = 0
    if member.linkname.startswith("/"):
        depth = -1
    for part in parts:
        depth += -1 if part == ".." else 0 if part in ("", ".") else 1
        if depth < 0:
            raise invalid("member", "is a link that leads out of the directory", member.name)


def _move(fresh: str, work: str, parts: list[str]) -> None:
    """Move the finished tree into place; undo what was moved if something stands in the way."""
    _refuse_links(work, parts)
    target = os.path.join(work, *parts) if parts else work
    os.makedirs(target, mode=0o700, exist_ok=True)
    moved: list[tuple[str, str]] = []
    try:
        for source, place in _moves(fresh, target):
            if os.path.lexists(place):
                aside = os.path.join(os.path.dirname(fresh), f"aside-{len(moved)}")
                os.rename(place, aside)
                moved.append((aside, place))
            os.rename(source, place)
            moved.append((place, source))
    except OSError as fault:
        for now, before in reversed(moved):
            os.rename(now, before)
        raise Refusal(CONFLICT, f"Cannot put the files in place: {fault}.") from fault


def _moves(fresh: str, target: str) -> Iterator[tuple[str, str]]:
    """Yield each entry with its place; a directory that exists on both sides is merged."""
    for name in sorted(os.listdir(fresh)):
        source, place = os.path.join(fresh, name), os.path.join(target, name)
        both = os.path.isdir(place) and not os.path.islink(place)
        if both and os.path.isdir(source) and not os.path.islink(source):
            yield from _moves(source, place)
        else:
            yield source, place


def _pack(work: str, patterns: list[str], output: int) -> None:
    wanted = [check_path(pattern, "paths") for pattern in patterns]
    seen: set[str] = set()
    with os.fdopen(output, "wb") as file, gzip.GzipFile(fileobj=file, mode="wb", compresslevel=3) as packed:
        archive = tarfile.open(fileobj=cast("BinaryIO", packed), mode="w|")  # noqa: SIM115 - an error leaves it unfinished
        for parts in wanted:
            for name in _matches(work, [], parts):
                _add(archive, work, name, seen)
        archive.close()


def _matches(work: str, above: list[str], pattern: list[str]) -> Iterator[str]:
    """Yield what matches *pattern* below the directory *above*, never through a symbolic link."""
    if not pattern:
        yield "/".join(above) or "."
        return
    first, rest = pattern[0], pattern[1:]
    if first == "**":
        yield from _matches(work, above, rest)
    for entry in sorted(os.scandir(os.path.join(work, *above)), key=lambda entry: entry.name):
        inside = entry.is_dir(follow_symlinks=False)
        if first == "**":
            if inside:
                yield from _matches(work, [*above, entry.name], pattern)
        elif fnmatch.fnmatchcase(entry.name, first) and (inside or not rest):
            yield from _matches(work, [*above, entry.name], rest)


def _add(archive: tarfile.TarFile, work: str, name: str, seen: set[str]) -> None:
    """Add *name* and what lies below it; links that lead out, sockets and devices are left out."""
    if name in seen:
        return
    seen.add(name)
    path = os.path.join(work, name)
    status = os.lstat(path)
    if stat.S_ISDIR(status.st_mode):
        if name != ".":
            archive.add(path, name, recursive=False)
        for child in sorted(os.listdir(path)):
            _add(archive, work, child if name == "." else f"{name}/{child}", seen)
    elif stat.S_ISLNK(status.st_mode):
        inside = os.path.realpath(path).startswith(os.path.realpath(work) + "/")
        if inside and not os.readlink(path).startswith("/"):
            archive.add(path, name, recursive=False)
    elif stat.S_ISREG(status.st_mode):
        _add_file(archive, path, name)


def _add_file(archive: tarfile.TarFile, path: str, name: str) -> None:
    """Add a file as it is now: one that grows meanwhile is cut at its size, one that shrinks is filled with zeros."""
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(handle, "rb") as file:
        member = archive.gettarinfo(name, arcname=name, fileobj=file)
        member.type = tarfile.REGTYPE  # a second name of a file carries its content too
        member.linkname = ""
        member.size = os.fstat(handle).st_size
        archive.addfile(member, cast("BinaryIO", _Padded(file, member.size)))


class _Padded:
    """Reads exactly *size* bytes from a file, with zeros where it has become shorter."""

    def __init__(self, file: Any, size: int) -> None:
        self._file = file
        self._left = size

    def read(self, size: int) -> bytes:
        size = min(size, self._left)
        data: bytes = self._file.read(size)
        self._left -= size
        return data + b"\0" * (size - len(data))
