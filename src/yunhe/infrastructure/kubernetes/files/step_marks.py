"""A log without the lines that tell where a step begins, and what those lines tell."""

import re

from yunhe.infrastructure.kubernetes.objects.wrapper import MARK

_LONGEST = 400
"""No mark is longer; what begins like one and goes on is the task's own output."""


class StepMarks:
    """Takes the marks out of an allocation's output, however it is cut into pieces."""

    def __init__(self, allocation_id: str) -> None:
        self.step_number = 0
        self.begins_with_mark: bool | None = None
        self._mark = re.compile(re.escape(MARK + allocation_id.encode()) + rb" ([0-9]{1,6})" + MARK + rb"\n")
        self._held = b""

    def feed(self, data: bytes) -> bytes:
        """Return the clean part of *data*; what may yet turn out to be a mark is held back."""
        data = self._held + data
        self._held = b""
        clean: list[bytes] = []
        position = 0
        while position < len(data):
            start = data.find(MARK, position)
            if start < 0:
                clean.append(data[position:])
                break
            clean.append(data[position:start])
            found = self._mark.match(data, start)
            if found is not None:
                self._note(found, first=start == 0)
                position = found.end()
            elif self._may_be_mark(data[start:]):
                self._held = data[start:]
                break
            else:
                clean.append(MARK)
                position = start + 1
        out = b"".join(clean)
        if out and self.begins_with_mark is None:
            self.begins_with_mark = False
        return out

    def end(self) -> bytes:
        """Return what was held back, for nothing follows."""
        held, self._held = self._held, b""
        return held

    def _note(self, found: re.Match[bytes], *, first: bool) -> None:
        self.step_number = int(found[1])
        if self.begins_with_mark is None:
            self.begins_with_mark = first and self.step_number in (0, 1)

    def _may_be_mark(self, rest: bytes) -> bool:
        """Return whether more bytes could make *rest* a mark."""
        return b"\n" not in rest and len(rest) < _LONGEST
