"""What it takes to reach each pool: ways for data and traffic, latency and distance, and who cannot be reached.

All of it is the same for two demands that differ in their amounts alone, so a cycle computes it once for many.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from yunhe.kernel.places import Place
from yunhe.scheduling.decision.model import Demand, Route, Transfer
from yunhe.scheduling.decision.network.bundle import ANY, RouteChoice, TransferLimits, choose_together
from yunhe.scheduling.decision.network.moving import (
    DataMove,
    NetworkLoad,
    NetworkRefusal,
    PoolMoves,
    TrafficFlow,
    clash,
    parts_of,
)
from yunhe.scheduling.decision.network.routes import Router
from yunhe.scheduling.decision.score.columns import PoolColumns
from yunhe.scheduling.decision.score.kernels import FloatArray, Reach
from yunhe.scheduling.decision.score.terms import TimeValue
from yunhe.scheduling.perception.snapshot import Snapshot

RTT_MS_PER_KM = 0.015
"""There and back in fibre, half as far again as the straight line."""


class MoveSummary(NamedTuple):
    """What moves over the network if work goes to one pool, as people read it."""

    transfers: tuple[Transfer, ...]
    routes: tuple[Route, ...]
    links: tuple[tuple[tuple[int, ...], float], ...]
    """The bandwidth it reserves: links, and Mbit/s on each."""


@dataclass(eq=False)
class Reachability:
    """How each pool is reached: numbers for the score, and the ways behind them."""

    reach: Reach
    parts: list[PoolMoves]
    refusals: dict[int, NetworkRefusal] = field(default_factory=dict[int, NetworkRefusal])
    near_ms: FloatArray = field(default_factory=lambda: np.zeros(0))
    """Latency to the users' place alone; ``reach`` has that of the slowest traffic where it is more."""
    estimated_latency: set[int] = field(default_factory=set[int])
    moves: dict[int, MoveSummary] = field(default_factory=dict[int, MoveSummary])
    """Pool → what moves if work goes there, as people read it, once asked for; see ``present``."""


def survey(
    demand: Demand, snapshot: Snapshot, columns: PoolColumns, router: Router, worth: TimeValue
) -> Reachability:
    """Return how each pool is reached by the data, traffic and users of *demand*."""
    pools = len(snapshot.pools)
    found = Reachability(
        Reach(
            data_s=np.zeros(pools),
            data_cost=np.zeros(pools),
            flow_cost_per_hour=np.zeros(pools),
            latency_ms=np.full(pools, np.nan),
            distance_km=np.full(pools, np.nan) if demand.near is None else columns.distance_km(demand.near),
        ),
        [PoolMoves()] * pools,
    )
    if demand.near is not None:
        _survey_latency(found, demand.near, snapshot, router)
    found.near_ms = found.reach.latency_ms.copy()
    if demand.data or demand.traffic:
        burden = NetworkLoad(demand, snapshot, router, worth)
        for row in range(pools):
            _survey_moves(found, burden, row)
    return found


def survey_within(
    found: Reachability, burden: NetworkLoad, room: Mapping[int, tuple[TransferLimits, float]]
) -> Reachability | None:
    """Return a survey in which pools move everything within bounds where that can be; None where none can.

    *room* has the bounds of each pool that is to be looked at again, and the hours that work would run there.
    """
    reach = found.reach
    narrower = replace(
        found,
        reach=Reach(*(column.copy() for column in reach)),
        parts=list(found.parts),
        moves={row: moves for row, moves in found.moves.items() if row not in room},
    )
    kept = [_survey_moves(narrower, burden, row, *within) for row, within in room.items()]
    return narrower if any(kept) else None


def _survey_moves(
    found: Reachability,
    burden: NetworkLoad,
    row: int,
    bounds: TransferLimits = ANY,
    hours: float | None = None,
) -> bool:
    """Choose how everything comes to a pool, and note what that takes; return whether that is within bounds."""
    moves = burden.moves_to(row, hours)
    able = [move for move in moves if move.choices()]
    chosen = choose_together(able, burden.router.useful_mbps, bounds)
    if chosen is None and bounds != ANY:
        return False
    refusals = [move.refusal() for move in moves if not move.choices()]
    if chosen is None:
        refusals.append(clash(able))
    for refusal in refusals:
        if refusal is not None:
            found.refusals.setdefault(row, refusal)
    chosen = chosen or ()
    able = able[: len(chosen)]
    found.parts[row] = parts_of(able, chosen)
    unknown = any(isinstance(move, DataMove) and not move.choices() for move in moves)
    _note(found, row, list(zip(able, chosen, strict=True)), unknown=unknown)
    return True


def _note(
    found: Reachability,
    row: int,
    chosen: Sequence[tuple[DataMove | TrafficFlow, RouteChoice]],
    *,
    unknown: bool,
) -> None:
    """Add up what everything takes that comes to a pool; unknown as soon as a part of it is."""
    reach = found.reach
    reach.data_s[row] = reach.data_cost[row] = np.nan if unknown else 0.0
    reach.flow_cost_per_hour[row] = 0.0
    reach.latency_ms[row] = found.near_ms[row]
    for move, choice in chosen:
        if isinstance(move, DataMove):
            reach.data_s[row] += _known(choice.seconds)
            reach.data_cost[row] += _known(choice.cost)
        else:
            reach.flow_cost_per_hour[row] += _known(move.gib_per_hour * choice.way.price_per_gib)
            reach.latency_ms[row] = np.fmax(reach.latency_ms[row], _known(choice.way.latency_ms))


def _known(value: float) -> float:
    return value if np.isfinite(value) else np.nan


def _survey_latency(found: Reachability, near: Place, snapshot: Snapshot, router: Router) -> None:
    network, reach = snapshot.network, found.reach
    homes = [site for site, region in enumerate(network.regions) if region and region == near.region]
    for row in range(len(snapshot.pools)):
        target = int(network.pool_site[row])
        measured = [way.latency_ms for home in homes for way in router.ways(home).get(target, [])]
        best = min(measured, default=np.inf)
        if np.isfinite(best):
            reach.latency_ms[row] = best
        elif not np.isnan(reach.distance_km[row]):
            reach.latency_ms[row] = reach.distance_km[row] * RTT_MS_PER_KM
            found.estimated_latency.add(row)
