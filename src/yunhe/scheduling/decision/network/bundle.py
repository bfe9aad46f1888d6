"""All that one demand moves, chosen together: the best way for each, where their sum is within what links and limits have.

Each is chosen alone at first. Where that asks too much, somebody has to give way: each who could is tried without the link
that is over, or with less time or money than it took, the least loss first. Whatever keeps within bounds lets somebody give
way so, hence the first answer found is the best there is; the search is cut short only where very many conflict.
"""

import heapq
from collections.abc import Iterator, Sequence
from itertools import count
from typing import NamedTuple, Protocol

import numpy as np

from yunhe.scheduling.decision.network.kernels import FloatArray
from yunhe.scheduling.decision.network.routes import ALL_OPEN, RouteOption

MOST_TRIED = 400
"""How many combinations are looked at before a conflict counts as beyond remedy."""
TOLERANCE = 1e-9


class RouteChoice(NamedTuple):
    """One way for one thing that moves, and what it takes; infinite where nobody knows."""

    rank: tuple[float, float, float]
    """What the policy goes by, least first."""
    way: RouteOption
    seconds: float
    cost: float
    mbps: float
    """What it reserves on each link of its way."""


class Move(Protocol):
    """One thing that moves."""

    def choices(self, shut: frozenset[int] = ALL_OPEN) -> Sequence[RouteChoice]:
        """Return every choice that avoids the links *shut* and that no other beats in all respects."""
        ...


class TransferLimits(NamedTuple):
    """How much everything together may take; time that is unknown is not known to be too long."""

    seconds: float = np.inf
    cost: float = np.inf


ANY = TransferLimits()


class _Strictness(NamedTuple):
    """What one move has to do without."""

    shut: frozenset[int] = ALL_OPEN
    seconds_below: float | None = None
    cost_below: float | None = None

    def allows(self, choice: RouteChoice) -> bool:
        """Return whether a choice, over links that are not shut, is strict enough."""
        if self.seconds_below is not None and self.seconds_below <= choice.seconds < np.inf:
            return False
        return self.cost_below is None or choice.cost < self.cost_below


class _Try(NamedTuple):
    """A combination: what each does without, and what each then chooses."""

    strict: tuple[_Strictness, ...]
    chosen: tuple[RouteChoice, ...]


def choose_together(
    moves: Sequence[Move], mbps: FloatArray, bounds: TransferLimits = ANY
) -> tuple[RouteChoice, ...] | None:
    """Return the best choice for each of *moves* that *mbps* of each link and *bounds* allow; None when there is none."""
    alone = [_best(move.choices()) for move in moves]
    chosen = tuple([one for one in alone if one is not None])
    if len(chosen) < len(alone) or min(bounds) < 0:
        return None
    begin = _Try((_Strictness(),) * len(moves), chosen)
    seen, turn = {begin.strict}, count()
    waiting = [(_rank(chosen), next(turn), begin)]
    while waiting:
        _, _, one = heapq.heappop(waiting)
        stricter = list(_ways_out(one, mbps, bounds))
        if not stricter:
            return one.chosen
        for index, strictness in stricter:
            strict = (*one.strict[:index], strictness, *one.strict[index + 1 :])
            if strict in seen or len(seen) >= MOST_TRIED:
                continue
            seen.add(strict)
            best = _best(
                [choice for choice in moves[index].choices(strictness.shut) if strictness.allows(choice)]
            )
            if best is not None:
                chosen = (*one.chosen[:index], best, *one.chosen[index + 1 :])
                heapq.heappush(waiting, (_rank(chosen), next(turn), _Try(strict, chosen)))
    return None


def _best(choices: Sequence[RouteChoice]) -> RouteChoice | None:
    return min(choices, key=lambda one: (one.rank, one.way), default=None)


def _rank(chosen: Sequence[RouteChoice]) -> tuple[int, float, float]:
    """Return what a combination comes to: how many of its parts are unknown, then the sum of the others."""
    first, second = [one.rank[0] for one in chosen], [one.rank[1] for one in chosen]
    unknown = first.count(np.inf)
    return unknown, sum(value for value in first if value < np.inf), sum(v for v in second if v < np.inf)


def _ways_out(one: _Try, mbps: FloatArray, bounds: TransferLimits) -> Iterator[tuple[int, _Strictness]]:
    """Yield who could give way, and how, where a combination takes too much; nothing where it does not."""
    chosen, strict = one.chosen, one.strict
    link = _overloaded(chosen, mbps)
    if link is not None:
        for index, choice in enumerate(chosen):
            if choice.mbps > 0 and link in choice.way.links:
                yield index, strict[index]._replace(shut=strict[index].shut | {link})
    elif sum(choice.seconds for choice in chosen if choice.seconds < np.inf) > bounds.seconds + TOLERANCE:
        for index, choice in enumerate(chosen):
            if 0 < choice.seconds < np.inf:
                yield index, strict[index]._replace(seconds_below=choice.seconds)
    elif sum(choice.cost for choice in chosen) > bounds.cost + TOLERANCE:
        for index, choice in enumerate(chosen):
            if choice.cost > 0:
                yield index, strict[index]._replace(cost_below=choice.cost)


def _overloaded(chosen: Sequence[RouteChoice], mbps: FloatArray) -> int | None:
    """Return a link that carries more than it has."""
    carried: dict[int, float] = {}
    for choice in chosen:
        for link in choice.way.links if choice.mbps > 0 else ():
            carried[link] = carried.get(link, 0.0) + choice.mbps
    return next((link for link, sum_mbps in carried.items() if sum_mbps > mbps[link] + TOLERANCE), None)
