"""Files that only the platform's own user may read: homes are 0700 and what lies in them 0600, whoever made them."""

import os
import stat
import tempfile
from pathlib import Path

from yunhe.kernel.errors import InvalidInputError

OURS = ("*.db", "*.db-*", "*.key", "*.key.*", "*.json", "server.*", "*.reserve")
"""Which files of a home are the platform's; a home may be a folder that holds others."""


def private_home(home: Path) -> Path:
    """Make *home* if it is missing, and close it and the platform's files in it to everybody else."""
    home.mkdir(parents=True, exist_ok=True, mode=0o700)
    state = home.stat()
    if state.st_mode & stat.S_ISVTX:
        raise InvalidInputError(
            f"{home} is shared by every user of this machine.",
            remedy="Choose a folder of your own: set YUNHE_HOME, or --home for a server.",
        )
    if state.st_uid == os.geteuid():
        _close(home, state)
        for path in (path for pattern in OURS for path in home.glob(pattern)):
            found = path.lstat()
            if stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid():
                _close(path, found)
    return home


def write_private(path: Path, content: bytes) -> None:
    """Put *content* at *path* for its owner alone, whole or not at all."""
    handle, fresh = tempfile.mkstemp(dir=path.parent, prefix=f"{path.name}.")
    with os.fdopen(handle, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(handle)
    Path(fresh).replace(path)


def _close(path: Path, state: os.stat_result) -> None:
    if state.st_mode & 0o077:
        path.chmod(stat.S_IMODE(state.st_mode) & 0o700)
