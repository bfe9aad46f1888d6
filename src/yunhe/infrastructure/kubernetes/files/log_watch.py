"""Listens to the output of what runs, to know how much there is and which step it is at."""

from collections.abc import Callable

import anyio
from anyio.abc import TaskGroup

from yunhe.infrastructure.kubernetes.api.answers import decode
from yunhe.infrastructure.kubernetes.api.client import Api
from yunhe.infrastructure.kubernetes.api.shapes import Key, Pod, Record
from yunhe.infrastructure.kubernetes.files.logs import read_log
from yunhe.infrastructure.kubernetes.files.step_marks import StepMarks
from yunhe.infrastructure.kubernetes.objects import names
from yunhe.infrastructure.kubernetes.objects.phases import has_run, is_over
from yunhe.kernel.errors import YunheError

MOST_AT_ONCE = 256
"""Each is a connection that stays open; what is beyond waits its turn and is counted when it has ended."""
AGAIN_AFTER_S = 1.0


class LogWatch:
    """What has been heard of one allocation."""

    def __init__(self, record: Record) -> None:
        self.log_bytes = 0
        self.step = ""
        self.scope = anyio.CancelScope()
        self.allocation_id = record.metadata.annotations[names.ALLOCATION]
        self._steps = decode(record.metadata.annotations.get(names.STEPS, "[]"), list[str])

    def heard(self, marks: StepMarks, log_bytes: int) -> bool:
        """Take in how far the log has come; return whether others should know at once."""
        step = self._steps[marks.step_number - 1] if 0 < marks.step_number <= len(self._steps) else ""
        news = (step or self.step) != self.step or (log_bytes > 0 and self.log_bytes == 0)
        self.step = step or self.step
        self.log_bytes = max(self.log_bytes, log_bytes)
        return news


class LogWatches:
    """One tap for each running allocation."""

    def __init__(self, api: Api, group: TaskGroup, tell: Callable[[Key], None]) -> None:
        self._api = api
        self._group = group
        self._tell = tell
        self._taps: dict[Key, LogWatch] = {}
        self._places = anyio.CapacityLimiter(MOST_AT_ONCE)

    def get(self, key: Key) -> LogWatch | None:
        """Return what has been heard of an allocation."""
        return self._taps.get(key)

    def open(self, key: Key, record: Record, look: Callable[[], Pod | None]) -> None:
        """Begin to listen, unless somebody does."""
        if key not in self._taps:
            tap = self._taps[key] = LogWatch(record)
            self._group.start_soon(self._listen, key, tap, look)

    def close(self, key: Key) -> None:
        """Stop listening."""
        tap = self._taps.pop(key, None)
        if tap is not None:
            tap.scope.cancel()

    def close_all(self) -> None:
        """Stop listening to anything."""
        for key in list(self._taps):
            self.close(key)

    async def whole(self, key: Key, record: Record) -> LogWatch:
        """Read all there is, now that there will be no more."""
        tap = self._taps.get(key) or LogWatch(record)
        await self._pass(key, tap, follow=False)
        return tap

    async def _listen(self, key: Key, tap: LogWatch, look: Callable[[], Pod | None]) -> None:
        with tap.scope:
            async with self._places:
                while (pod := look()) is not None and not is_over(pod):
                    if has_run(pod):
                        try:
                            await self._pass(key, tap, follow=True)
                        except YunheError:
                            await anyio.sleep(AGAIN_AFTER_S)
                            continue
                    await anyio.sleep(AGAIN_AFTER_S / 5)

    async def _pass(self, key: Key, tap: LogWatch, *, follow: bool) -> None:
        marks, log_bytes = StepMarks(tap.allocation_id), 0
        async for data in read_log(self._api, key, marks, follow=follow):
            log_bytes += len(data)
            if tap.heard(marks, log_bytes):
                self._tell(key)
        if tap.heard(marks, log_bytes):
            self._tell(key)
