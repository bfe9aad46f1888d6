"""Failpoints of a server: the named steps between an intent and its effect at which a test may have it die.

They work as the agent's do (``yunhe.agent.failpoints``): inert unless asked for by the environment, and each fires
once, whatever restarts. The list is a type, so that a failpoint which is not in it does not pass the type checker.
"""

from typing import Literal, get_args

from yunhe.agent.failpoints import reach

Failpoint = Literal[
    "first-key-before-commit",
    "first-key-after-commit",
    "pool-after-intent",
    "pool-before-seen",
    "prices-after-commit",
    "chunks-before-commit",
    "chunks-after-commit",
    "archive-before-commit",
    "archive-after-commit",
    "submit-before-commit",
    "submit-after-commit",
    "place-before-commit",
    "place-after-commit",
    "launch-before-call",
    "launch-after-files",
    "launch-after-call",
    "launch-after-record",
    "stop-after-intent",
    "stop-before-call",
    "stop-after-call",
    "resize-after-intent",
    "resize-before-call",
    "resize-after-call",
    "exit-before-record",
    "exit-after-record",
    "finish-after-logs",
    "outputs-before-record",
    "finish-after-outputs",
    "final-before-commit",
    "final-after-commit",
    "settle-before-commit",
    "settle-after-commit",
    "release-before-call",
    "release-after-call",
    "usage-before-commit",
    "bill-before-commit",
    "bill-after-commit",
    "prune-before-commit",
    "prune-after-commit",
    "prune-audit-before-removal",
]

PRUNING: tuple[str, ...] = tuple(name for name in get_args(Failpoint) if name.startswith("prune-"))
"""Those that a server reaches when it removes what is old."""
SERVER: tuple[str, ...] = tuple(name for name in get_args(Failpoint) if name not in PRUNING)
"""Those that it reaches while jobs come, run and end."""


def failpoint(name: Failpoint) -> None:
    """End this process with SIGKILL if a test has asked for that here and *name* has not fired before."""
    reach(name)
