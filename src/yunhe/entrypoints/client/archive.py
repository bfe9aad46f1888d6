"""Directories and files as one archive that is the same, byte for byte, whenever their contents are."""

import gzip
import hashlib
import tarfile
from collections.abc import Iterator
from pathlib import Path

import msgspec

from yunhe.kernel.errors import FieldProblem, InvalidInputError

_CHUNK_BYTES = 256 * 1024
_SKIPPED = frozenset({".git", "__pycache__", ".venv", "node_modules", ".DS_Store"})
"""What is never sent along: it is large and can be made again where the job runs."""


class Archive(msgspec.Struct, frozen=True):
    """A gzip-compressed tar on disk, and its SHA-256."""

    path: Path
    digest: str
    size_bytes: int


def pack(source: Path, to: Path) -> Archive:
    """Write *source* (a directory's contents, or one file) to the archive *to*.

    Names are sorted; times, owners and the gzip header are fixed: what has not changed is not sent again.
    """
    if not source.exists():
        raise InvalidInputError(
            f"{source} does not exist.",
            remedy="Paths of workdir and file_mounts are relative to the task file.",
            fields=(FieldProblem(str(source), "does not exist"),),
        )
    root = source if source.is_dir() else source.parent
    with (
        to.open("wb") as raw,
        gzip.GzipFile(filename="", mode="wb", fileobj=raw, compresslevel=6, mtime=0) as zipped,
        tarfile.open(mode="w", fileobj=zipped, format=tarfile.PAX_FORMAT) as tar,
    ):
        for path in _files(source):
            _add(tar, path, root)
    return Archive(to, _digest(to), to.stat().st_size)


def _files(source: Path) -> Iterator[Path]:
    if not source.is_dir() or source.is_symlink():
        yield source
        return
    for child in sorted(source.iterdir()):
        if child.name in _SKIPPED:
            continue
        yield child
        if child.is_dir() and not child.is_symlink():
            yield from _files(child)


def _add(tar: tarfile.TarFile, path: Path, root: Path) -> None:
    if path.is_symlink():
        _check_link(path, root)
    elif not (path.is_file() or path.is_dir()):
        return  # sockets, pipes and devices mean nothing elsewhere
    info = tar.gettarinfo(path, arcname=str(path.relative_to(root)))
    info.uid = info.gid = 0
    info.uname = info.gname = ""
    info.mtime = 0
    info.mode = 0o755 if info.isdir() or info.mode & 0o100 else 0o644
    if info.islnk():
        info.type, info.linkname, info.size = tarfile.REGTYPE, "", path.stat().st_size
    if info.isreg():
        with path.open("rb") as content:
            tar.addfile(info, content)
    else:
        tar.addfile(info)


def _check_link(path: Path, root: Path) -> None:
    if not path.resolve().is_relative_to(root.resolve()):
        raise InvalidInputError(
            f"{path} is a symbolic link that leads out of {root}.",
            remedy="Copy what it points to, or mount that path by itself with file_mounts.",
            fields=(FieldProblem(str(path), "leads out of the directory", str(path.readlink())),),
        )


def _digest(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as content:
        while chunk := content.read(_CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()
