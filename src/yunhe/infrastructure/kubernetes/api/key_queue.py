"""A queue of keys to look at: each waits once however often it is added, and none is worked on twice at a time."""

import heapq
from collections import OrderedDict

import anyio

from yunhe.infrastructure.kubernetes.api.shapes import Key


class KeyQueue:
    """Coalesces keys; what just changed goes before what is only looked at again."""

    def __init__(self) -> None:
        self._urgent: OrderedDict[Key, None] = OrderedDict()
        self._backlog: OrderedDict[Key, None] = OrderedDict()
        self._later: list[tuple[float, Key]] = []
        self._busy: set[Key] = set()
        self._again: dict[Key, bool] = {}
        self._news = anyio.Event()

    def __len__(self) -> int:
        return len(self._urgent) + len(self._backlog)

    def add(self, key: Key, *, urgent: bool = True) -> None:
        """Have *key* looked at; one that is being looked at is looked at once more afterwards."""
        if key in self._busy:
            self._again[key] = urgent or self._again.get(key, False)
            return
        if urgent:
            self._backlog.pop(key, None)
            self._urgent.setdefault(key)
        elif key not in self._urgent:
            self._backlog.setdefault(key)
        self._wake()

    def add_after(self, key: Key, seconds: float) -> None:
        """Have *key* looked at later."""
        heapq.heappush(self._later, (anyio.current_time() + seconds, key))
        self._wake()

    async def take(self) -> Key:
        """Wait for a key and hold it until ``done``."""
        while True:
            now = anyio.current_time()
            while self._later and self._later[0][0] <= now:
                self.add(heapq.heappop(self._later)[1])
            for line in (self._urgent, self._backlog):
                if line:
                    key, _ = line.popitem(last=False)
                    self._busy.add(key)
                    return key
            if self._news.is_set():
                self._news = anyio.Event()
            wait_s = self._later[0][0] - now if self._later else None
            with anyio.move_on_after(wait_s):
                await self._news.wait()

    def done(self, key: Key) -> None:
        """Let a key go; what was added meanwhile is looked at again."""
        self._busy.discard(key)
        urgent = self._again.pop(key, None)
        if urgent is not None:
            self.add(key, urgent=urgent)

    def _wake(self) -> None:
        self._news.set()
