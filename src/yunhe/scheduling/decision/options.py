"""Filter and score: one alternative of a demand, put to every pool.

What depends on a demand's constraints but not on its size is worked out once and kept; so is what depends on both.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from yunhe.kernel.resources import Resources
from yunhe.scheduling.decision.filter.rules import (
    Limit,
    RuleInput,
    classes_ok,
    left_for_moves,
    limits_of,
    nodes_ok,
    pool_refusal,
)
from yunhe.scheduling.decision.model import (
    Alternative,
    Demand,
    Domain,
    Rule,
    ScoreTerm,
    demand_for,
    group_spread,
    spreads_of,
)
from yunhe.scheduling.decision.network.bundle import TransferLimits
from yunhe.scheduling.decision.network.moving import NetworkLoad, NetworkRefusal
from yunhe.scheduling.decision.network.reach import MoveSummary, Reachability, survey, survey_within
from yunhe.scheduling.decision.network.routes import Router
from yunhe.scheduling.decision.nodes.kernels import Ask, ByteArray, FloatArray, IntArray
from yunhe.scheduling.decision.score import kernels as score_kernels
from yunhe.scheduling.decision.score.columns import PoolColumns
from yunhe.scheduling.decision.score.kernels import HOURS
from yunhe.scheduling.decision.score.terms import (
    COST,
    TERMS_OF_POLICY,
    facts_of,
    table_of,
    term,
    weights_of,
    worth_of,
)
from yunhe.scheduling.perception.snapshot import WHOLE_MILLI, Snapshot, matching_kinds

ANY_NUMBER = 1 << 40
REMEMBERED = 4096
"""How many screens, surveys and options are kept before all are forgotten."""
NO_DEVICES: IntArray = np.zeros((0, 3), dtype=np.int64)


@dataclass(eq=False)
class Screen:
    """What the rules make of a demand's constraints, whatever its size."""

    class_ok: tuple[ByteArray, ...]
    """Alternative by alternative."""
    node_ok: ByteArray
    refusals: tuple[dict[int, NetworkRefusal], ...]
    """Alternative by alternative: pool → why it is out."""


class PlacementSummary(NamedTuple):
    """What every placement of an option in one pool has in common, as people read it."""

    score: float
    terms: dict[str, float | None]
    estimated: tuple[str, ...]
    moves: MoveSummary


@dataclass(eq=False)
class Option:
    """One alternative of a demand, scored in every pool."""

    ask: Ask
    table: FloatArray
    """Every term (row) of each pool (column)."""
    score: FloatArray
    """Infinite where a rule says no."""
    order: FloatArray
    """Like ``score``, with ties broken by money; infinite where a limit says no, too."""
    limits: list[Limit]
    survey: Reachability
    refusals: dict[int, NetworkRefusal]
    shown: dict[int, PlacementSummary] = field(default_factory=dict[int, PlacementSummary])
    """Pool → what a placement there comes to, once asked for; see ``present``."""
    full_since: int = -1
    """The state of the cycle in which this found no room; room can only have shrunk until something is given back."""


