"""A second way to run tests of the whole platform: its sub-modules as far apart as they go.

Under ``pytest --apart`` every server that a test starts in its own process encodes and decodes each call between two
sub-modules, as if they were in other processes, and stands on PostgreSQL. ``make test-engines`` does it once.
"""

import itertools
from pathlib import Path
from typing import Any

from support.postgres import new_database
from yunhe.runtime.settings import Settings

_numbers = itertools.count(1)
_homes: dict[Path, str] = {}
_socket_folder = ""


def begin(socket_folder: str) -> None:
    """Let every server from now on stand on the PostgreSQL behind *socket_folder*."""
    global _socket_folder  # noqa: PLW0603 - one mode for the whole run
    _socket_folder = socket_folder


def database_url(home: Path) -> str:
    """Return the database of a server at *home*: SQLite below it, or one of its own; the same again after a restart."""
    if not _socket_folder:
        return f"sqlite:///{home / 'yunhe.db'}"
    if home not in _homes:
        _homes[home] = new_database(_socket_folder, f"apart_{next(_numbers)}")
    return _homes[home]


def settings(home: Path, **told: Any) -> Settings:
    """Return the settings of a test's server."""
    defaults: dict[str, Any] = {"reserve_bytes": 0}  # hundreds of homes are kept after a run
    if _socket_folder:
        defaults |= {"encode_calls": True, "database_url": database_url(home)}
    return Settings(home=home, **defaults | told)
