"""The loop over pools: every term of the score for one demand, and their sum.

Plain Python that numba can compile; see ``compiling``. NaN is unknown throughout.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from yunhe.scheduling.decision.model import ScoreTerm

KERNELS = ("carbon_mean", "appraise", "add_up")

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]

ROWS: dict[ScoreTerm, int] = {term: row for row, term in enumerate(ScoreTerm)}
"""The row of each term in the table; below, the same as numbers, which is what kernels read."""
COST_PER_HOUR = ROWS[ScoreTerm.COST_PER_HOUR]
DATA_COST = ROWS[ScoreTerm.DATA_COST]
ENERGY_COST = ROWS[ScoreTerm.ENERGY_COST]
EXTERNAL_COST = ROWS[ScoreTerm.EXTERNAL_COST]
WAIT_S = ROWS[ScoreTerm.WAIT_S]
DATA_S = ROWS[ScoreTerm.DATA_S]
RUN_S = ROWS[ScoreTerm.RUN_S]
EXTERNAL_S = ROWS[ScoreTerm.EXTERNAL_S]
CARBON_G = ROWS[ScoreTerm.CARBON_G]
LATENCY_MS = ROWS[ScoreTerm.LATENCY_MS]
DISTANCE_KM = ROWS[ScoreTerm.DISTANCE_KM]
RISK = ROWS[ScoreTerm.RISK]
HOURS = len(ROWS)
"""No term: the row that ``cost_per_hour`` is multiplied by."""

LONGEST_RUN_H = 87600.0
UNKNOWN_IS_WORSE = 1e-9
"""How much more than the worst known value an unknown one counts: enough to lose a tie."""


class PoolArrays(NamedTuple):
    """What is known of the pools, whoever asks: one array for each fact, one row for each pool.

    Numba stores this name with what it compiled, and cannot read what it stored before a rename.
    """

    speed: FloatArray
    wait_s: FloatArray
    failures_per_hour: FloatArray
    interruptions_per_hour: FloatArray
    kw_per_core: FloatArray
    price_per_kwh: FloatArray
    external_cost: FloatArray
    external_s: FloatArray
    carbon_so_far: FloatArray
    carbon_hours: IntArray
    carbon_from_h: FloatArray


class Reach(NamedTuple):
    """What it takes to bring data and traffic to each pool."""

    data_s: FloatArray
    data_cost: FloatArray
    flow_cost_per_hour: FloatArray
    latency_ms: FloatArray
    distance_km: FloatArray


def carbon_mean(facts: PoolArrays, pool: int, start_h: float, hours: float) -> float:
    """Return the mean grams per kWh from *start_h* hours from now on; beyond its end a series repeats."""
    length = facts.carbon_hours[pool]
    if length == 0:
        return np.nan
    sums = facts.carbon_so_far[pool]
    begin = facts.carbon_from_h[pool] + start_h
    total = 0.0
    for end, sign in ((begin + hours, 1.0), (begin, -1.0)):
        rounds = math.floor(end / length)
        rest = end - rounds * length
        whole = min(int(rest), length - 1)
        part = sums[whole] + (rest - whole) * (sums[whole + 1] - sums[whole])
        total += sign * (rounds * sums[length] + part)
    return total / hours


def appraise(
    facts: PoolArrays,
    reach: Reach,
    base_h: float,
    cores: float,
    spot: bool,  # noqa: FBT001 - kernels have no keywords
    table: FloatArray,
) -> None:
    """Fill *table* with every term of each pool, save ``cost_per_hour``, for work of *base_h* hours at speed 1.

    Work that fails starts again from nothing: with failures at rate λ, T hours of work take (e^(λT) - 1) / λ.
    """
    for pool in range(table.shape[1]):
        speed = facts.speed[pool]
        alone_h = base_h if np.isnan(speed) else base_h / speed
        rate = facts.failures_per_hour[pool] + (facts.interruptions_per_hour[pool] if spot else 0.0)
        hours = alone_h
        if rate > 0:
            hours = min(math.expm1(min(rate * alone_h, 700.0)) / rate, LONGEST_RUN_H)
        wait_s, data_s = facts.wait_s[pool], reach.data_s[pool]
        table[HOURS, pool] = hours
        table[RUN_S, pool] = np.nan if np.isnan(speed) else hours * 3600.0
        table[RISK, pool] = 1.0 - math.exp(-rate * alone_h)
        table[WAIT_S, pool] = wait_s
        table[DATA_S, pool] = data_s
        table[DATA_COST, pool] = reach.data_cost[pool] + reach.flow_cost_per_hour[pool] * hours
        table[LATENCY_MS, pool] = reach.latency_ms[pool]
        table[DISTANCE_KM, pool] = reach.distance_km[pool]
        table[EXTERNAL_COST, pool] = facts.external_cost[pool]
        table[EXTERNAL_S, pool] = facts.external_s[pool]
        kwh = facts.kw_per_core[pool] * cores * hours
        starts_s = (0.0 if np.isnan(wait_s) else wait_s) + (0.0 if np.isnan(data_s) else data_s)
        table[ENERGY_COST, pool] = 0.0 if np.isnan(kwh) else kwh * facts.price_per_kwh[pool]
        if np.isnan(kwh):
            table[CARBON_G, pool] = np.nan
        else:
            table[CARBON_G, pool] = kwh * carbon_mean(facts, pool, starts_s / 3600.0, max(hours, 1e-6))


def add_up(table: FloatArray, weights: FloatArray, eligible: FloatArray, score: FloatArray) -> None:
    """Write the weighted sum of the terms; infinite where *eligible* is.

    An unknown term counts as a little worse than the worst that is known among eligible pools.
    """
    pools = table.shape[1]
    for pool in range(pools):
        score[pool] = eligible[pool]
    for term in range(weights.shape[0]):
        weight = weights[term]
        if weight == 0.0:
            continue
        worst, known = -np.inf, False
        for pool in range(pools):
            value = table[term, pool] * (table[HOURS, pool] if term == COST_PER_HOUR else 1.0)
            if not np.isnan(value) and eligible[pool] != np.inf and (not known or value > worst):
                worst, known = value, True
        unknown = worst + (abs(worst) + 1.0) * UNKNOWN_IS_WORSE if known else 0.0
        for pool in range(pools):
            value = table[term, pool] * (table[HOURS, pool] if term == COST_PER_HOUR else 1.0)
            score[pool] += weight * (unknown if np.isnan(value) else value)
