"""A placement round: one look at the world, and the decisions made on it, each seeing the room that earlier ones left."""

from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import groupby
from time import monotonic
from typing import NamedTuple

import msgspec
import numpy as np

from yunhe.kernel.ids import NodeId
from yunhe.kernel.quotas import NO_LIMIT
from yunhe.kernel.resources import Accelerators, Resources
from yunhe.scheduling.decision.archive import differ_in_room_only, room_change, room_of_nodes
from yunhe.scheduling.decision.cycle import Cycle, HeldResources
from yunhe.scheduling.decision.decide import decide_in, place_in, place_in_order
from yunhe.scheduling.decision.model import Decision, Demand, Placed, Waiting
from yunhe.scheduling.orchestration.jobs import store
from yunhe.scheduling.orchestration.placing.placement_store import PlacedJob, RunningQuotas
from yunhe.scheduling.orchestration.placing.waiting import IntArray
from yunhe.scheduling.perception.snapshot import Snapshot, check_snapshot
from yunhe.storage.database import AnyRow

Judged = list[tuple[AnyRow, Demand]]
NO_QUOTAS = RunningQuotas({}, NO_LIMIT, {})


class PlacementBatch(NamedTuple):
    """Placements that were decided together."""

    seen: Snapshot
    """The world before the first of them."""
    choices: list[PlacedJob]
    reservations: list[HeldResources]
    totals: dict[NodeId, Resources]
    """What each of their nodes has in all."""


class PlacementRound:
    """One look at the world and the decisions made on it."""

    def __init__(
        self,
        snapshot: Snapshot,
        promised: dict[NodeId, Resources],
        knew: int,
        quotas: RunningQuotas = NO_QUOTAS,
    ) -> None:
        self.knew = knew
        self.quotas = quotas
        self.held: dict[str, Demand] = {}
        """Shapes that were not looked at, for their projects run as many jobs as they may."""
        self._taken: Counter[str] = Counter()
        """How many jobs of each project this round has placed."""
        """The last event that had happened."""
        self.refused: dict[str, Demand] = {}
        """By shape: jobs of one shape wait for the same thing, so one answer serves them all."""
        self.snapshot = snapshot
        self._promised = promised
        self._cycle = Cycle(check_snapshot(snapshot))

    def judge(self, page: Iterable[AnyRow]) -> PlacementBatch:
        """Decide for each job in order and return those placed; one that must wait holds nobody up."""
        seen = self.left
        choices: list[PlacedJob] = []
        asked = [(row, store.pending_order(row)) for row in self._admitted(page)]
        for avoids, run in groupby(asked, key=lambda one: bool(one[1].avoid_pools)):
            judged = list(run)
            decisions = self._retried(judged) if avoids else self._in_order(judged)
            for (row, demand), decision in zip(judged, decisions, strict=True):
                if isinstance(decision, Placed):
                    self._taken[row.project_id] += 1
                    choices.append(PlacedJob(row, demand, decision, len(choices)))
                else:
                    self.refused[row.shape] = demand
        nodes = {choice.decision.assignments[0].node_id for choice in choices}
        reservations = [self._cycle.reservation(choice.row.id) for choice in choices]
        return PlacementBatch(seen, choices, reservations, {node: self._total(node) for node in nodes})

    def _admitted(self, page: Iterable[AnyRow]) -> list[AnyRow]:
        """Return the jobs to decide for: of each project no more than it may run.

        Once a project runs as many as it may, its shapes are held; what is beyond that before is for the next round.
        """
        admitted: list[AnyRow] = []
        asked: Counter[str] = Counter()
        for row in page:
            if row.shape in self.refused or row.shape in self.held:
                continue
            room = self.quotas.room(row.project_id)
            if room is None or self._taken[row.project_id] + asked[row.project_id] < room:
                asked[row.project_id] += 1
                admitted.append(row)
            elif self._taken[row.project_id] >= room:
                self.held[row.shape] = store.pending_order(row)
        return admitted

    def hold_reason(self, project_id: str) -> str:
        """Say why jobs of a project wait that runs as many as it may."""
        limit = self.quotas.limit(project_id)
        return f"project {project_id} runs as many jobs as its quota allows (running: {limit}); it goes on when one of them ends"

    def _in_order(self, judged: Judged) -> list[Decision]:
        return place_in_order([demand for _, demand in judged], self._cycle)

    def _retried(self, judged: Judged) -> list[Decision]:
        """Decide for jobs that failed in some pools: better there again than nowhere."""
        decisions: list[Decision] = []
        for _, demand in judged:
            decision = place_in(demand, self._cycle)
            if isinstance(decision, Waiting):
                decision = place_in(msgspec.structs.replace(demand, avoid_pools=()), self._cycle)
            decisions.append(decision)
        return decisions

    @property
    def left(self) -> Snapshot:
        """The world as the decisions so far leave it."""
        return self._cycle.after()

    def _total(self, node: NodeId) -> Resources:
        """Return what a node has in all: what the snapshot says is free, and what was promised when it was taken."""
        row, snapshot = self.snapshot.row_of_node[node], self.snapshot
        return Resources(
            cpu_millis=int(snapshot.cpu_free_millis[row]),
            memory_mib=int(snapshot.memory_free_mib[row]),
            disk_mib=int(snapshot.disk_free_mib[row]),
            accelerators=tuple(
                Accelerators(kind, int(column[row]))
                for kind, column in snapshot.accelerators_free_milli.items()
            ),
        ).plus(self._promised.get(node, Resources()))

    def reasons(self, refused: Mapping[str, Demand], budget_s: float) -> dict[str, str]:
        """Say why jobs of each shape that was refused wait, until *budget_s* is spent; the rest is told to ask for themselves."""
        until, reasons = monotonic() + budget_s, dict[str, str]()
        for shape, asked in refused.items():
            reasons[shape] = f"none of {len(self.snapshot.pools)} pools can take it now; see yunhe explain"
            if monotonic() < until:
                demand = msgspec.structs.replace(asked, avoid_pools=())
                decision = decide_in(demand, self._cycle, advise=False)
                if isinstance(decision, Waiting):
                    reasons[shape] = _reason(decision)
        return reasons


