"""Named places where a test may have a process of the agent die, to show that nothing is lost or done twice.

Inert unless both variables are set: ``YUNHE_FAILPOINT`` (names, separated by commas) and ``YUNHE_FAILPOINT_DIR``
(a directory where each fired name leaves a file, so that it fires once, whatever restarts).
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
    """Die here by SIGKILL if *name* was asked for and has not fired before."""
    if name not in _wanted or not _marks:
        return
    try:
        os.close(os.open(os.path.join(_marks, name), os.O_CREAT | os.O_EXCL | os.O_WRONLY))
    except FileExistsError:
        return
    os.kill(os.getpid(), signal.SIGKILL)
