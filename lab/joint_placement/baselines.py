"""How others decide, for comparison: by price alone, by where the data is, or by compute first and network after."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import msgspec
import numpy as np

from yunhe.scheduling.decision.cycle import Cycle
from yunhe.scheduling.decision.filter.rules import ready_after_s, total_cost
from yunhe.scheduling.decision.model import Demand, Policy, ScoreTerm, TransferMode
from yunhe.scheduling.decision.score.terms import term


class Result(NamedTuple):
    """What one job comes to where it was sent."""

    pool: str
    cost: float
    hours: float
    objective: float


def together(demand: Demand, cycle: Cycle) -> Result:
    """Decide on compute, data and route at once."""
    return outcome(demand, cycle, best_pool(demand, cycle))


def by_price(demand: Demand, cycle: Cycle) -> Result:
    """Take the cheapest machine, as a broker does, and bring the data the cheapest way."""
    blind = msgspec.structs.replace(demand, data=(), policy=Policy.CHEAPEST)
    needs = tuple(msgspec.structs.replace(need, mode=TransferMode.CHEAP) for need in demand.data)
    return outcome(msgspec.structs.replace(demand, data=needs), cycle, best_pool(blind, cycle))


def by_data(demand: Demand, cycle: Cycle) -> Result:
    """Run where the data is; where that cannot be, where it comes soonest; of equals, the cheapest."""
    option = cycle.appraiser.option(demand, 0)
    data_s = np.nan_to_num(term(option.table, ScoreTerm.DATA_S), nan=np.inf)
    rows = able(demand, cycle)
    return outcome(demand, cycle, min(rows, key=lambda row: (data_s[row], float(option.score[row]), row)))


def compute_then_network(demand: Demand, cycle: Cycle) -> Result:
    """Choose the pool as if there were no data, then the best source and route to it."""
    return outcome(demand, cycle, best_pool(msgspec.structs.replace(demand, data=()), cycle))


BASELINES: Mapping[str, Callable[[Demand, Cycle], Result]] = {
    "price only": by_price,
    "nearest data": by_data,
    "compute, then network": compute_then_network,
}


def able(demand: Demand, cycle: Cycle) -> list[int]:
    """Return the pools that have what *demand* needs."""
    option = cycle.appraiser.option(demand, 0)
    return [
        row
        for row in range(len(cycle.snapshot.pools))
        if option.order[row] < np.inf and cycle.fit_in(demand, 0, option, row) is not None
    ]


def best_pool(demand: Demand, cycle: Cycle) -> int:
    """Return the pool a demand would go to."""
    fit = cycle.find(demand)
    if fit is None:
        raise LookupError(f"no region has {demand.alternatives[0].resources}")
    return fit.pool


def outcome(demand: Demand, cycle: Cycle, pool: int) -> Result:
    """Return what *demand* comes to in one pool, with the way that its transfer mode prefers."""
    option = cycle.appraiser.option(demand, 0)
    return Result(
        pool=cycle.snapshot.pools[pool].name,
        cost=float(total_cost(option.table)[pool]),
        hours=float(ready_after_s(option.table)[pool]) / 3600,
        objective=float(option.score[pool]),
    )
