"""A decision as people read it: what was considered, what was chosen, and why not the others."""

from collections.abc import Mapping

from rich.cells import cell_len
from rich.console import Group, RenderableType
from rich.text import Text

from yunhe.control.plugins.model import Pool
from yunhe.kernel.ids import PoolId
from yunhe.kernel.money import MICROS, show_money
from yunhe.kernel.places import Place
from yunhe.scheduling.orchestration.model import Candidate, Decision, Placed, Rejection

Pools = Mapping[PoolId, Pool]


def considered(decision: Decision, pools: Pools) -> RenderableType:
    """Return every pool that was considered, the chosen one first; one that refused says why on its line."""
    fitting = _one_per_pool(decision) if isinstance(decision, Placed) else []
    rows = [_fitting(candidate, pools, chosen=index == 0) for index, candidate in enumerate(fitting)]
    rows += [_refusing(rejection, pools) for rejection in decision.rejected]
    if not rows:
        return Text("  no pool is registered; add one with `yunhe pool add`")
    heading = _HEADING if fitting else _HEADING[:REASON_COLUMN]
    widths = [
        max(cell_len(row[column]) for row in [heading, *rows] if column < _aligned(row))
        for column in range(len(heading))
    ]
    lines = [_line(heading, widths, "bold")]
    lines += [_line(row, widths, "bold green" if row[0] == CHOSEN else "") for row in rows]
    return Text("\n").join(lines)


CHOSEN = "✔"
_HEADING = ["", "POOL", "WHERE", "FITS", "STARTS", "COST/h", "DISTANCE", "SCORE"]
REASON_COLUMN = 4


def _aligned(row: list[str]) -> int:
    """Return how many cells of a row stand in columns; a reason runs on to the end of its line."""
    return len(row) if len(row) == len(_HEADING) else REASON_COLUMN


def _line(row: list[str], widths: list[int], style: str) -> Text:
    aligned = [cell + " " * (widths[i] - cell_len(cell)) for i, cell in enumerate(row[: _aligned(row)])]
    return Text(" " + "   ".join([*aligned, *row[_aligned(row) :]]).rstrip(), style=style)


def _one_per_pool(decision: Placed) -> list[Candidate]:
    best: dict[PoolId, Candidate] = {}
    for candidate in decision.candidates:
        best.setdefault(candidate.pool_id, candidate)
    return list(best.values())


def _fitting(candidate: Candidate, pools: Pools, *, chosen: bool) -> list[str]:
    return [
        CHOSEN if chosen else " ",
        candidate.pool_name,
        where(pools.get(candidate.pool_id)),
        "yes",
        "now",
        cost_per_hour(candidate.terms.get("cost_per_hour")),
        distance(candidate.terms.get("distance_km")),
        f"{candidate.score:.2f}",
    ]


def _refusing(rejection: Rejection, pools: Pools) -> list[str]:
    return [" ", rejection.pool_name, where(pools.get(rejection.pool_id)), "no", rejection.detail]


def where(pool: Pool | None) -> str:
    """Return where a pool is: its place, or ``local``."""
    if pool is None:
        return "–"
    if pool.spec.place is None:
        return "local" if pool.spec.kind == "local" else "–"
    return show_place(pool.spec.place)


def show_place(place: Place) -> str:
    """Return a place in a few letters: ``cn-north / edge``."""
    level = f" / {place.level}" if place.level else ""
    named = place.region or f"{place.latitude:g},{place.longitude:g}"
    return f"{named}{level}"


def cost_per_hour(price: float | None) -> str:
    """Return what an hour of the reservation costs; unknown is not zero."""
    return "not priced" if price is None else show_money(round(price * MICROS))


def distance(distance_km: float | None) -> str:
    """Return a distance; unknown is not zero."""
    return "–" if distance_km is None else f"{distance_km:,.0f} km"


def why_waiting(decision: Decision) -> RenderableType | None:
    """Return what would let a waiting demand run; None when it does not wait."""
    if isinstance(decision, Placed):
        return None
    if not decision.smallest_change:
        return Text("nothing known would start it now; it starts as soon as a pool can take it")
    return Text(f"smallest change that would start it now: {decision.smallest_change}")


def plan_page(decision: Decision, pools: Pools, heading: str) -> RenderableType:
    """Return the page shown before a run."""
    parts: list[RenderableType] = [Text(heading, style="bold"), considered(decision, pools)]
    reason = why_waiting(decision)
    if reason is not None:
        parts += [Text("No pool can take it now.", style="yellow"), reason]
    return Group(*parts)
