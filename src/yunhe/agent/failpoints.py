"""Named places where a test may have a process of the agent die, to show that nothing is lost or done twice.

Inert unless both variables are set: ``YUNHE_FAILPOINT`` (names, separated by commas) and ``YUNHE_FAILPOINT_DIR``
(a directory where each fired name leaves a file, so that it fires once, whatever restarts). A name followed by
``:stop`` has the process stand still there, as if it were frozen, until somebody sends it SIGCONT.
"""

from __future__ import annotations

import os
import signal

DAEMON = (
    "before-claim",
    "after-claim",
    "before-spawn",
    "after-spawn",
    "before-stop-record",
    "after-stop-record",
    "before-release-record",
    "after-release-record",
    "before-unpack",
    "after-unpack",
    "before-resize",
    "after-resize",
    "before-fold",
    "after-fold",
)
"""The daemon dies here. Tasks go on; the next bridge starts a new daemon."""

WRAPPER = (
    "before-start-record",
    "before-exec",
    "after-exec",
    "before-exit-record",
    "after-exit-record",
)
"""A task's wrapper dies here. The daemon ends what is left of the task and reports it as unknown, unless recorded."""

ALL = DAEMON + WRAPPER

_wanted = frozenset(filter(None, os.environ.get("YUNHE_FAILPOINT", "").split(",")))
_marks = os.environ.get("YUNHE_FAILPOINT_DIR", "")


def reach(name: str) -> None:
    """Die here by SIGKILL, or stand still, if that was asked for *name* and has not happened before."""
    if not _wanted or not _marks:
        return
    for wish, number in ((name, signal.SIGKILL), (f"{name}:stop", signal.SIGSTOP)):
        if wish in _wanted and _take_mark(wish):
            os.kill(os.getpid(), number)


def _take_mark(name: str) -> bool:
    try:
        os.close(os.open(os.path.join(_marks, name), os.O_CREAT | os.O_EXCL | os.O_WRONLY))
    except FileExistsError:
        return False
    return True
