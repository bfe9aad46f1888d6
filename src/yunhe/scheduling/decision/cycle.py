"""A cycle: a working copy of a snapshot on which decisions reserve what they take.

The steps, in the order they run: filter (rules say no), score (terms become one number), select (the pool of least
score that has a node), assign (which nodes and devices), reserve. The first two are worked out in ``options``.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from yunhe.kernel.ids import JobId
from yunhe.kernel.resources import Resources
from yunhe.scheduling.decision.compiling import compile_kernels
from yunhe.scheduling.decision.model import Demand, Domain, spreads_of
from yunhe.scheduling.decision.network.routes import Router
from yunhe.scheduling.decision.nodes import kernels
from yunhe.scheduling.decision.nodes.kernels import BLOCK, Ask, Asks, IntArray, Room
from yunhe.scheduling.decision.nodes.packing import Packer
from yunhe.scheduling.decision.options import (
    ANY_NUMBER,
    NO_DEVICES,
    Option,
    OptionScorer,
    PlacementSummary,
    amount_of,
)
from yunhe.scheduling.decision.present import shown_in
from yunhe.scheduling.decision.score import kernels as score_kernels
from yunhe.scheduling.decision.spanning import orders_of, shown_over
from yunhe.scheduling.perception.model import TypicalAsk
from yunhe.scheduling.perception.snapshot import Snapshot

COMPILE_FROM_NODES = 200
LONGEST_RUN = 256


class GangMember(NamedTuple):
    """One member's place: a node, and (device, thousandths, MiB) for each device it uses."""

    pool: int
    row: int
    devices: IntArray


class Fit(NamedTuple):
    """Where a demand would go."""

    alternative: int
    option: Option
    pool: int
    """The pool of the first member; by it the whole is scored, unless it spans several."""
    members: tuple[GangMember, ...]
    spanning: PlacementSummary | None = None
    """What it comes to as a whole where it spans several pools."""

    @property
    def score(self) -> float:
        """What the policy makes of it."""
        return float(self.option.score[self.pool]) if self.spanning is None else self.spanning.score


class Placement(NamedTuple):
    """A fit that is kept, and what each member gets."""

    fit: Fit
    resources: tuple[Resources, ...]


class HeldResources(NamedTuple):
    """What a placement keeps from others: amounts on nodes, and bandwidth on links."""

    members: tuple[tuple[GangMember, IntArray], ...]
    links: tuple[tuple[tuple[int, ...], float], ...]
    groups: tuple[str, ...]


