"""Background loops that outlive their failures."""

import logging
from collections.abc import Awaitable, Callable

import anyio

FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 30.0

log = logging.getLogger(__name__)


async def supervise(name: str, loop: Callable[[], Awaitable[None]]) -> None:
    """Run *loop* until cancelled; when it fails say so, wait a little longer each time, and run it again."""
    pause_s = FIRST_PAUSE_S
    while True:
        began = anyio.current_time()
        try:
            await loop()
        except Exception:
            log.exception("loop failed, will run again", extra={"loop": name, "pause_s": pause_s})
        if anyio.current_time() - began > LONGEST_PAUSE_S:
            pause_s = FIRST_PAUSE_S
        await anyio.sleep(pause_s)
        pause_s = min(LONGEST_PAUSE_S, pause_s * 2)
