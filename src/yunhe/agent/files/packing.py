"""Finding and packing what a task has left: each directory is visited once, however many patterns ask for it."""

from __future__ import annotations

import fnmatch
import gzip
import os
import stat
import tarfile
from typing import Any, BinaryIO, Iterator, NamedTuple, cast

from yunhe.agent.files.members import MAX_DEPTH, MAX_MEMBERS, MAX_PATH_BYTES, MAX_UNPACKED_BYTES, check_path
from yunhe.agent.protocol.refusals import TOO_LARGE, Refusal

Pattern = tuple  # of the parts of a path, as ``check_path`` returns them


class _Folder(NamedTuple):
    """A directory to visit, and what of it is wanted."""

    name: str
    depth: int
    patterns: frozenset[Pattern[str, ...]]
    """What is still to be matched by names in this directory."""
    everything: bool
    """Whether a directory above, or this one, was asked for as a whole."""


def pack(work: str, patterns: list[str], output: int) -> None:
    """Write a gzip-compressed tar of what matches *patterns* below *work* to *output*."""
    wanted = frozenset(tuple(check_path(pattern, "paths")) for pattern in patterns)
    total = 0
    with os.fdopen(output, "wb") as file, gzip.GzipFile(fileobj=file, mode="wb", compresslevel=3) as packed:
        archive = tarfile.TarFile(fileobj=cast("BinaryIO", packed), mode="w")  # an error leaves it unfinished
        for count, name in enumerate(matches(work, wanted)):
            total += _add(archive, work, name)
            archive.members = []  # pyright: ignore[reportAttributeAccessIssue] - else it keeps every one
            if count >= MAX_MEMBERS or total > MAX_UNPACKED_BYTES:
                raise Refusal(
                    TOO_LARGE,
                    f"More than {MAX_MEMBERS} files or {MAX_UNPACKED_BYTES} bytes match.",
                    remedy="Have the task pack them into one file, or ask for fewer.",
                )
        archive.close()


def matches(work: str, patterns: frozenset[Pattern[str, ...]]) -> Iterator[str]:
    """Yield every name below *work* that matches, and what lies below those, never through a symbolic link."""
    queue = [_Folder("", 0, _unfolded(patterns), () in _unfolded(patterns))]
    while queue:
        folder = queue.pop()
        below: list[_Folder] = []
        for entry in _entries(work, folder.name):
            name = f"{folder.name}/{entry.name}" if folder.name else entry.name
            left = _unfolded(_after(folder.patterns, entry.name))
            wanted = folder.everything or () in left
            inside = entry.is_dir(follow_symlinks=False)
            if inside and (wanted or left):
                below.append(_Folder(name, folder.depth + 1, left, wanted))
            if wanted:
                _check_depth(name, folder.depth)
                yield name
        queue += reversed(below)


def _unfolded(patterns: frozenset[Pattern[str, ...]]) -> frozenset[Pattern[str, ...]]:
    """Return *patterns* with those that are left when a leading ``**`` stands for nothing."""
    found = set(patterns)
    for pattern in patterns:
        while pattern and pattern[0] == "**":
            pattern = pattern[1:]  # noqa: PLW2901
            found.add(pattern)
    return frozenset(found)


def _after(patterns: frozenset[Pattern[str, ...]], name: str) -> frozenset[Pattern[str, ...]]:
    """Return what is left to be matched below *name*."""
    left: set[Pattern[str, ...]] = set()
    for pattern in patterns:
        if pattern and pattern[0] == "**":
            left.add(pattern)
        elif pattern and fnmatch.fnmatchcase(name, pattern[0]):
            left.add(pattern[1:])
    return frozenset(left)


def _entries(work: str, folder: str) -> list[os.DirEntry[str]]:
    with os.scandir(os.path.join(work, folder)) as entries:
        found = list(entries)
    if len(found) > 5 * MAX_MEMBERS:
        raise Refusal(TOO_LARGE, f"{folder or 'The directory'} holds more than {5 * MAX_MEMBERS} files.")
    return sorted(found, key=lambda entry: entry.name)


def _check_depth(name: str, depth: int) -> None:
    if depth >= MAX_DEPTH or len(name) > MAX_PATH_BYTES:
        raise Refusal(
            TOO_LARGE,
            f"{name[:80]}… is more than {MAX_DEPTH} directories deep or {MAX_PATH_BYTES} bytes long.",
            remedy="Have the task pack it into one file.",
        )


def _add(archive: tarfile.TarFile, work: str, name: str) -> int:
    """Add *name*, and return its size; links that lead out, sockets and devices are left out."""
    path = os.path.join(work, name)
    status = os.lstat(path)
    if stat.S_ISREG(status.st_mode):
        return _add_file(archive, path, name)
    leads_in = stat.S_ISLNK(status.st_mode) and _leads_in(path, work)
    if stat.S_ISDIR(status.st_mode) or leads_in:
        archive.add(path, name, recursive=False)
    return 0


def _leads_in(path: str, work: str) -> bool:
    inside = os.path.realpath(path).startswith(os.path.realpath(work) + "/")
    return inside and not os.readlink(path).startswith("/")


def _add_file(archive: tarfile.TarFile, path: str, name: str) -> int:
    """Add a file as it is now: one that grows meanwhile is cut at its size, one that shrinks is filled with zeros."""
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(handle, "rb") as file:
        member = archive.gettarinfo(name, arcname=name, fileobj=file)
        member.type = tarfile.REGTYPE  # a second name of a file carries its content too
        member.linkname = ""
        member.size = os.fstat(handle).st_size
        if member.size > MAX_UNPACKED_BYTES:
            return member.size
        archive.addfile(member, cast("BinaryIO", _Padded(file, member.size)))
        return member.size


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
