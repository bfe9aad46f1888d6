"""What a snapshot knows of its pools, as one number per pool: NaN where it is unknown."""

from collections.abc import Iterable
from functools import cache

import numpy as np

from yunhe.kernel.money import MICROS, Prices, Tier
from yunhe.kernel.places import Place
from yunhe.kernel.resources import Resources
from yunhe.scheduling.decision.nodes.kernels import FloatArray, IntArray
from yunhe.scheduling.perception.model import PoolFacts
from yunhe.scheduling.perception.snapshot import Snapshot, matching_kinds


def cost_per_hour_micros(resources: Resources, prices: Prices) -> float:
    """Return what reserving *resources* for an hour costs."""
    cost = resources.cpu_millis / 1000 * prices.cpu_core_hour_micros
    cost += resources.memory_mib / 1024 * prices.memory_gib_hour_micros
    for wanted in resources.accelerators:
        cost += wanted.milli / 1000 * prices.accelerator_hour_micros.get(wanted.kind, 0)
    return cost


class PoolColumns:
    """The numbers that score terms are made of."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self.taken_at = snapshot.taken_at
        pools = snapshot.pools
        self.speed = _column(pool.speed for pool in pools)
        self.wait_s = _column(pool.wait_s for pool in pools)
        self.failures_per_hour = -np.log(np.clip(_column(pool.reliability for pool in pools), 1e-12, 1.0))
        self.interruptions_per_hour = _column(
            0.0 if pool.spot is None else pool.spot.interruptions_per_hour for pool in pools
        )
        self.kw_per_core = _column(_kw_per_core(pool) for pool in pools)
        self.price_per_kwh = _column(_energy_price(pool) for pool in pools)
        self.external_cost, self.external_s = _external(snapshot)
        self.carbon_so_far, self.carbon_hours, self.carbon_from_h = _carbon(snapshot)
        self._prices = cache(self._price_columns)
        self.distance_km = cache(self._distance_km)

    def cost_per_hour(self, resources: Resources, tier: Tier, *, interruptible: bool) -> FloatArray:
        """Return what an hour of *resources* costs in each pool, in units of the currency.

        Where any of several kinds of accelerator would do, the dearest that the pool prices is counted.
        """
        cpu, memory, kinds = self._prices(tier, interruptible)
        cost = (resources.cpu_millis / 1000) * cpu + (resources.memory_mib / 1024) * memory
        for wanted in resources.accelerators:
            codes = sorted(matching_kinds(wanted.kind, self._snapshot.device_kinds))
            if codes:
                cost = cost + wanted.milli / 1000 * kinds[:, codes].max(axis=1)
        return cost

    def _price_columns(self, tier: Tier, interruptible: bool) -> tuple[FloatArray, FloatArray, FloatArray]:  # noqa: FBT001 - cached by position
        pools, kinds = self._snapshot.pools, self._snapshot.device_kinds
        listed = [None if pool.prices is None else pool.prices.get(tier) for pool in pools]
        ratio = np.array([spot_ratio(pool) if interruptible else 1.0 for pool in pools])
        cpu = _column(None if prices is None else prices.cpu_core_hour_micros for prices in listed)
        memory = _column(None if prices is None else prices.memory_gib_hour_micros for prices in listed)
        rows = [
            [0 if prices is None else prices.accelerator_hour_micros.get(kind, 0) for kind in kinds]
            for prices in listed
        ]
        devices = np.array(rows, dtype=np.float64).reshape(len(pools), len(kinds))
        return cpu * ratio / MICROS, memory * ratio / MICROS, devices * ratio[:, None] / MICROS

    def _distance_km(self, near: Place) -> FloatArray:
        return _column(
            None if pool.place is None else near.distance_km(pool.place) for pool in self._snapshot.pools
        )


def spot_ratio(pool: PoolFacts) -> float:
    """Return what spot capacity costs of the listed price: the mean of its history; 1 where there is none."""
    if pool.spot is None or not pool.spot.price_ratio_history:
        return 1.0
    return sum(pool.spot.price_ratio_history) / len(pool.spot.price_ratio_history)


def _kw_per_core(pool: PoolFacts) -> float | None:
    if pool.energy is None or pool.energy.watts_per_core is None:
        return None
    return pool.energy.watts_per_core * pool.energy.pue / 1000


def _energy_price(pool: PoolFacts) -> float:
    """Return what a kWh adds to the bill; nothing where the pool's prices include its power."""
    if pool.energy is None or pool.energy.price_micros_per_kwh is None:
        return 0.0
    return pool.energy.price_micros_per_kwh / MICROS


def _external(snapshot: Snapshot) -> tuple[FloatArray, FloatArray]:
    cost, seconds = np.zeros(len(snapshot.pools)), np.zeros(len(snapshot.pools))
    for score in snapshot.surroundings.external:
        row = snapshot.row_of_pool.get(score.pool_id)
        if row is not None and score.valid_until > snapshot.taken_at:
            cost[row] += score.cost
            seconds[row] += score.seconds
    return cost, seconds


def _carbon(snapshot: Snapshot) -> tuple[FloatArray, IntArray, FloatArray]:
    """Return running sums of grams per kWh by hour, how many hours each has, and where in them now is."""
    series = [() if pool.energy is None else pool.energy.carbon_g_per_kwh for pool in snapshot.pools]
    hours = np.array([len(one) for one in series], dtype=np.int64)
    sums = np.zeros((len(series), int(hours.max(initial=0)) + 1))
    for row, one in enumerate(series):
        sums[row, 1 : len(one) + 1] = np.cumsum(one)
    began = np.array([0.0 if pool.energy is None else pool.energy.carbon_from for pool in snapshot.pools])
    return sums, hours, (snapshot.taken_at - began) / 3600.0


def _column(values: Iterable[float | None]) -> FloatArray:
    return np.array([np.nan if value is None else value for value in values], dtype=np.float64)
