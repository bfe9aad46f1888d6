"""Which folders plugins may be started from: those an administrator allowed, and that nobody else can write to."""

import os
import stat
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from yunhe.kernel.errors import FieldProblem, ForbiddenError, InvalidInputError

MOST_ENTRIES = 20_000
"""How much of a folder is looked at."""


def whole_path(directory: str) -> Path:
    """Return the folder meant, with every link followed."""
    if not Path(directory).is_absolute():
        raise InvalidInputError(
            f"{directory!r} is not a whole path.",
            remedy="Name the plugin's folder on the server's machine from the root.",
            fields=(FieldProblem("directory", "must begin with /", directory),),
        )
    return Path(directory).resolve()


def require_allowed(directory: str, allowed: list[str]) -> None:
    """Raise unless *directory* is, or lies in, a folder of *allowed*, and only its owner can change what is in it."""
    folder = whole_path(directory)
    if not any(folder.is_relative_to(one) for one in allowed):
        raise ForbiddenError(
            f"Plugins are not started from {folder}: no administrator has allowed it.",
            remedy=f"An admin allows it with: yunhe plugin allow {folder}",
            fields=(FieldProblem("directory", "is not allowed", str(folder)),),
        )
    open_to = next((path for path in _parts(folder) if _others_can_write(path)), None)
    if open_to is not None:
        raise ForbiddenError(
            f"Plugins are not started from {folder}: others can write to {open_to}.",
            remedy=f"Let it belong to root or the server's user, and close it: chmod go-w {open_to}",
            fields=(FieldProblem("directory", "can be changed by others", str(open_to)),),
        )


def _parts(folder: Path) -> Iterator[Path]:
    """Yield what a change of would change the plugin: the folder, those it lies in, and what is in it."""
    yield from (folder, *folder.parents)
    yield from islice(folder.rglob("*"), MOST_ENTRIES)


def _others_can_write(path: Path) -> bool:
    try:
        state = path.lstat()
    except FileNotFoundError:
        return False
    if state.st_uid not in (0, os.geteuid()):
        return True
    shared = stat.S_ISDIR(state.st_mode) and bool(state.st_mode & stat.S_ISVTX)
    if stat.S_ISLNK(state.st_mode) or shared:  # in a sticky folder nobody renames what is another's
        return False
    by_group = bool(state.st_mode & stat.S_IWGRP) and state.st_gid not in (0, os.getegid())
    return by_group or bool(state.st_mode & stat.S_IWOTH)
