"""A gang over several pools: what it comes to as a whole, and whether that is within what links and limits have.

Every pool that has a member is fed all of the data, and carries its members' part of the traffic. The gang waits for its last
member and runs as long as its slowest; money and carbon add up. A pool that could not carry all of the traffic is not used for a
part of it either.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from yunhe.scheduling.decision.filter.rules import limits_of
from yunhe.scheduling.decision.model import (
    Demand,
    Rule,
    ScoreTerm,
)
from yunhe.scheduling.decision.network.bundle import RouteChoice, choose_together
from yunhe.scheduling.decision.network.moving import DataMove, NetworkLoad, PoolMoves, TrafficFlow, parts_of
from yunhe.scheduling.decision.options import Option, OptionScorer, PlacementSummary
from yunhe.scheduling.decision.present import estimated_in, moves_of
from yunhe.scheduling.decision.score import kernels as score_kernels
from yunhe.scheduling.decision.score.kernels import COST_PER_HOUR, HOURS, ROWS, FloatArray
from yunhe.scheduling.decision.score.terms import shown_terms, weights_of, worth_of

SHARED = (ScoreTerm.COST_PER_HOUR, ScoreTerm.ENERGY_COST, ScoreTerm.CARBON_G)
"""Terms of which each pool bears its members' part; ``external_cost`` is due in each pool, the others are the worst of all."""


def orders_of(option: Option) -> list[list[int]]:
    """Return the orders in which to fill pools: by score, then by price, as a budget is judged on the whole alone.

    Last only those that the budget allows by themselves: one whose price is unknown makes that of the whole unknown.
    """
    barred, too_dear = set(option.refusals), set[int]()
    for limit in option.limits:
        broken = set(np.flatnonzero(limit.broken).tolist())
        if limit.rule == Rule.AFFORDABLE:
            too_dear |= broken
        else:
            barred |= broken
    able = [pool for pool in range(option.score.size) if pool not in barred]
    rate = np.nan_to_num(option.table[COST_PER_HOUR] * option.table[HOURS], nan=np.inf)
    by_score = sorted(able, key=lambda pool: (float(option.score[pool]), pool))
    by_price = sorted(able, key=lambda pool: (float(rate[pool]), pool))
    orders = [by_score]
    for other in (by_price, [pool for pool in by_score if pool not in too_dear]):
        if other and other not in orders:
            orders.append(other)
    return orders


def shown_over(
    demand: Demand, option: Option, members: Mapping[int, int], appraiser: OptionScorer
) -> PlacementSummary | None:
    """Return what a gang with so many members in each pool comes to; None where links or limits do not allow it."""
    column = _column(demand, option, members)
    parts = PoolMoves()
    if demand.data or demand.traffic:
        moved = _moved(demand, members, appraiser, column)
        if moved is None:
            return None
        parts = moved
    if any(bool(limit.broken[0]) for limit in limits_of(demand, column, appraiser.snapshot.taken_at)):
        return None
    estimated = [name for pool in members for name in estimated_in(demand, option, pool, appraiser.columns)]
    return PlacementSummary(
        score=_score(demand, option, column),
        terms=shown_terms(column, 0),
        estimated=tuple(dict.fromkeys(estimated)),
        moves=moves_of(parts, appraiser.snapshot.network.sites),
    )


def _column(demand: Demand, option: Option, members: Mapping[int, int]) -> FloatArray:
    """Return the terms of the whole as one column of a table; what is unknown of a part is unknown of the whole."""
    pools = list(members)
    share = np.array([members[pool] / demand.members for pool in pools])
    table = option.table[:, pools]
    column = table.max(axis=1, keepdims=True)
    for name in SHARED:
        column[ROWS[name], 0] = (table[ROWS[name]] * share).sum()
    column[ROWS[ScoreTerm.EXTERNAL_COST], 0] = table[ROWS[ScoreTerm.EXTERNAL_COST]].sum()
    column[ROWS[ScoreTerm.RISK], 0] = 1 - np.prod(1 - table[ROWS[ScoreTerm.RISK]])
    return column


def _moved(
    demand: Demand, members: Mapping[int, int], appraiser: OptionScorer, column: FloatArray
) -> PoolMoves | None:
    """Choose how everything comes to all of the pools at once, and note in *column* what that takes."""
    worth = worth_of(demand.policy, demand.weights)
    burden = NetworkLoad(demand, appraiser.snapshot, appraiser.router, worth)
    hours, all_members = float(column[HOURS, 0]), sum(members.values())
    moves = [
        (pool, move)
        for pool, number in members.items()
        for move in burden.moves_to(pool, hours, number / all_members)
    ]
    able = [(pool, move) for pool, move in moves if move.choices()]
    chosen = choose_together([move for _, move in able], appraiser.router.useful_mbps)
    if chosen is None:
        return None
    _note(column, moves, list(zip(able, chosen, strict=True)))
    return parts_of([move for _, move in able], chosen)


def _note(
    column: FloatArray,
    moves: Sequence[tuple[int, DataMove | TrafficFlow]],
    chosen: Sequence[tuple[tuple[int, DataMove | TrafficFlow], RouteChoice]],
) -> None:
    """Write what moving takes: money in all, and the time of the pool that waits longest."""
    unknown = any(isinstance(move, DataMove) and not move.choices() for _, move in moves)
    seconds = dict.fromkeys((pool for pool, _ in moves), np.nan if unknown else 0.0)
    for (pool, _), choice in chosen:
        seconds[pool] += choice.seconds
    money = sum(choice.cost for _, choice in chosen) + (np.nan if unknown else 0.0)
    column[ROWS[ScoreTerm.DATA_S], 0] = _known(max(seconds.values()))
    column[ROWS[ScoreTerm.DATA_COST], 0] = _known(money)


def _known(value: float) -> float:
    return value if np.isfinite(value) else np.nan


def _score(demand: Demand, option: Option, column: FloatArray) -> float:
    """Return the score of the whole beside the pools': what is unknown counts as it does for them."""
    table = np.hstack([option.table, column])
    eligible = np.append(np.where(np.isinf(option.score), np.inf, 0.0), 0.0)
    score = np.empty_like(eligible)
    score_kernels.add_up(table, weights_of(demand.policy, demand.weights), eligible, score)
    return float(score[-1])
