"""The exact answer for a few demands at once, by integer programming with HiGHS: for judging the search.

Needs the extra ``exact``. It covers what couples demands: nodes (cores, memory, disk) and links on which transfers reserve
bandwidth. Where data is brought from and by which route is part of the model: routes are unsplit flows. Gangs, accelerators,
steady traffic, and carbon that changes by the hour are not covered, and are refused; so are terms that are known of some
pools only, as what an unknown one counts depends on who else could take the demand. A transfer that reserves nothing is
taken to find links as free as they are now: in that the optimum is a bound, and no plan can be better.
"""

from collections.abc import Sequence
from itertools import product
from typing import Any, NamedTuple

import highspy
import msgspec
import numpy as np

from yunhe.kernel.errors import UnsupportedError
from yunhe.scheduling.decision.cycle import Cycle
from yunhe.scheduling.decision.demands import check_demand
from yunhe.scheduling.decision.joint import WAITING_COSTS
from yunhe.scheduling.decision.model import DataNeed, Demand
from yunhe.scheduling.decision.network.routes import (
    MBIT_PER_MIB,
    MIB_PER_GIB,
    Parcel,
    in_zone,
    parcel,
)
from yunhe.scheduling.decision.options import Option
from yunhe.scheduling.decision.score.terms import worth_of
from yunhe.scheduling.perception.snapshot import Snapshot, check_snapshot


class Optimum(NamedTuple):
    """The best there is: what it comes to, how many wait, and the node of each demand ("" for waiting)."""

    cost: float
    waiting: int
    nodes: tuple[str, ...]
    proven: bool


def plan_exactly(demands: Sequence[Demand], snapshot: Snapshot, *, limit_s: float = 60.0) -> Optimum:
    """Return the optimum for *demands* together."""
    for demand in demands:
        _refuse_uncovered(check_demand(demand))
    return _DemandModel(demands, Cycle(check_snapshot(snapshot))).solve(limit_s)


def _refuse_uncovered(demand: Demand) -> None:
    uncovered = {
        "gangs": demand.members != 1,
        "accelerators": any(one.resources.accelerators for one in demand.alternatives),
        "steady traffic": bool(demand.traffic),
        "ordered alternatives": demand.ordered,
    }
    found = [name for name, there in uncovered.items() if there]
    if found:
        raise UnsupportedError(
            f"The exact model does not cover {', '.join(found)}.", remedy="Use plan_jointly."
        )


def _refuse_unknown(option: Option) -> None:
    unknown = np.isnan(option.table[:, option.order < np.inf])
    if bool((unknown.any(axis=1) & ~unknown.all(axis=1)).any()):
        raise UnsupportedError(
            "The exact model does not cover terms that are known of some pools only.",
            remedy="Use plan_jointly.",
        )


