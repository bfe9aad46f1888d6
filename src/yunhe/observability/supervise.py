"""Background loops that outlive their failures."""

import logging
import random
from collections.abc import Awaitable, Callable

import anyio

from yunhe.kernel.backoff import Backoff
from yunhe.kernel.errors import YunheError

FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 30.0
RETRYABLE_PAUSE_S = 1.0
"""The longest pause after an error that passes by itself: a full disk, say, or a database that is away."""

log = logging.getLogger(__name__)


async def supervise(name: str, loop: Callable[[], Awaitable[None]]) -> None:
    """Run *loop* until cancelled; when it fails say so, wait a little longer each time, and run it again."""
    backoff = Backoff(FIRST_PAUSE_S, LONGEST_PAUSE_S)
    while True:
        began, most_s = anyio.current_time(), LONGEST_PAUSE_S
        try:
            await loop()
        except Exception as error:
            if _is_retryable(error):
                # Each loop at its own time: all of them meet the same error, and would come back together.
                most_s = RETRYABLE_PAUSE_S * random.uniform(0.5, 1.0)  # noqa: S311 - no secret
                log.warning("loop waits", extra={"loop": name, "problem": str(error)})
            else:
                log.exception("loop failed, will run again", extra={"loop": name})
        if anyio.current_time() - began > LONGEST_PAUSE_S:
            backoff.reset()
        await anyio.sleep(backoff.next_s(most_s))


def _is_retryable(error: Exception) -> bool:
    if isinstance(error, ExceptionGroup):
        return all(_is_retryable(each) for each in error.exceptions)
    return isinstance(error, YunheError) and error.retryable