class Cycle:
    """The world as it stands after the decisions made so far."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self.router = Router(snapshot.network)
        self.room = room_of(snapshot)
        self.groups: dict[str, IntArray] = dict(snapshot.groups)
        self.appraiser = OptionScorer(snapshot, self.router, self.groups)
        self.packer: Packer | None = None
        self.learn(snapshot.surroundings.typical)
        self._held: dict[JobId, HeldResources] = {}
        self._given_back = 0
        most = int(np.diff(snapshot.device_start).max(initial=0))
        self._chosen = np.zeros((max(1, most), 3), dtype=np.int64)
        if len(snapshot.node_ids) >= COMPILE_FROM_NODES:
            compile_kernels(kernels)
            compile_kernels(score_kernels)

    # --- select and assign

    def find(self, demand: Demand) -> Fit | None:
        """Return where *demand* goes, best first; None when nowhere can take it. Nothing is reserved."""
        best: Fit | None = None
        for index in range(len(demand.alternatives)):
            option = self.appraiser.option(demand, index)
            if option.full_since == self._given_back:
                continue
            fit = self._find(demand, index, option)
            if fit is None:
                option.full_since = self._given_back
            elif best is None or fit.score < best.score:
                best = fit
                if demand.ordered:
                    break
        return best

    def _find(self, demand: Demand, alternative: int, option: Option) -> Fit | None:
        if demand.members == 1 and demand.spread is None:
            pool, row = kernels.pick(self.room, option.order, option.ask, self._chosen)
            if pool < 0:
                return None
            return Fit(alternative, option, pool, (self._packed(pool, row, option.ask),))
        if not demand.one_pool:
            return self._find_over_pools(demand, alternative, option)
        for pool in self.in_order(option):
            members = self._gang(demand, option, (pool,))
            if members is not None:
                return Fit(alternative, option, pool, members)
        return None

    def _find_over_pools(self, demand: Demand, alternative: int, option: Option) -> Fit | None:
        """Return where a gang goes that may span pools: the first way to fill them that links and limits allow."""
        for pools in orders_of(option):
            members = self._gang(demand, option, pools)
            if members is None:
                continue
            first, inside = members[0].pool, Counter(member.pool for member in members)
            if len(inside) > 1:
                shown = shown_over(demand, option, inside, self.appraiser)
                if shown is not None:
                    return Fit(alternative, option, first, members, shown)
            elif option.order[first] < np.inf:
                return Fit(alternative, option, first, members)
        return None

    def in_order(self, option: Option) -> Iterator[int]:
        """Yield the pools that no rule refuses, best first."""
        for pool in np.argsort(option.order, kind="stable").tolist():
            if option.order[pool] == np.inf:
                return
            yield pool

    def fit_in(self, demand: Demand, alternative: int, option: Option, pool: int) -> Fit | None:
        """Return how one pool alone would take *demand*."""
        members = self._gang(demand, option, (pool,))
        if members is not None and demand.members == 1 and demand.spread is None:
            members = (self._packed(pool, members[0].row, option.ask),)
        return None if members is None else Fit(alternative, option, pool, members)

    def count_in(self, demand: Demand, option: Option, pools: Sequence[int]) -> int:
        """Return how many members *pools* have room for."""
        return len(self._members(demand, option, pools))

    def _gang(
        self, demand: Demand, option: Option, pools: "Sequence[int] | Iterator[int]"
    ) -> tuple[GangMember, ...] | None:
        """Return a place for every member (or as many as there is room for, down to the least), or None."""
        members = self._members(demand, option, pools)
        least = demand.members if demand.members_min is None else demand.members_min
        return tuple(members) if len(members) >= max(1, least) else None

    def _members(
        self, demand: Demand, option: Option, pools: "Sequence[int] | Iterator[int]"
    ) -> list[GangMember]:
        """Place members one by one, and leave the room as it was."""
        ask = option.ask
        if ask.per_node < ANY_NUMBER:
            ask = ask._replace(node_ok=ask.node_ok.copy())
        placed: list[GangMember] = []
        in_region: dict[str, int] = {}
        for pool in pools:
            wanted = min(demand.members - len(placed), self._allowed(demand, pool, in_region))
            if wanted <= 0:
                continue
            rows = np.zeros(wanted, dtype=np.int64)
            devices = np.zeros((wanted, *self._chosen.shape), dtype=np.int64)
            found = kernels.place_members(self.room, pool, ask, rows, devices)
            placed += [
                GangMember(pool, int(rows[member]), _used(devices[member], ask)) for member in range(found)
            ]
            region = self._region(pool)
            in_region[region] = in_region.get(region, 0) + found
            if len(placed) == demand.members:
                break
        for member in reversed(placed):
            kernels.shift(self.room, member.pool, member.row, ask.amount, member.devices, 1)
        return placed

    def _allowed(self, demand: Demand, pool: int, in_region: dict[str, int]) -> int:
        allowed = demand.members
        for spread in spreads_of(demand):
            if spread.over is Domain.POOL:
                allowed = min(allowed, spread.at_most)
            elif spread.over is Domain.REGION:
                allowed = min(allowed, spread.at_most - in_region.get(self._region(pool), 0))
        return allowed

    def _region(self, pool: int) -> str:
        place = self.snapshot.pools[pool].place
        return place.region if place is not None and place.region else self.snapshot.pools[pool].name

    def _packed(self, pool: int, row: int, ask: Ask) -> GangMember:
        """Return a member's place in *pool*: the tightest node, or what packing for the usual prefers."""
        part = -1
        if self.packer is not None and not ask.node_ok.size:
            row, part = self.packer.best(pool, ask)
        if part < 0:
            return GangMember(pool, row, self._devices(row, ask))
        device = int(self.snapshot.device_start[row]) + part
        _, milli, mib = ask.accelerators[0].tolist()
        return GangMember(pool, row, np.array([[device, milli, mib]], dtype=np.int64))

    def _devices(self, row: int, ask: Ask) -> IntArray:
        if not ask.accelerators.shape[0]:
            return NO_DEVICES
        used = kernels.choose_devices(self.room, row, ask, self._chosen)
        return self._chosen[:used].copy()

    # --- reserve

    def place(self, demand: Demand) -> Placement | None:
        """Find a place for *demand* and keep it; None when nowhere can take it."""
        option = self.appraiser.option(demand, 0)
        if self._is_plain(demand, option):
            if option.full_since == self._given_back:
                return None
            place = kernels.pick_and_take(self.room, option.order, option.ask, self._chosen)
            return self._kept(demand, option, *place)
        fit = self.find(demand)
        if fit is None:
            return None
        given = self.given(demand, fit)
        held = zip(fit.members, map(amount_of, given), strict=True)
        self.hold(
            demand.job_id, HeldResources(tuple(held), self.shown(demand, fit).moves.links, demand.groups)
        )
        return Placement(fit, given)

    def place_all(self, demands: Sequence[Demand]) -> Iterator[Placement | None]:
        """Place demands in their order, as ``place`` would; runs of plain ones go through the loop together."""
        run: list[tuple[Demand, Option]] = []
        for demand in demands:
            option = self.appraiser.option(demand, 0)
            if self._is_plain(demand, option) and len(run) < LONGEST_RUN:
                run.append((demand, option))
                continue
            yield from self._place_run(run)
            run = []
            yield self.place(demand)
        yield from self._place_run(run)

    def _is_plain(self, demand: Demand, option: Option) -> bool:
        """Return whether a demand takes an amount on one node and nothing that later demands are judged by."""
        return (
            demand.members == 1
            and option.ask.amount[3] == 0
            and len(demand.alternatives) == 1
            and demand.alternatives[0].up_to is None
            and demand.spread is None
            and not demand.groups
            and not demand.traffic
            and not any(need.rate_mbps for need in demand.data)
            and not option.ask.node_ok.size
            and self.packer is None
        )

    def _place_run(self, run: Sequence[tuple[Demand, Option]]) -> Iterator[Placement | None]:
        if not run:
            return
        places = np.empty((len(run), 2), dtype=np.int64)
        options = [option for _, option in run]
        asks = Asks(
            np.array([option.order for option in options]),
            np.array([option.ask.amount for option in options]),
            np.array([option.ask.class_ok for option in options]),
            np.array([option.ask.full for option in options]),
        )
        kernels.take_each(self.room, asks, options[0].ask, places)
        for option, full in zip(options, asks.full, strict=True):
            option.ask.full[:] = full
        for (demand, option), (pool, row) in zip(run, places.tolist(), strict=True):
            yield self._kept(demand, option, pool, row)

    def _kept(self, demand: Demand, option: Option, pool: int, row: int) -> Placement | None:
        """Note what was taken for a plain demand; no pool: that it found no room."""
        if pool < 0:
            option.full_since = self._given_back
            return None
        member = GangMember(pool, row, NO_DEVICES)
        self._held[demand.job_id] = HeldResources(((member, option.ask.amount),), (), ())
        return Placement(Fit(0, option, pool, (member,)), (demand.alternatives[0].resources,))

    def shown(self, demand: Demand, fit: Fit) -> PlacementSummary:
        """Return what a fit comes to, as people read it."""
        if fit.spanning is not None:
            return fit.spanning
        return shown_in(demand, fit.option, fit.pool, self.appraiser.columns, self.snapshot.network.sites)

    def given(self, demand: Demand, fit: Fit) -> tuple[Resources, ...]:
        """Return what each member gets: what was asked, or as much of a range as its node has free."""
        alternative = demand.alternatives[fit.alternative]
        if alternative.up_to is None:
            return (alternative.resources,) * len(fit.members)
        least, most = amount_of(alternative.resources)[:3], amount_of(alternative.up_to)[:3]
        left = {member.row: self.room.free[member.row, :3].copy() for member in fit.members}
        for member in fit.members:
            left[member.row] -= least
        grown: list[Resources] = []
        for member in fit.members:  # each as far as those before it on the same node leave room
            more = np.clip(most - least, 0, np.maximum(left[member.row], 0))
            left[member.row] -= more
            cpu, memory, disk = (least + more).tolist()
            grown.append(Resources(cpu, memory, disk, alternative.resources.accelerators))
        return tuple(grown)

    def hold(self, job_id: JobId, held: HeldResources) -> None:
        """Keep what a placement takes from everybody else, until it is released."""
        for member, amount in held.members:
            self._shift(member, amount, -1)
        for links, mbps in held.links:
            self.router.take(links, mbps)
        for group in held.groups:
            rows = [member.row for member, _ in held.members]
            self.groups[group] = np.append(self.groups.get(group, NO_ROWS), rows)
            self.appraiser.grouped += 1
        self._held[job_id] = held

    def reservation(self, job_id: JobId) -> HeldResources:
        """Return what the placement of a job holds."""
        return self._held[job_id]

    def release(self, job_id: JobId) -> HeldResources:
        """Give back everything a placement held, and return what that was."""
        held = self._held.pop(job_id)
        for member, amount in held.members:
            self._shift(member, amount, 1)
        for links, mbps in held.links:
            self.router.take(links, -mbps)
        for group in held.groups:
            rows = self.groups[group].tolist()
            for member, _ in held.members:
                rows.remove(member.row)
            self.groups[group] = np.array(rows, dtype=np.int64)
            self.appraiser.grouped += 1
        self._given_back += 1
        return held

    def _shift(self, member: GangMember, amount: IntArray, sign: int) -> None:
        kernels.shift(self.room, member.pool, member.row, amount, member.devices, sign)
        if self.packer is not None:
            self.packer.changed(member.row)

    def learn(self, typical: Sequence[TypicalAsk]) -> None:
        """Prepare for what usually comes from here on."""
        self.packer = (
            Packer(self.room, typical, self.snapshot.device_kinds)
            if typical and self.snapshot.device_kinds
            else None
        )

    def holds(self, job_id: JobId) -> bool:
        """Return whether a placement of this job is held."""
        return job_id in self._held

    def after(self) -> Snapshot:
        """Return the snapshot as the decisions of this cycle leave it."""
        free = self.room.free
        return replace(
            self.snapshot,
            cpu_free_millis=free[:, 0].copy(),
            memory_free_mib=free[:, 1].copy(),
            disk_free_mib=free[:, 2].copy(),
            device_free_milli=self.room.device_free.copy(),
            device_memory_free_mib=self.room.device_memory.copy(),
            network=self.snapshot.network.with_free(self.router.free_mbps.copy()),
            groups=dict(self.groups),
        )


