"""Denials that are worth a line: the first of each kind in a minute, and then how many more there were."""

from yunhe.storage.audit import Actor

LINE_EVERY_S = 60.0
MOST_KINDS = 10_000


class Denials:
    """Counts who was turned away, and says when to write it down: *lines* of each kind a minute."""

    def __init__(self, lines: int = 1) -> None:
        self._lines = lines
        self._counts: dict[tuple[Actor, str], tuple[float, int]] = {}

    def count(self, by: Actor, problem: str, now: float) -> int | None:
        """Count one denial; return how many have had no line since the last one, None if this has none either."""
        kind = (by, problem)
        began_at, seen = self._counts.get(kind, (-LINE_EVERY_S, 0))
        if now - began_at < LINE_EVERY_S:
            self._counts[kind] = (began_at, seen + 1)
            return 0 if seen < self._lines else None
        if len(self._counts) >= MOST_KINDS:
            self._counts.clear()
        self._counts[kind] = (now, 1)
        return max(0, seen - self._lines)
