"""Which allocations changed after which version, so that an observer is told those and not all."""

from __future__ import annotations

GONE_KEPT = 1000
"""How many forgotten allocations are remembered, or as many as there are that are known.

An observer that is farther behind is told everything, which is then no more than what is gone.
"""


class ChangeLog:
    """Counts versions; asking what changed costs as much as what changed."""

    def __init__(self, version: int) -> None:
        self.version = version
        self._complete_after = version
        self._changed: dict[str, int] = {}
        self._gone: dict[str, int] = {}

    def note(self, name: str) -> None:
        """Count a change of *name*."""
        self.version += 1
        self._gone.pop(name, None)
        self._changed.pop(name, None)  # so that the order is that of the versions
        self._changed[name] = self.version

    def forget(self, name: str) -> None:
        """Count that *name* is not known any more."""
        self.version += 1
        self._changed.pop(name, None)
        self._gone.pop(name, None)
        self._gone[name] = self.version
        while len(self._gone) > max(GONE_KEPT, len(self._changed)):
            self._complete_after = self._gone.pop(next(iter(self._gone)))

    def after(self, version: int) -> tuple[list[str], list[str]] | None:
        """Return what changed after *version* and what is gone since; None where that is not remembered."""
        if not self._complete_after <= version <= self.version:
            return None
        return _newer(self._changed, version), _newer(self._gone, version)


def _newer(versions: dict[str, int], than: int) -> list[str]:
    found = []
    for name in reversed(versions):
        if versions[name] <= than:
            break
        found.append(name)
    found.reverse()
    return found
