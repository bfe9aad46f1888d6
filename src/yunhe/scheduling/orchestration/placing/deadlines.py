"""Deadlines of jobs that wait: one that has passed ends them, as no pool can meet it any more."""

from heapq import heappop, heappush

from yunhe.scheduling.decision.model import Demand


class DeadlineQueue:
    """Shapes that were refused, the earliest deadline first."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, str]] = []
        self._known: set[str] = set()

    def add(self, shape: str, demand: Demand) -> None:
        """Note the deadline of a shape, where it has one."""
        if demand.deadline_at is not None and shape not in self._known:
            self._known.add(shape)
            heappush(self._heap, (demand.deadline_at, shape))

    def take_passed(self, now: float) -> list[tuple[float, str]]:
        """Return the deadlines that have passed at *now* with their shapes, and forget them."""
        passed: list[tuple[float, str]] = []
        while self._heap and self._heap[0][0] <= now:
            passed.append(heappop(self._heap))
            self._known.discard(passed[-1][1])
        return passed
