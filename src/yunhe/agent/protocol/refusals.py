"""What the agent says when it will not or cannot do as asked; codes are those of the platform's own errors."""

from __future__ import annotations

import errno
from typing import Any

INVALID = "invalid-input"
NOT_FOUND = "not-found"
CONFLICT = "conflict"
TOO_LARGE = "too-large"
UNSUPPORTED = "unsupported"
FENCED = "fenced"
DISK_FULL = "disk-full"
FORBIDDEN = "forbidden"
RESTARTING = BUSY = "pool-unreachable"
INTERNAL = "internal"

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class Refusal(Exception):  # noqa: N818 - a refusal is an answer, not a fault
    """An answer of no: a stable code, the problem, the remedy, and the fields it is about."""

    def __init__(
        self, code: str, problem: str, *, remedy: str = "", fields: list[dict[str, str]] | None = None
    ) -> None:
        super().__init__(problem)
        self.code = code
        self.problem = problem
        self.remedy = remedy
        self.fields = fields or []

    def as_body(self) -> dict[str, Any]:
        """Return what an error frame carries."""
        return {"code": self.code, "problem": self.problem, "remedy": self.remedy, "fields": self.fields}


def refusal_of(fault: OSError, doing: str) -> Refusal:
    """Return the answer for a failed system call: a full disk has its own code."""
    if fault.errno in _NO_ROOM:
        return Refusal(
            DISK_FULL,
            f"No room left while {doing}.",
            remedy="Free space on the node, or release allocations.",
        )
    return Refusal(INTERNAL, f"{doing}: {fault.strerror or fault}.")


def invalid(field: str, problem: str, value: object = None) -> Refusal:
    """Return the answer for one bad field."""
    entry = {"field": field, "problem": problem}
    if value is not None:
        entry["value"] = repr(value)[:80]
    return Refusal(INVALID, f"{field}: {problem}.", fields=[entry])
