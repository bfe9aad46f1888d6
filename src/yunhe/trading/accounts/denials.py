"""Denials that are worth a line: the first of each kind, then one a minute with how many there were."""

from yunhe.storage.audit import Actor

LINE_EVERY_S = 60.0
MOST_KINDS = 10_000


class Denials:
    """Counts who was turned away, and says when to write it down."""

    def __init__(self) -> None:
        self._counts: dict[tuple[Actor, str], tuple[float, int]] = {}

    def count(self, by: Actor, problem: str, now: float) -> int | None:
        """Count one denial; return how many have had no line since the last one, None if this has none either."""
        kind = (by, problem)
        told_at, untold = self._counts.get(kind, (0.0, 0))
        if now - told_at < LINE_EVERY_S:
            self._counts[kind] = (told_at, untold + 1)
            return None
        if len(self._counts) >= MOST_KINDS:
            self._counts.clear()
        self._counts[kind] = (now, 0)
        return untold
