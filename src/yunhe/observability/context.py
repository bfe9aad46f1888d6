"""What a line of the log belongs to: the request that is answered, the job that is driven."""

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from types import MappingProxyType

_NONE: Mapping[str, str] = MappingProxyType({})
_bound: ContextVar[Mapping[str, str]] = ContextVar("yunhe_log_ids", default=_NONE)


def bound_ids() -> Mapping[str, str]:
    """Return the IDs that a line written here carries."""
    return _bound.get()


@contextmanager
def log_ids(*, request_id: str = "", job_id: str = "") -> Generator[None]:
    """Put these IDs, and no others, into each line that is written in the block or by tasks and threads it starts."""
    ids = {"request_id": request_id, "job_id": job_id}
    token = _bound.set({name: value for name, value in ids.items() if value})
    try:
        yield
    finally:
        _bound.reset(token)
