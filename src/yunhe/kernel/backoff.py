"""Delays between attempts: each twice the one before it, up to a longest one."""


def delay_s(first_s: float, longest_s: float, failures: int) -> float:
    """Return the delay after *failures* in a row that are counted elsewhere, the first of them as 0."""
    return min(longest_s, first_s * 2 ** min(failures, 64))


class Backoff:
    """How long to wait before the next attempt; whoever waits adds chance where many wait for the same thing."""

    def __init__(self, first_s: float, longest_s: float = float("inf")) -> None:
        self._first_s = first_s
        self._longest_s = longest_s
        self._next_s = first_s

    def next_s(self, most_s: float = float("inf")) -> float:
        """Return the delay before the next attempt, here at most *most_s*; the one after it is twice as long."""
        delay_s = min(self._next_s, self._longest_s, most_s)
        self._next_s = min(2 * delay_s, self._longest_s)
        return delay_s

    def reset(self) -> None:
        """Begin again with the first delay: an attempt was good."""
        self._next_s = self._first_s