class _DemandModel:
    """Binary choices: which alternative on which node, and which arcs carry which transfer."""

    def __init__(self, demands: Sequence[Demand], cycle: Cycle) -> None:
        self.demands, self.cycle, self.snapshot = demands, cycle, cycle.snapshot
        self.h = highspy.Highs()
        self.h.silent()
        self.cost: list[Any] = []
        self.at: dict[tuple[int, int, int], Any] = {}
        self.load: dict[int, list[Any]] = {link: [] for link in range(self.snapshot.network.free_mbps.size)}
        for index, demand in enumerate(demands):
            self._place(index, demand)
            for need in demand.data:
                if need.rate_mbps is not None:
                    self._carry(index, demand, need)
        self._keep_within_nodes()
        for link, carried in self.load.items():
            if carried:
                self.h.addConstr(self.h.qsum(carried) <= float(self.snapshot.network.free_mbps[link]))

    def _place(self, index: int, demand: Demand) -> None:
        """Add a choice for each alternative and node that no rule or limit refuses."""
        free = tuple(need for need in demand.data if need.rate_mbps is None)
        alone = msgspec.structs.replace(demand, data=free)
        choices: list[Any] = []
        for alternative in range(len(demand.alternatives)):
            option = self.cycle.appraiser.option(alone, alternative)
            _refuse_unknown(option)
            for row in range(len(self.snapshot.node_ids)):
                pool = int(self.snapshot.node_pool[row])
                if option.order[pool] == np.inf or not option.ask.class_ok[self.snapshot.node_class[row]]:
                    continue
                choice = self.at[index, alternative, row] = self.h.addBinary()
                choices.append(choice)
                self.cost.append((float(option.score[pool]) - WAITING_COSTS) * choice)
        if choices:
            self.h.addConstr(self.h.qsum(choices) <= 1)

    def _carry(self, index: int, demand: Demand, need: DataNeed) -> None:
        """Add the flow of one reserved transfer, from some replica to wherever the demand goes."""
        network = self.snapshot.network
        one = parcel(need, self.snapshot, demand.residency)
        inside = [all(in_zone(region, zone) for zone in one.zones) for region in network.regions]
        begins = {site: self.h.addBinary() for site in one.sources if inside[site]}
        arcs: dict[tuple[int, int, int], Any] = {}
        for source in range(len(network.sites)):
            for arc in range(int(network.arc_start[source]), int(network.arc_start[source + 1])):
                target, link = int(network.arc_target[arc]), int(network.arc_link[arc])
                if inside[source] and inside[target] and (network.relays[source] or source in begins):
                    arcs[source, target, link] = self.h.addBinary()
        there = self._sites(index)
        for site in range(len(network.sites)):
            out = [flow for (a, _, _), flow in arcs.items() if a == site]
            into = [flow for (_, b, _), flow in arcs.items() if b == site]
            ends = there.get(site, [])
            begin = [begins[site]] if site in begins else []
            if out or into or ends or begin:
                self.h.addConstr(self._sum(out) - self._sum(into) == self._sum(begin) - self._sum(ends))
            if into and not network.relays[site]:
                self.h.addConstr(self._sum(into) <= self._sum(ends))
            if out and not network.relays[site]:
                self.h.addConstr(self._sum(out) <= self._sum(begin))
        self._price(one, demand, arcs, set(begins))

    def _price(
        self, one: Parcel, demand: Demand, arcs: dict[tuple[int, int, int], Any], begins: set[int]
    ) -> None:
        """Add what each arc costs in money and time, and the bandwidth it takes."""
        network, rate = self.snapshot.network, one.need.rate_mbps or 0.0
        worth_of_second = worth_of(demand.policy, demand.weights).second
        size = one.size_mib or 0
        for (source, _, link), flow in arcs.items():
            seconds = float(np.nan_to_num(network.latency_ms[link])) / 1000
            if source in begins:
                seconds += size * MBIT_PER_MIB / rate
            money = size / MIB_PER_GIB * float(np.nan_to_num(network.price_per_gib[link]))
            self.cost.append((money + worth_of_second * seconds) * flow)
            self.load[link].append(rate * flow)

    def _sites(self, index: int) -> dict[int, list[Any]]:
        """Return site → the choices that bring a demand there."""
        sites: dict[int, list[Any]] = {}
        for (demand, _, row), choice in self.at.items():
            if demand == index:
                site = int(self.snapshot.network.pool_site[self.snapshot.node_pool[row]])
                sites.setdefault(site, []).append(choice)
        return sites

    def _keep_within_nodes(self) -> None:
        columns = (
            (self.snapshot.cpu_free_millis, "cpu_millis"),
            (self.snapshot.memory_free_mib, "memory_mib"),
            (self.snapshot.disk_free_mib, "disk_mib"),
        )
        for row, (free, name) in product(range(len(self.snapshot.node_ids)), columns):
            taken = [
                getattr(self.demands[index].alternatives[alternative].resources, name) * choice
                for (index, alternative, at), choice in self.at.items()
                if at == row
            ]
            if taken:
                self.h.addConstr(self.h.qsum(taken) <= int(free[row]))

    def _sum(self, terms: list[Any]) -> Any:
        return self.h.qsum(terms) if terms else 0

    def solve(self, limit_s: float) -> Optimum:
        """Return the optimum, or the best found within *limit_s*."""
        self.h.setOptionValue("time_limit", limit_s)
        self.h.setOptionValue("mip_rel_gap", 0.0)
        self.h.setOptionValue("mip_abs_gap", 1e-6)
        if self.cost:
            self.h.minimize(self.h.qsum(self.cost))
        nodes = [""] * len(self.demands)
        for (index, _, row), choice in self.at.items():
            if self.h.val(choice) > 0.5:
                nodes[index] = self.snapshot.node_ids[row]
        proven = not self.cost or self.h.getModelStatus() == highspy.HighsModelStatus.kOptimal
        total = self.h.getObjectiveValue() if self.cost else 0.0
        return Optimum(
            cost=total + WAITING_COSTS * len(self.demands),
            waiting=nodes.count(""),
            nodes=tuple(nodes),
            proven=proven,
        )
