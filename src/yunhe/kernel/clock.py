"""The clock as a value, so that what judges by time can be replayed."""

import time
from collections.abc import Callable
from datetime import UTC, datetime

Clock = Callable[[], float]
"""Returns seconds since the epoch, UTC."""

system_clock: Clock = time.time


def iso(at_s: float) -> str:
    """Return *at_s* as ISO 8601 in UTC with milliseconds."""
    return datetime.fromtimestamp(at_s, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
