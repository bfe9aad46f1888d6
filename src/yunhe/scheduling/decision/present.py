"""What a placement in a pool comes to, as people read it: terms, transfers, routes, and the bandwidth they reserve."""

import numpy as np

from yunhe.scheduling.decision.model import (
    Demand,
    Route,
    ScoreTerm,
    Transfer,
)
from yunhe.scheduling.decision.network.moving import PoolMoves
from yunhe.scheduling.decision.network.reach import MoveSummary
from yunhe.scheduling.decision.options import Option, PlacementSummary
from yunhe.scheduling.decision.score.columns import PoolColumns
from yunhe.scheduling.decision.score.terms import shown_terms


def shown_in(
    demand: Demand, option: Option, pool: int, columns: PoolColumns, sites: tuple[str, ...]
) -> PlacementSummary:
    """Return what every placement of an option in one pool has in common; worked out once."""
    if pool not in option.shown:
        if pool not in option.survey.moves:
            option.survey.moves[pool] = moves_of(option.survey.parts[pool], sites)
        option.shown[pool] = PlacementSummary(
            score=float(option.score[pool]),
            terms=shown_terms(option.table, pool),
            estimated=estimated_in(demand, option, pool, columns),
            moves=option.survey.moves[pool],
        )
    return option.shown[pool]


def moves_of(parts: PoolMoves, sites: tuple[str, ...]) -> MoveSummary:
    """Return what moves as people read it, and the bandwidth it reserves."""
    transfers, routes = _transfers(parts, sites), _routes(parts, sites)
    links = [(route.links, route.mbps) for route in routes]
    links += [(one.links, one.rate_mbps) for one in transfers if one.rate_mbps is not None]
    return MoveSummary(transfers, routes, tuple(links))


def estimated_in(demand: Demand, option: Option, pool: int, columns: PoolColumns) -> tuple[str, ...]:
    """Name the terms that rest on an assumption: an hour's run, or a latency from the distance."""
    names: list[str] = []
    if demand.run_s is None and not np.isnan(columns.speed[pool]):
        names.append(ScoreTerm.RUN_S)
    if demand.run_s is None and not np.isnan(columns.kw_per_core[pool]):
        names.append(ScoreTerm.CARBON_G)
    if pool in option.survey.estimated_latency:
        names.append(ScoreTerm.LATENCY_MS)
    return tuple(names)


def _transfers(parts: PoolMoves, sites: tuple[str, ...]) -> tuple[Transfer, ...]:
    return tuple(
        [
            Transfer(
                dataset=parcel.need.dataset,
                sites=tuple([sites[site] for site in delivery.way.sites]),
                mode=mode,
                seconds=_known(delivery.seconds),
                cost=_known(delivery.cost),
                rate_mbps=parcel.need.rate_mbps if delivery.way.links else None,
                links=delivery.way.links,
            )
            for parcel, delivery, mode in parts.deliveries
        ]
    )


def _routes(parts: PoolMoves, sites: tuple[str, ...]) -> tuple[Route, ...]:
    return tuple(
        [
            Route(
                purpose=flow.traffic.site,
                sites=tuple([sites[site] for site in flow.way.sites]),
                mbps=flow.traffic.mbps,
                latency_ms=_known(flow.way.latency_ms),
                links=flow.way.links,
            )
            for flow in parts.flows
        ]
    )


def _known(value: float) -> float | None:
    return value if np.isfinite(value) else None
