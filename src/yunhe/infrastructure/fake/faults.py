"""What can go wrong between the platform and a pool, by request."""

from collections import defaultdict, deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from enum import StrEnum

from yunhe.kernel.errors import YunheError


class Fault(StrEnum):
    """One thing that goes wrong with one call."""

    UNHEARD = "unheard"
    """The call is lost on its way: no effect, no answer."""
    UNANSWERED = "unanswered"
    """The call has its effect and the answer is lost; a stream breaks after its first piece."""
    LATE = "late"
    """No answer, and the call has its effect only after a later one had its own."""
    DUPLICATED = "duplicated"
    """The call is answered, and delivered once more after a later one."""
    CRASHED = "crashed"
    """The engine dies between claim and start (``launch`` only)."""
    STALE = "stale"
    """The answer is the one given before (``observe`` only)."""


ONLY_FOR = {Fault.CRASHED: "launch", Fault.STALE: "observe"}


class Faults:
    """What goes wrong next, call by call; shared by every connection to a pool."""

    def __init__(self) -> None:
        self.latency_s = 0.0
        """How long every call takes to arrive."""
        self._planned: dict[str, deque[Fault]] = defaultdict(deque)
        self._late: list[Callable[[], None]] = []

    def inject(self, verb: str, *faults: Fault) -> None:
        """Let the next calls of *verb* (a method's name) go wrong like this, in order."""
        for fault in faults:
            if ONLY_FOR.get(fault, verb) != verb:
                raise ValueError(f"{fault} happens to {ONLY_FOR[fault]} only, not to {verb}")
        self._planned[verb].extend(faults)

    def take(self, verb: str) -> Fault | None:
        """Return what goes wrong with this call."""
        planned = self._planned.get(verb)
        return planned.popleft() if planned else None

    def hold(self, call: Callable[[], None]) -> None:
        """Keep *call* for a later delivery."""
        self._late.append(call)

    def held(self) -> list[Callable[[], None]]:
        """Return, once, the calls whose time has come."""
        late, self._late = self._late, []
        return late


def deliver(calls: Iterable[Callable[[], None]]) -> None:
    """Let calls have their effect with nobody there to hear the answer, not even a refusal."""
    for call in calls:
        with suppress(YunheError):
            call()
