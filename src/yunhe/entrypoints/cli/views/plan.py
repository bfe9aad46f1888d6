"""A decision as people read it: what was considered, what was chosen, and why not the others."""

from collections.abc import Callable, Mapping, Sequence

from rich.cells import cell_len
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from yunhe.control.pools.model import Pool
from yunhe.entrypoints.cli.views.parts import graph_page, members
from yunhe.kernel.ids import PoolId
from yunhe.kernel.money import MICROS, show_money
from yunhe.kernel.places import Place
from yunhe.kernel.units import show_duration
from yunhe.scheduling.decision.model import (
    Candidate,
    Decision,
    GraphPlaced,
    GraphWaiting,
    Placed,
    Plan,
    Rejection,
    Rule,
    ScoreTerm,
)

Pools = Mapping[PoolId, Pool]


GLANCE = 12
"""So many pools can be taken in at a glance; of more, the best and the reasons are shown."""
BEST = 5
MISSES = 3
NAMED = 2


def considered(decision: Decision, pools: Pools, *, every: bool = False) -> RenderableType:
    """Return what was considered, the chosen pool first; where there are many, the best and the reasons, or *every* one."""
    fitting = _one_per_pool(decision) if isinstance(decision, Placed) else []
    if not fitting and not decision.rejected:
        return Text("  no pool is registered; add one with `yunhe pool add`")
    if every or len(fitting) + len(decision.rejected) <= GLANCE:
        refusing = decision.rejected if isinstance(decision, Placed) else decision.nearest_first
        return _listed(fitting, refusing, pools)
    parts: list[RenderableType] = []
    if fitting:
        parts.append(_listed(fitting[:BEST], (), pools))
    more = fitting[BEST:]
    if more:
        scores = f"{more[0].score:.2f} to {more[-1].score:.2f}" if len(more) > 1 else f"{more[0].score:.2f}"
        parts.append(Text(f"     {_pools(len(more), 'more ')} would do: score {scores}"))
    return Group(*parts, *_reasons(decision.rejected))


_BETTER_AND_WORSE: dict[ScoreTerm, tuple[Callable[[float], str], str, str]] = {
    ScoreTerm.COST_PER_HOUR: (lambda price: f"{show_money(round(price * MICROS))}/h", "cheaper", "dearer"),
    ScoreTerm.WAIT_S: (show_duration, "sooner", "later"),
    ScoreTerm.RUN_S: (show_duration, "faster", "slower"),
    ScoreTerm.DATA_S: (show_duration, "less to move data", "more to move data"),
    ScoreTerm.DISTANCE_KM: (lambda km: f"{km:,.0f} km", "nearer", "farther"),
    ScoreTerm.CARBON_G: (lambda carbon: f"{carbon:,.0f} g", "less carbon", "more carbon"),
}
"""Each term that is compared in words: how an amount of it is written, and what less and more of it are called."""


def why_first(decision: Placed) -> Text | None:
    """Return in a sentence how the chosen pool differs from the next; None when there was no choice."""
    fitting = _one_per_pool(decision)
    if len(fitting) < 2:
        return None
    chosen, second = fitting[0], fitting[1]
    differences: list[str] = []
    for term, (written, less, more) in _BETTER_AND_WORSE.items():
        here, there = chosen.terms.get(term), second.terms.get(term)
        if here is not None and there is not None and written(abs(here - there)) != written(0):
            differences.append(f"{written(abs(here - there))} {less if here < there else more}")
    best = f"best of {len(fitting)} that fit"
    if not differences:
        return Text(f"{best}; {second.pool_name}, the next, is no different in what is known")
    return Text(f"{best}: {', '.join(differences)} than {second.pool_name}, the next")


REASONS: dict[str, str] = {
    Rule.ROOMY: "no room",
    Rule.ACCEPTING: "no new work taken",
    Rule.NAMED: "not among the pools asked for",
    Rule.FRESH: "just failed there",
    Rule.SERVING: "for another project",
    Rule.RESIDENT: "outside the regions that data may not leave",
    Rule.LEVEL: "at another level than asked for",
    Rule.TOLERATED: "kept for others by a taint",
    Rule.ABLE: "its engine cannot",
    Rule.TOGETHER: "does not agree with what runs there",
    Rule.ARCHITECTURE: "another architecture",
    Rule.LABELLED: "not labelled as asked for",
    Rule.AFFORDABLE: "over the budget",
    Rule.TIMELY: "too late for the deadline",
    Rule.RELIABLE: "not reliable enough",
    Rule.REACHABLE: "too far from its users",
    Rule.KNOWN: "the policy goes by what it does not say",
    Rule.LINKED: "no network path with enough left",
}


def _reasons(rejected: Sequence[Rejection]) -> list[RenderableType]:
    """Return why pools refused, rule by rule: how many, and the nearest misses with a few names."""
    by_rule: dict[str, list[Rejection]] = {}
    for rejection in rejected:
        by_rule.setdefault(rejection.rule, []).append(rejection)
    parts: list[RenderableType] = []
    for rule, refusals in sorted(by_rule.items(), key=lambda item: -len(item[1])):
        said: dict[str, list[Rejection]] = {}
        for refusal in sorted(refusals, key=lambda one: one.miss):
            said.setdefault(refusal.detail, []).append(refusal)
        line = Text(f" {_pools(len(refusals)):>9}: {REASONS.get(rule, rule)}")
        parts.append(line + (Text("; nearest:", style="dim") if len(said) > MISSES else Text()))
        grid = Table.grid(padding=(0, 3, 0, 0))
        for detail, ones in list(said.items())[:MISSES]:
            grid.add_row(" " * 8, detail, _names(ones))
        parts.append(grid)
    return parts