class WorldChange(NamedTuple):
    """What is different since another look."""

    anything: bool
    gained: IntArray | None
    """What is free on each node that gained room; None: pools, nodes or networks are others, so anything may fit."""


def world_change(before: Snapshot | None, now: Snapshot) -> WorldChange:
    """Return what is different in *now*, as far as a demand that was refused *before* is concerned."""
    if before is None or not differ_in_room_only(before, now):
        return WorldChange(anything=True, gained=None)
    change = room_change(before, now)
    owner = np.repeat(np.arange(len(now.node_ids)), np.diff(now.device_start))
    accelerators = np.bincount(owner, weights=now.device_free_milli, minlength=len(now.node_ids))
    room = np.column_stack([room_of_nodes(now), accelerators.astype(np.int64)])
    more_devices = (now.device_free_milli > before.device_free_milli) | (
        now.device_memory_free_mib > before.device_memory_free_mib
    )
    rows = np.flatnonzero(np.any(room_of_nodes(now) > room_of_nodes(before), axis=1))
    rows = np.union1d(rows, owner[more_devices])
    return WorldChange(bool(change.nodes.size or change.devices.size), np.maximum(room[rows], 0))


def _reason(decision: Waiting) -> str:
    """Say in one line why a job waits: the nearest misses first."""
    if not decision.rejected:
        return "no pool is connected; add one: yunhe pool add"
    shown = "; ".join(f"{r.pool_name}: {r.detail}" for r in decision.nearest_first[:3])
    more = len(decision.rejected) - 3
    return shown + (f"; and {more} more pools" if more > 0 else "")
