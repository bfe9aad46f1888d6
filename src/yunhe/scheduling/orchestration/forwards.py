"""Connections into jobs, as one server process counts them."""

from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager

from yunhe.kernel.errors import TooManyRequestsError
from yunhe.kernel.ids import JobId
from yunhe.storage import audit

MOST_PER_JOB = 64
"""Connections into one job at a time: a browser opens six to a notebook."""
NEWS_AFTER_S = 600.0
"""A page makes dozens of connections: who goes on connecting to the same port has one line in this time."""


class Forwards:
    """How many connections each job has, and which were written to the audit log a short while ago."""

    def __init__(self) -> None:
        self._open: Counter[JobId] = Counter()
        self._written: dict[tuple[str, JobId, int], float] = {}

    @contextmanager
    def opened(self, job_id: JobId) -> Generator[None]:
        """Count a connection while the block lasts; refuse one too many."""
        if self._open[job_id] >= MOST_PER_JOB:
            raise TooManyRequestsError(
                f"{MOST_PER_JOB} connections into {job_id} are open.",
                remedy="Close some: end a `yunhe forward`, or a program that keeps connections open.",
                retry_after_s=1.0,
            )
        self._open[job_id] += 1
        try:
            yield
        finally:
            self._open[job_id] -= 1
            self._open += Counter()  # lets go of those at zero

    @contextmanager
    def news(self, job_id: JobId, port: int, now: float) -> Generator[bool]:
        """Yield whether the block should write a line of a connection by whoever acts to the audit log."""
        who = audit.actor()
        self._written = {key: at for key, at in self._written.items() if now - at < NEWS_AFTER_S}
        key = (who.key_id if who else "", job_id, port)
        if key in self._written:
            yield False
            return
        self._written[key] = now
        try:
            yield True
        except BaseException:
            self._written.pop(key, None)  # it was not written
            raise
