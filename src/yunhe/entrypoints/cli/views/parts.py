"""Work of several parts as people read it: where each member or component goes, and what flows between them."""

from collections.abc import Mapping

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from yunhe.control.pools.model import Pool
from yunhe.entrypoints.cli.terminal.screen import amount
from yunhe.kernel.ids import NodeId, PoolId
from yunhe.scheduling.decision.model import GraphPlaced, GraphValue, GraphWaiting, Placed, Rejection, TieRoute

PLANNED_ONLY = "planned only: yunhe run does not carry it out yet"
LISTED = 20
"""So many members are listed one by one; of more, each pool's number is told."""
REASONS = 5


def members(decision: Placed, pools: Mapping[PoolId, Pool]) -> RenderableType:
    """Return where each member goes; of many, how many go to each pool."""
    names = {pool_id: pool.spec.name for pool_id, pool in pools.items()}
    grid = Table.grid(padding=(0, 3, 0, 0))
    if len(decision.assignments) <= LISTED:
        for number, one in enumerate(decision.assignments, 1):
            grid.add_row(
                f"  member {number}",
                node_name(names.get(one.pool_id, one.pool_id), one.node_id),
                amount(one.resources),
            )
    else:
        for pool_id in dict.fromkeys(one.pool_id for one in decision.assignments):
            count = sum(one.pool_id == pool_id for one in decision.assignments)
            grid.add_row(f"  {count} members", names.get(pool_id, pool_id))
    heading = Text(f"Its {len(decision.assignments)} members would go, all or none:", style="bold")
    return Group(heading, grid, Text(PLANNED_ONLY, style="dim"))


def graph_page(plan: GraphPlaced | GraphWaiting, heading: str) -> RenderableType:
    """Return where every component would go and what every link uses, or what stands in the way."""
    parts: list[RenderableType] = [Text(heading, style="bold")]
    parts += _placed(plan) if isinstance(plan, GraphPlaced) else _waiting(plan)
    return Group(*parts, Text(PLANNED_ONLY, style="dim"))


def _placed(plan: GraphPlaced) -> list[RenderableType]:
    grid = Table("COMPONENT", "WHERE", "NEEDS", box=None, padding=(0, 3, 0, 0), header_style="bold")
    for part in plan.parts:
        grid.add_row(part.name, node_name(part.pool_name, part.node_id), amount(part.resources))
    worth: list[RenderableType] = [] if plan.value is None else [_value(plan.value)]
    if not plan.ties:
        return [grid, *worth]
    ties = Table("LINK", "USES", "OVER", "LATENCY", box=None, padding=(0, 3, 0, 0), header_style="bold")
    for tie in plan.ties:
        ties.add_row(f"{tie.source} → {tie.target}", f"{tie.mbps:g} Mbit/s" if tie.mbps else "–", *_way(tie))
    return [grid, ties, *worth]


def _value(value: GraphValue) -> Text:
    """Return what the placement is worth by the graph's objective."""
    parts = (
        f"balance of nodes {value.nodes:.3f}, balance of links {value.links:.3f}, energy {value.energy:.3f}"
    )
    return Text(f"value {value.total:.3f}: {parts}")


def _way(tie: TieRoute) -> tuple[str, str]:
    """Return what a link runs over and how long it takes; inside a site nobody has measured it."""
    if not tie.sites:
        return "the node itself", "–"
    if len(tie.sites) == 1:
        return f"inside {tie.sites[0]}", "–"
    return " → ".join(tie.sites), "unknown" if tie.latency_ms is None else f"{tie.latency_ms:g} ms"


def _waiting(plan: GraphWaiting) -> list[RenderableType]:
    lines: list[RenderableType] = [
        Text("✗ Its components cannot all be placed now.", style="yellow"),
        Text(f"{plan.constraint}: {plan.detail}"),
    ]
    if plan.rejected:
        lines.append(_refusals(plan.rejected))
    if plan.smallest_change:
        change = f"smallest change that would place {plan.part}: {plan.smallest_change}"
        lines.append(Text(change, style="bold"))
    return lines


def _refusals(rejected: tuple[Rejection, ...]) -> RenderableType:
    grid = Table.grid(padding=(0, 3, 0, 0))
    for refusal in rejected[:REASONS]:
        grid.add_row(f"  {refusal.pool_name}", refusal.detail)
    if len(rejected) > REASONS:
        grid.add_row(f"  and {len(rejected) - REASONS} more")
    return grid


def node_name(pool: str, node_id: NodeId) -> str:
    """Return a node as people write it; where its pool hides its nodes, the pool."""
    return f"{pool}/{node_id.rpartition('/')[2]}" if node_id else pool
