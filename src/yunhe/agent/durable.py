"""Writing files so that a crash leaves the old one or the new one, never half of one.

What must be written though the disk is full has its room reserved ahead: a file of zeros, which is not JSON, becomes
the record by being overwritten in place. Half of such a write is no JSON either, so it reads as not written.
"""

from __future__ import annotations

import fcntl
import json
import os
import threading
from typing import Any

RECORD_BYTES = 4096


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


def reserve(path: str, size_bytes: int = RECORD_BYTES) -> None:
    """Make the file at *path* at least so long, by zeros that have their room on the disk; nothing in it changes."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        write_whole(handle, bytes(max(0, size_bytes - os.fstat(handle).st_size)))
    finally:
        os.close(handle)


def is_reserved(path: str) -> bool:
    """Return whether a record can be written to *path* in place."""
    try:
        return os.stat(path).st_size >= RECORD_BYTES
    except FileNotFoundError:
        return False


def overwrite(path: str, data: bytes, *, sync: bool = True) -> None:
    """Put *data* into the reserved file at *path*, in place, and spaces after it."""
    handle = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        write_whole(handle, data.ljust(os.fstat(handle).st_size))
        if sync:
            os.fsync(handle)
    finally:
        os.close(handle)


def overwrite_once(path: str, value: dict[str, Any]) -> bool:
    """Put *value* into the reserved file at *path* unless a record is there; return whether this call did."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)  # whoever ends lets go of it
        if read_json(path) is not None:
            return False
        overwrite(path, encode_json(value))
    finally:
        os.close(handle)
    return True


def encode_json(value: dict[str, Any]) -> bytes:
    """Return *value* as it is written."""
    return json.dumps(value, separators=(",", ":")).encode()


def _fresh(path: str) -> str:
    """Return a name beside *path* that nobody else writes to, no other thread either."""
    return f"{path}.{os.getpid()}-{threading.get_ident()}.new"


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
    fresh = _fresh(path)
    _write_new(fresh, encode_json(value))
    os.replace(fresh, path)
    sync_directory(os.path.dirname(path))


def create_json(path: str, value: dict[str, Any]) -> bool:
    """Write *value* to *path* unless it exists already; return whether this call made it."""
    fresh = _fresh(path)
    _write_new(fresh, encode_json(value))
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