def _names(refusals: Sequence[Rejection]) -> str:
    more = len(refusals) - NAMED
    names = ", ".join(refusal.pool_name for refusal in refusals[: NAMED if more > 1 else NAMED + 1])
    return names + (f" and {more} more" if more > 1 else "")


def _pools(count: int, more: str = "") -> str:
    return f"{count} {more}pool{'s' * (count != 1)}"


def _listed(fitting: Sequence[Candidate], rejected: Sequence[Rejection], pools: Pools) -> Text:
    digits = _digits(fitting)
    rows = [_fitting(one, pools, chosen=index == 0, digits=digits) for index, one in enumerate(fitting)]
    rows += [_refusing(rejection, pools) for rejection in rejected]
    heading = {column: column for column in _COLUMNS}
    shown = [column for column in _COLUMNS if any(row.get(column) for row in rows)]
    widths = {column: max(cell_len(row.get(column, "")) for row in [heading, *rows]) for column in shown}
    lines = [_line(heading, widths, "bold")]
    lines += [_line(row, widths, "bold green" if row[""] == CHOSEN else "") for row in rows]
    return Text("\n").join(lines)


CHOSEN = "✔"
REASON = "reason"
"""The one cell that stands in no column: it runs on to the end of its line."""
_COLUMNS = ("", "POOL", "WHERE", "FITS", "STARTS", "COST/h", "DISTANCE", "SCORE")

_Row = dict[str, str]


def _line(row: _Row, widths: dict[str, int], style: str) -> Text:
    cells = [
        row[column] + " " * (width - cell_len(row[column]))
        for column, width in widths.items()
        if column in row
    ]
    return Text(" " + "   ".join([*cells, row.get(REASON, "")]).rstrip(), style=style)


def _one_per_pool(decision: Placed) -> list[Candidate]:
    best: dict[PoolId, Candidate] = {}
    for candidate in decision.candidates:
        best.setdefault(candidate.pool_id, candidate)
    return list(best.values())


def _digits(fitting: Sequence[Candidate]) -> int:
    """Return how many decimals tell the best score from the next; two unless they are close."""
    first, second = (fitting[0].score, fitting[1].score) if len(fitting) > 1 else (0.0, 1.0)
    return next((digits for digits in (2, 3) if round(first, digits) != round(second, digits)), 4)


def _fitting(candidate: Candidate, pools: Pools, *, chosen: bool, digits: int) -> _Row:
    away = candidate.terms.get(ScoreTerm.DISTANCE_KM)
    return {
        "": CHOSEN if chosen else " ",
        "POOL": candidate.pool_name,
        "WHERE": where(pools.get(candidate.pool_id)),
        "FITS": "yes",
        "STARTS": _starts(candidate),
        "COST/h": cost_per_hour(candidate.terms.get(ScoreTerm.COST_PER_HOUR)),
        "DISTANCE": "" if away is None else f"{away:,.0f} km",
        "SCORE": f"{candidate.score:.{digits}f}",
    }


def _starts(candidate: Candidate) -> str:
    """Return when it would run, by what is known: it may be held, the pool may be slow to begin, data may have to come."""
    wait_s = sum(candidate.terms.get(name) or 0.0 for name in (ScoreTerm.WAIT_S, ScoreTerm.DATA_S))
    return "now" if wait_s < 1.0 else f"in ~{show_duration(wait_s)}"


def _refusing(rejection: Rejection, pools: Pools) -> _Row:
    place = where(pools.get(rejection.pool_id))
    return {"": " ", "POOL": rejection.pool_name, "WHERE": place, "FITS": "no", REASON: rejection.detail}


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


def why_waiting(decision: Decision) -> RenderableType | None:
    """Return which pool came nearest to taking a waiting demand, and what would let it run; None when it does not wait."""
    if isinstance(decision, Placed):
        return None
    page = Text("".join(f"came nearest: {no.pool_name}; {no.detail}\n" for no in decision.nearest_first[:1]))
    if not decision.smallest_change:
        return page.append("nothing known would start it now; it waits for a pool that can take it")
    change = f"smallest change that would start it now: {decision.smallest_change}"
    return page.append(change, style="bold")


def left_out(decision: Decision) -> list[RenderableType]:
    """Return what decided nothing: terms that none of several pools says, and facts that are too old."""
    if not isinstance(decision, Placed):
        return []
    pools = _one_per_pool(decision)
    lines = [
        f"not weighed of {one.pool_name}: {', '.join(f'{fact} ({age})' for fact, age in one.too_old.items())}"
        for one in pools[:GLANCE]
        if one.too_old
    ]
    if decision.omitted and len(pools) > 1:
        lines.append(f"left out, as no pool says it (yunhe pool set): {', '.join(decision.omitted)}")
    return [Text(line, style="dim") for line in lines]


def plan_page(decision: Plan, pools: Pools, heading: str) -> RenderableType:
    """Return the page shown before a run."""
    if isinstance(decision, GraphPlaced | GraphWaiting):
        return graph_page(decision, heading)
    parts: list[RenderableType] = [Text(heading, style="bold"), considered(decision, pools)]
    parts += left_out(decision)
    if isinstance(decision, Placed) and len(decision.assignments) > 1:
        parts.append(members(decision, pools))
    reason = why_waiting(decision)
    if reason is not None:
        parts += [Text("✗ No pool can take it now.", style="yellow"), reason]
    return Group(*parts)
