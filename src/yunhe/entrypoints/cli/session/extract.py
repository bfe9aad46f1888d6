"""Unpacking what came from a job: files and directories only, and nothing outside the destination."""

import fnmatch
import posixpath
import shutil
import tarfile
from pathlib import Path

from yunhe.kernel.errors import InvalidInputError


def extract(archive: Path, wanted: str, destination: Path) -> list[Path]:
    """Write the members that *wanted* (a path or a pattern; empty: all) names, and return what was written.

    As with ``cp``: into *destination* where it is a directory, as *destination* where one file is wanted and it is not.
    """
    with tarfile.open(archive, "r:gz") as tar:
        members = [member for member in tar if _chosen(_checked(member), wanted)]
        files = [member for member in members if member.isfile()]
        exact = len(files) == 1 and _inner(files[0]) == wanted and not destination.is_dir()
        if exact:
            return [_write(tar, files[0], destination)]
        if files and destination.exists() and not destination.is_dir():
            raise InvalidInputError(
                f"{destination} is a file, and there are {len(files)} files to write.",
                remedy="Give a directory.",
            )
        base = "" if _is_pattern(wanted) else posixpath.dirname(wanted)
        targets = [_target(member, base, destination) for member in files]
        return [_write(tar, member, target) for member, target in zip(files, targets, strict=True)]


def _checked(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """Refuse the whole archive if one member tries to leave; links and devices are never written."""
    inner = _inner(member)
    if posixpath.isabs(member.name) or inner == ".." or inner.startswith("../") or "\0" in member.name:
        raise InvalidInputError(
            f"The archive holds {member.name!r}, which would be written elsewhere; nothing was written.",
            remedy="Tell whoever wrote the job: no honest job makes such a file.",
        )
    return member


def _inner(member: tarfile.TarInfo) -> str:
    return posixpath.normpath(member.name)


def _is_pattern(wanted: str) -> bool:
    return any(letter in wanted for letter in "*?[")


def _chosen(member: tarfile.TarInfo, wanted: str) -> bool:
    inner = _inner(member)
    if wanted in {"", ".", inner} or inner.startswith(f"{wanted}/"):
        return True
    return _is_pattern(wanted) and fnmatch.fnmatchcase(inner, wanted)


def _target(member: tarfile.TarInfo, base: str, destination: Path) -> Path:
    inner = _inner(member)
    target = destination / (posixpath.relpath(inner, base) if base else inner)
    for folder in target.parents:
        if folder == destination:
            break
        if folder.is_symlink():
            raise InvalidInputError(
                f"{folder} is a symbolic link, and would lead out of {destination}; nothing was written.",
                remedy="Remove the link, or give another directory.",
            )
    return target


def _write(tar: tarfile.TarFile, member: tarfile.TarInfo, target: Path) -> Path:
    content = tar.extractfile(member)
    if content is None:
        raise InvalidInputError(f"{member.name} cannot be read from the archive.", remedy="Fetch it again.")
    target.parent.mkdir(parents=True, exist_ok=True)
    if target.is_symlink():  # writing through a link would write elsewhere
        target.unlink()
    with content, target.open("wb") as file:
        shutil.copyfileobj(content, file)
    target.chmod(0o755 if member.mode & 0o100 else 0o644)
    return target
