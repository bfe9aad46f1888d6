"""The line of those who wait: in the order they came, and nobody holds up anybody who needs something else."""

import heapq
from collections.abc import Callable, Hashable

Shape = tuple[int, Hashable]
"""What tasks must have in common to wait for the same thing: priority (negated, so that the highest is first) and needs."""


class SimulatedQueue:
    """Waiting tasks, by shape."""

    def __init__(self) -> None:
        self._lines: dict[Shape, list[tuple[int, int]]] = {}
        """Of each shape (turn, task), a heap."""

    def __len__(self) -> int:
        return len(self._lines)

    def join(self, shape: Shape, turn: int, task: int) -> None:
        """Wait; *turn* is the task's place in the order of arrival, which it keeps when it must run again."""
        heapq.heappush(self._lines.setdefault(shape, []), (turn, task))

    def let_in(self, placed: Callable[[int], bool]) -> None:
        """Offer each its turn; of a shape that finds no room nobody else is asked."""
        heads = [(shape[0], line[0][0], shape) for shape, line in self._lines.items()]
        heapq.heapify(heads)
        while heads:
            _, _, shape = heapq.heappop(heads)
            line = self._lines[shape]
            if not placed(line[0][1]):
                continue
            heapq.heappop(line)
            if line:
                heapq.heappush(heads, (shape[0], line[0][0], shape))
            else:
                del self._lines[shape]
