"""The clock as a value, so that what judges by time can be replayed."""

import time
from collections.abc import Callable

Clock = Callable[[], float]
"""Returns seconds since the epoch, UTC."""

system_clock: Clock = time.time
