"""How often a key, a project or an address may ask; who asks more often is told when to come again."""

import hashlib
import time

from yunhe.kernel.buckets import TokenBuckets
from yunhe.kernel.errors import TooManyRequestsError
from yunhe.kernel.quotas import NO_LIMIT
from yunhe.runtime.limits import ServerLimits

STRANGERS_PER_S = 20.0
STRANGERS_BURST = 100.0
"""Requests of one address with a key that has never opened anything, or none."""
_MOST_KNOWN = 10_000


class RequestRates:
    """The buckets of one server process."""

    def __init__(self, limits: ServerLimits) -> None:
        self._limits = limits
        self._keys = TokenBuckets(limits.requests_per_s, 2 * limits.requests_per_s)
        self._projects = TokenBuckets(limits.project_requests_per_s, 2 * limits.project_requests_per_s)
        self._strangers = TokenBuckets(STRANGERS_PER_S, STRANGERS_BURST)
        self._known: dict[bytes, None] = {}

    def check_stranger(self, address: str, key_text: str) -> None:
        """Refuse an address that has tried too many keys; a key that opened something before is no stranger."""
        if _digest(key_text) in self._known:
            return
        wait_s = self._strangers.wait_s(address, time.monotonic())
        if wait_s:
            raise TooManyRequestsError(
                "This address has sent too many requests without a key that is known.",
                remedy="Log in with a valid key: yunhe login.",
                retry_after_s=wait_s,
            )

    def remember(self, key_text: str) -> None:
        """Take note that a key opens something."""
        self._known[_digest(key_text)] = None
        if len(self._known) > _MOST_KNOWN:
            del self._known[next(iter(self._known))]

    def check_key(self, key_id: str) -> None:
        """Refuse a key that asks too often."""
        wait_s = self._keys.wait_s(key_id, time.monotonic())
        if wait_s:
            raise TooManyRequestsError(
                f"This key asks more often than {self._limits.requests_per_s} times a second.",
                remedy="Ask less often: watch jobs instead of asking again, submit many tasks as a batch.",
                retry_after_s=wait_s,
            )

    def check_project(self, project_id: str, per_s: int | None = None) -> None:
        """Refuse a request about a project that is asked about too often; *per_s* is its own quota, -1: none."""
        most = self._limits.project_requests_per_s if per_s is None else per_s
        wait_s = 0.0 if most == NO_LIMIT else self._projects.wait_s(project_id, time.monotonic(), most)
        if wait_s:
            raise TooManyRequestsError(
                f"Project {project_id} is asked about more often than {most} times a second (quota requests_per_s).",
                remedy="Ask less often: watch jobs instead of asking again, submit many tasks as a batch.",
                retry_after_s=wait_s,
            )


def _digest(key_text: str) -> bytes:
    return hashlib.sha256(key_text.encode(errors="replace")).digest()
