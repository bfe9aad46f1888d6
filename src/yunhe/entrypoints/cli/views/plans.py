"""Plans as people read them: what there is to choose from, and several tasks together."""

import time
from collections.abc import Callable, Mapping, Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from yunhe.control.pools.model import Pool
from yunhe.entrypoints.cli.terminal.screen import amount, local_time, table
from yunhe.entrypoints.cli.views.parts import node_name
from yunhe.entrypoints.cli.views.plan import cost_per_hour, where, why_waiting
from yunhe.kernel.ids import PoolId
from yunhe.kernel.money import MICROS, show_money
from yunhe.kernel.units import show_duration
from yunhe.scheduling.decision.model import Placed, Plan, Policy, ScoreTerm, Waiting
from yunhe.scheduling.decision.plans import JointPlan, ParetoChoice, ParetoPlan
from yunhe.trading.applications.model import SavedPlan
from yunhe.trading.demand.model import Task

Pools = Mapping[PoolId, Pool]

CRITERIA: dict[str, tuple[str, Callable[[float], str]]] = {
    "cost": ("COST", lambda cost: show_money(round(cost * MICROS))),
    "start_s": ("START", show_duration),
    ScoreTerm.RUN_S: ("RUN TIME", show_duration),
    ScoreTerm.CARBON_G: ("CARBON", lambda grams: f"{grams:,.0f} g"),
    ScoreTerm.LATENCY_MS: ("LATENCY", lambda ms: f"{ms:,.0f} ms"),
    ScoreTerm.DISTANCE_KM: ("DISTANCE", lambda km: f"{km:,.0f} km"),
    ScoreTerm.RISK: ("RISK", lambda risk: f"{risk * 100:.2g} %"),
}
"""Each criterion: its heading, and how an amount of it is written."""


def pareto_page(plan: ParetoPlan, pools: Pools, name: str) -> RenderableType:
    """Return the candidates that nobody beats, with what each costs against the first."""
    known = [criterion for criterion in CRITERIA if criterion not in plan.unknown]
    rows = [
        [
            one.candidate.pool_name,
            where(pools.get(one.candidate.pool_id)),
            *(_value(criterion, one.values.get(criterion)) for criterion in known),
            _against(one) or ("chosen by the policy" if one is plan.choices[0] else "the same"),
        ]
        for one in plan.choices
    ]
    headings = ["POOL", "WHERE", *(CRITERIA[criterion][0] for criterion in known), "AGAINST THE FIRST"]
    parts: list[RenderableType] = [Text(f"Nobody beats, for {name}", style="bold"), table(headings, rows)]
    if len(plan.choices) + len(plan.beaten) == 1:
        parts.append(Text("it is the only candidate: there is nothing to compare it with"))
    parts += [Text(f"{one.candidate.pool_name} is beaten by {one.by}", style="dim") for one in plan.beaten]
    if plan.unknown:
        unknown = ", ".join(CRITERIA[criterion][0].lower() for criterion in plan.unknown)
        parts.append(Text(f"not known of any of them: {unknown}", style="dim"))
    return Group(*parts)


def _value(criterion: str, value: float | None) -> str:
    return "unknown" if value is None else CRITERIA[criterion][1](value)


def _against(one: ParetoChoice) -> str:
    """Return what a candidate has more and less of than the first."""
    said: list[str] = []
    for criterion, (heading, written) in CRITERIA.items():
        more = one.against_first.get(criterion, 0.0)
        if written(abs(more)) != written(0.0):
            said.append(f"{'+' if more > 0 else '−'}{written(abs(more))} {heading.lower()}")
    return ", ".join(said)


def together_page(plan: JointPlan, pools: Pools, tasks: Sequence[Task]) -> RenderableType:
    """Return where each task goes, who waits and why, and what planning together saves."""
    heading = f"{len(tasks)} tasks together (policy {tasks[0].policy})"
    return Group(listed_page(plan.decisions, pools, tasks, heading), _saved(plan, tasks))


def listed_page(
    decisions: Sequence[Plan], pools: Pools, tasks: Sequence[Task], heading: str
) -> RenderableType:
    """Return where each of several tasks goes in one table, then who waits and why."""
    names = {pool_id: pool.spec.name for pool_id, pool in pools.items()}
    rows: list[list[str]] = []
    waits: list[RenderableType] = []
    for task, decision in zip(tasks, decisions, strict=True):
        if isinstance(decision, Placed):
            goes = decision.assignments[0]
            more = f" and {len(decision.assignments) - 1} more" if len(decision.assignments) > 1 else ""
            at = node_name(names.get(goes.pool_id, goes.pool_id), goes.node_id) + more
            price = cost_per_hour(decision.terms.get(ScoreTerm.COST_PER_HOUR))
            rows.append([task.name, at, amount(goes.resources), price, f"{decision.score:.4g}"])
        elif isinstance(decision, Waiting):
            rows.append([task.name, "waits", "", "", ""])
            reason = why_waiting(decision)
            waits += [
                Text(f"✗ {task.name} does not fit beside the others.", style="yellow"),
                reason or Text(""),
            ]
    headings = ["TASK", "WHERE", "NEEDS", "COST/h", "SCORE"]
    return Group(Text(heading, style="bold"), table(headings, rows), *waits)


def _saved(plan: JointPlan, tasks: Sequence[Task]) -> Text:
    """Say what the plan comes to, and what other ways would."""
    money = tasks[0].policy in {Policy.CHEAPEST, Policy.BALANCED}

    def written(cost: float) -> str:
        return show_money(round(cost * MICROS)) if money else f"{cost:,.4g}"

    lines = [f"together {written(plan.cost)}, one after another {written(plan.one_after_another)}"]
    earlier = plan.waiting_one_after_another - plan.waiting
    if earlier:
        lines[0] += f": {earlier} more can run"
    elif plan.one_after_another - plan.cost > 1e-9:
        lines[0] += f": saves {written(plan.one_after_another - plan.cost)}"
    else:
        lines[0] += ": no difference"
    if plan.single_pools:
        name, alone = min(plan.single_pools.items(), key=lambda item: item[1])
        lines.append(f"all in one pool: {written(alone)} at the least ({name})")
    lines.append("no other way is better" if plan.exact else "the best of many ways that were tried")
    return Text("\n".join(lines))


def saved_page(plan: SavedPlan) -> RenderableType:
    """Return where each task of a saved plan goes."""
    rows = [
        [
            task.submission.task.name or "task",
            node_name(task.place.pool_name, task.place.node_id),
            amount(task.place.resources),
            cost_per_hour(task.place.cost_per_hour),
        ]
        for task in plan.tasks
    ]
    heading = Text(f"Planned {local_time(plan.made_at, now=time.time())}", style="bold")
    return Group(heading, table(["TASK", "WHERE", "NEEDS", "COST/h"], rows))
