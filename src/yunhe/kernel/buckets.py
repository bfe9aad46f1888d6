"""Token buckets: how often each of many may do something, without a clock or a thread of their own."""


class TokenBuckets:
    """A bucket for each key; it fills at *per_s* up to *burst*. Of more than *most_keys*, the longest unused are forgotten."""

    def __init__(self, per_s: float, burst: float, most_keys: int = 10_000) -> None:
        self._per_s = per_s
        self._burst = burst
        self._most_keys = most_keys
        self._filled: dict[str, tuple[float, float]] = {}

    def wait_s(self, key: str, now: float, per_s: float | None = None) -> float:
        """Take a token and return 0; or return how long it is until there is one, and take none.

        A bucket may fill at a rate of its own, *per_s*; it then holds as many times that as others hold of theirs.
        """
        rate = self._per_s if per_s is None else per_s
        burst = self._burst / self._per_s * rate
        tokens, at = self._filled.pop(key, (burst, now))
        tokens = min(burst, tokens + max(0.0, now - at) * rate)
        wait_s = 0.0 if tokens >= 1 else (1 - tokens) / rate
        self._filled[key] = (tokens - 1 if wait_s == 0 else tokens, now)
        if len(self._filled) > self._most_keys:
            del self._filled[next(iter(self._filled))]
        return wait_s
