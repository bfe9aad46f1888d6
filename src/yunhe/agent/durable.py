"""Writing files so that a crash leaves the old one or the new one, never half of one."""

from __future__ import annotations

import json
import os
from typing import Any


def sync_directory(path: str) -> None:
    """Make the names in *path* durable."""
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_whole(handle: int, data: bytes) -> None:
    """Write all of *data*, or raise what kept it from being written."""
    view = memoryview(data)
    while view:
        view = view[os.write(handle, view) :]


def _write_new(path: str, data: bytes) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        write_whole(handle, data)
        os.fsync(handle)
    except OSError:
        os.close(handle)
        os.unlink(path)
        raise
    os.close(handle)


def replace_json(path: str, value: dict[str, Any]) -> None:
    """Write *value* to *path*, durably and all at once."""
    fresh = f"{path}.{os.getpid()}.new"
    _write_new(fresh, json.dumps(value, separators=(",", ":")).encode())
    os.replace(fresh, path)
    sync_directory(os.path.dirname(path))


def create_json(path: str, value: dict[str, Any]) -> bool:
    """Write *value* to *path* unless it exists already; return whether this call made it."""
    fresh = f"{path}.{os.getpid()}.new"
    _write_new(fresh, json.dumps(value, separators=(",", ":")).encode())
    try:
        os.link(fresh, path)
    except FileExistsError:
        return False
    finally:
        os.unlink(fresh)
    sync_directory(os.path.dirname(path))
    return True


def read_json(path: str) -> dict[str, Any] | None:
    """Return the object in *path*; None where there is none, or nothing that can be read as one."""
    try:
        with open(path, "rb") as file:
            value: Any = json.loads(file.read())
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return None
    return value if isinstance(value, dict) else None