NO_ROWS: IntArray = np.zeros(0, dtype=np.int64)


def room_of(snapshot: Snapshot) -> Room:
    """Return what is free in *snapshot*, as arrays of a cycle's own, with their bounds."""
    nodes = len(snapshot.node_ids)
    free = np.zeros((nodes, kernels.COLUMNS), dtype=np.int64)
    free[:, 0], free[:, 1], free[:, 2] = (
        snapshot.cpu_free_millis,
        snapshot.memory_free_mib,
        snapshot.disk_free_mib,
    )
    for milli in snapshot.accelerators_free_milli.values():
        free[:, 3] += milli
    sizes = np.diff(snapshot.pool_start)
    block_start = np.concatenate([[0], np.cumsum(-(-sizes // BLOCK))]).astype(np.int64)
    block_free = np.full((int(block_start[-1]), kernels.COLUMNS), -1, dtype=np.int64)
    pool_free = np.full((len(snapshot.pools), kernels.COLUMNS), -1, dtype=np.int64)
    if nodes:
        begins = np.concatenate(
            [
                np.arange(begin, end, BLOCK)
                for begin, end in zip(snapshot.pool_start, snapshot.pool_start[1:], strict=False)
            ]
        )
        block_free[:] = np.maximum.reduceat(free, begins, axis=0)
        full = np.flatnonzero(sizes)
        pool_free[full] = np.maximum.reduceat(free, snapshot.pool_start[full], axis=0)
    return Room(
        free=free,
        node_class=snapshot.node_class,
        pool_start=snapshot.pool_start,
        block_start=block_start,
        block_free=block_free,
        pool_free=pool_free,
        device_start=snapshot.device_start,
        device_kind=snapshot.device_kind,
        device_free=snapshot.device_free_milli.copy(),
        device_memory=snapshot.device_memory_free_mib.copy(),
        given_back=np.zeros(len(snapshot.pools), dtype=np.int64),
    )


def _used(devices: IntArray, ask: Ask) -> IntArray:
    if not ask.accelerators.shape[0]:
        return NO_DEVICES
    count = int(ask.accelerators[:, 0].sum() + (ask.accelerators[:, 1] > 0).sum())
    return devices[:count].copy()