class OptionScorer:
    """Works out options over one snapshot, as its network and groups stand."""

    def __init__(self, snapshot: Snapshot, router: Router, groups: Mapping[str, IntArray]) -> None:
        self.snapshot = snapshot
        self.router = router
        self.groups = groups
        self.columns = PoolColumns(snapshot)
        self.grouped = 0
        """Changes whenever groups do: what was worked out from them is then stale."""
        self._closed: set[int] = set()
        self._facts = facts_of(self.columns)
        self._screens: dict[object, Screen] = {}
        self._surveys: dict[object, Reachability] = {}
        self._options: dict[object, Option] = {}
        self._no_kinds = np.zeros((0, max(1, len(snapshot.device_kinds))), dtype=np.uint8)

    def option(self, demand: Demand, alternative: int) -> Option:
        """Return one alternative, scored in every pool."""
        screen_key, survey_key = self._screen_key(demand), self._survey_key(demand)
        key = (
            alternative,
            demand.alternatives[alternative].resources,
            demand.run_s,
            (demand.members, demand.members_min, demand.one_pool, demand.spread),
            demand.tier,
            demand.policy,
            tuple(demand.weights.items()),
            demand.interruptible or demand.alternatives[alternative].interruptible,
            (demand.deadline_at, demand.not_before, demand.budget_micros, demand.budget_per_hour_micros),
            (demand.reliability_min, demand.max_latency_ms),
            screen_key,
            survey_key,
        )
        option = self._options.get(key)
        if option is None:
            if len(self._options) >= REMEMBERED:
                self._options.clear()
            screen, found = self._screen(demand, screen_key), self._survey(demand, survey_key)
            option = self._options[key] = self._make_option(demand, alternative, screen, found)
        return option

    def close_pool(self, pool: int) -> None:
        """Take no more work in *pool* until it is opened again."""
        self._closed.add(pool)
        self._forget()

    def open_pool(self, pool: int) -> None:
        """Take work in *pool* again."""
        self._closed.discard(pool)
        self._forget()

    def _forget(self) -> None:
        self._screens.clear()
        self._options.clear()

    def _screen_key(self, demand: Demand) -> object:
        return (
            demand.project_id,
            demand.avoid_pools,
            demand.nodes,
            demand.residency,
            demand.levels,
            demand.isa,
            demand.tolerations,
            demand.where,
            demand.powers,
            (demand.affinity or group_spread(demand))
            and (demand.affinity, group_spread(demand), demand.groups, self.grouped),
            tuple([_constraints(alternative) for alternative in demand.alternatives]),
        )

    def _survey_key(self, demand: Demand) -> object:
        if not (demand.data or demand.traffic):
            return demand.near
        return (
            demand.near,
            demand.data,
            demand.traffic,
            demand.residency,
            demand.traffic and (demand.run_s, demand.max_latency_ms),
            worth_of(demand.policy, demand.weights),
            self.router.version,
        )

    def _screen(self, demand: Demand, key: object) -> Screen:
        screen = self._screens.get(key)
        if screen is None:
            if len(self._screens) >= REMEMBERED:
                self._screens.clear()
            screen = self._screens[key] = Screen(
                class_ok=self._classes_ok(demand),
                node_ok=nodes_ok(demand, self.snapshot, self.groups),
                refusals=tuple([self._refusals(demand, one) for one in demand.alternatives]),
            )
        return screen

    def _classes_ok(self, demand: Demand) -> tuple[ByteArray, ...]:
        """Return which classes of nodes would do, alternative by alternative; worked out once where all ask the same."""
        found: dict[object, ByteArray] = {}
        for one in demand.alternatives:
            key = (one.where, one.tolerations)
            if key not in found:
                found[key] = classes_ok(demand_for(demand, one), self.snapshot)
        return tuple([found[one.where, one.tolerations] for one in demand.alternatives])

    def _refusals(self, demand: Demand, alternative: Alternative) -> dict[int, NetworkRefusal]:
        found: dict[int, NetworkRefusal] = {}
        demand = demand_for(demand, alternative)
        for row, pool in enumerate(self.snapshot.pools):
            refusal = pool_refusal(RuleInput(demand, alternative, pool, row, self.snapshot, self.groups))
            if row in self._closed:
                refusal = NetworkRefusal(Rule.ACCEPTING, "has failed")
            if refusal is not None:
                found[row] = refusal
        return found

    def _survey(self, demand: Demand, key: object) -> Reachability:
        found = self._surveys.get(key)
        if found is None:
            if len(self._surveys) >= REMEMBERED:
                self._surveys.clear()
            worth = worth_of(demand.policy, demand.weights)
            found = self._surveys[key] = survey(demand, self.snapshot, self.columns, self.router, worth)
        return found

    def _make_option(self, demand: Demand, alternative: int, screen: Screen, found: Reachability) -> Option:
        resources = demand.alternatives[alternative].resources
        class_ok = screen.class_ok[alternative]
        demand = demand_for(demand, demand.alternatives[alternative])
        table = table_of(demand, resources, self._facts, found.reach, self.columns)
        refusals = screen.refusals[alternative]
        if found.refusals:
            refusals = {**found.refusals, **refusals}
        within = self._within_limits(demand, table, found, refusals)
        if within is not None:
            found, table = within, table_of(demand, resources, self._facts, within.reach, self.columns)
        eligible = np.zeros(len(self.snapshot.pools))
        if refusals:
            eligible[list(refusals)] = np.inf
        score = np.empty_like(eligible)
        score_kernels.add_up(table, weights_of(demand.policy, demand.weights), eligible, score)
        order = score
        if demand.policy in TERMS_OF_POLICY:
            money = np.empty_like(score)
            score_kernels.add_up(table, COST, eligible, money)
            order = np.empty_like(score)
            order[np.lexsort((money, score))] = np.arange(score.size, dtype=np.float64)
            order[np.isinf(score)] = np.inf
        limits = limits_of(demand, table, self.snapshot.taken_at)
        for limit in limits:
            order = np.where(limit.broken, np.inf, order)
        ask = self._ask(demand, resources, class_ok, screen.node_ok)
        return Option(ask, table, score, order, limits, found, refusals)

    def _within_limits(
        self, demand: Demand, table: FloatArray, found: Reachability, refusals: Mapping[int, NetworkRefusal]
    ) -> Reachability | None:
        """Return how to move things within deadline and budget in pools where the preferred ways are not."""
        if not (demand.data or demand.traffic) or (
            demand.deadline_at is None and demand.budget_micros is None
        ):
            return None
        seconds, money = left_for_moves(demand, table, self.snapshot.taken_at)
        over = (term(table, ScoreTerm.DATA_S) > seconds) | ~(term(table, ScoreTerm.DATA_COST) <= money)
        over &= (seconds >= 0) & (money >= 0)
        room = {
            int(row): (TransferLimits(float(seconds[row]), float(money[row])), float(table[HOURS, row]))
            for row in np.flatnonzero(over)
            if row not in refusals
        }
        if not room:
            return None
        worth = worth_of(demand.policy, demand.weights)
        return survey_within(found, NetworkLoad(demand, self.snapshot, self.router, worth), room)

    def _ask(self, demand: Demand, resources: Resources, class_ok: ByteArray, node_ok: ByteArray) -> Ask:
        per_node = ANY_NUMBER
        if demand.spread is not None or demand.affinity:
            over_nodes = [spread.at_most for spread in spreads_of(demand) if spread.over is Domain.NODE]
            per_node = min(over_nodes, default=ANY_NUMBER)
            if over_nodes and not node_ok.size:
                node_ok = np.ones(len(self.snapshot.node_ids), dtype=np.uint8)
        accelerators, kind_ok = NO_DEVICES, self._no_kinds
        if resources.accelerators:
            accelerators, kind_ok = devices_asked(resources, self.snapshot.device_kinds)
        full = np.full(len(self.snapshot.pools), -1, dtype=np.int64)
        return Ask(amount_of(resources), accelerators, kind_ok, class_ok, node_ok, per_node, full)


def _constraints(alternative: Alternative) -> object:
    """Return what the rules look at in an alternative."""
    if not (alternative.infra or alternative.where or alternative.tolerations):
        return alternative.pools
    return alternative.pools, alternative.infra, alternative.where, alternative.tolerations


def devices_asked(resources: Resources, kinds: tuple[str, ...]) -> tuple[IntArray, ByteArray]:
    """Return (whole, part, MiB) for each kind of accelerator asked for, and which kinds of device would do."""
    asked = [(*divmod(wanted.milli, WHOLE_MILLI), wanted.memory_mib) for wanted in resources.accelerators]
    kind_ok = np.zeros((len(asked), max(1, len(kinds))), dtype=np.uint8)
    for index, wanted in enumerate(resources.accelerators):
        kind_ok[index, sorted(matching_kinds(wanted.kind, kinds))] = 1
    return np.array(asked, dtype=np.int64).reshape(-1, 3), kind_ok


def amount_of(resources: Resources) -> IntArray:
    """Return an amount as the kernels count it."""
    milli = sum(wanted.milli for wanted in resources.accelerators)
    return np.array([resources.cpu_millis, resources.memory_mib, resources.disk_mib, milli], dtype=np.int64)
