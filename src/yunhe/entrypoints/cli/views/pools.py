"""Pools as people read them."""

from collections.abc import Sequence

from rich.console import Group
from rich.text import Text
from rich.tree import Tree

from yunhe.control.pools.model import Check, Pool, PoolState
from yunhe.entrypoints.cli.terminal.screen import symbol, table
from yunhe.entrypoints.cli.terminal.tables import FittingTable
from yunhe.entrypoints.cli.views.plan import where
from yunhe.kernel.money import Prices, show_money
from yunhe.kernel.resources import Resources
from yunhe.kernel.units import show_cpu, show_memory
from yunhe.scheduling.perception.model import ResourceGraph, Vertex, VertexKind
from yunhe.trading.trades.model import PriceList

COLOURS = {PoolState.READY: "green", PoolState.OFFLINE: "red"}


def total(pool: Pool) -> Resources:
    """Return what a pool has, all nodes together."""
    return _sum([node.total for node in pool.nodes])


def used(pool: Pool) -> Resources:
    """Return what is used on a pool now, as measured, by us and by others."""
    return _sum([node.used for node in pool.nodes])


def reserved(pool: Pool) -> Resources:
    """Return what jobs hold on a pool, used or not: the rest is free for others."""
    return _sum([node.reserved for node in pool.nodes])


def _sum(amounts: list[Resources]) -> Resources:
    whole = Resources()
    for amount in amounts:
        whole = whole.plus(amount)
    return whole


def pools_table(pools: Sequence[Pool]) -> FittingTable:
    """Return the list of pools."""
    rows: list[list[str | Text]] = []
    for pool in pools:
        has, busy, held = total(pool), used(pool), reserved(pool)
        rows.append(
            [
                pool.spec.name,
                pool.spec.kind,
                where(pool),
                standing(pool),
                f"{show_cpu(held.cpu_millis)} of {show_cpu(has.cpu_millis)}",
                f"{show_memory(held.memory_mib)} of {show_memory(has.memory_mib)}",
                f"{busy.cpu_millis / 1000:.1f} cores, {show_memory(busy.memory_mib)}",
                pool.limits or "–",
                pool.reason or "; ".join(pool.notices),
            ]
        )
    return table(
        ["POOL", "KIND", "WHERE", "STATE", "CORES RESERVED", "MEMORY RESERVED", "USED NOW", "LIMITS", "NOTE"],
        rows,
        flexible=(0, 4, 5, 6, 7, 8),
        expendable=(7, 2, 6, 5, 1, 8),
    )


def standing(pool: Pool) -> Text:
    """Return how a pool stands; one that is ready and takes nothing is not shown as well."""
    tired = pool.unfit or (pool.drained and pool.state is PoolState.READY)
    return Text(pool.standing, style="yellow" if tired else COLOURS.get(pool.state, ""))


def graph_tree(graph: ResourceGraph) -> Group:
    """Return the graph of resources as a tree for each cluster."""
    below: dict[str, list[Vertex]] = {}
    by_id = {vertex.id: vertex for vertex in graph.vertices}
    for edge in graph.edges:
        below.setdefault(edge.source, []).append(by_id[edge.target])
    clusters = [vertex for vertex in graph.vertices if vertex.kind is VertexKind.CLUSTER]
    return Group(*(_branch(cluster, below, None) for cluster in clusters))


def _branch(vertex: Vertex, below: dict[str, list[Vertex]], parent: Tree | None) -> Tree:
    children = below.get(vertex.id, [])
    label = Text.assemble((vertex.name, "bold"), f"  {vertex.attributes.get('kind', '')}".rstrip(), "  ")
    label.append(vertex.state, style="green" if vertex.state == "ready" else "yellow")
    amounts = [_amount(child) for child in children if child.kind is VertexKind.RESOURCE]
    if vertex.reason:
        amounts.append(vertex.reason)
    label.append("".join(f"  {amount}" for amount in amounts), style="dim")
    tree = Tree(label, guide_style="dim") if parent is None else parent.add(label)
    for child in children:
        if child.kind is not VertexKind.RESOURCE:
            _branch(child, below, tree)
    return tree


def _amount(resource: Vertex) -> str:
    used, total = resource.used or 0, resource.total or 0
    if resource.unit == "MiB":
        return f"{resource.name} {show_memory(used)} of {show_memory(total)} used"
    return f"{resource.name} {used / 1000:.1f} of {total / 1000:g} used"


def check_line(check: Check) -> Text:
    """Return one step of connecting to a pool."""
    mark, style = ("✓", "green") if check.ok else ("✗", "red")
    line = Text.assemble((f" {mark} ", style), check.step)
    if check.detail:
        line.append(f"  {check.detail}", style="dim")
    if check.remedy and not check.ok:
        line.append(f"\n   → {check.remedy}")
    return line


def failed_line(check: Check) -> Text:
    """Return the name of a step that failed; what it says and its remedy follow as the problem of the command."""
    return Text.assemble((" ✗ ", "red"), check.step)


def prices_table(prices: PriceList) -> FittingTable:
    """Return what a pool charges, tier by tier."""
    sign = symbol(prices.currency)
    kinds = sorted({kind for tier in prices.tiers.values() for kind in tier.accelerator_hour_micros})
    rows = [[tier, *_row(list_price, kinds, sign)] for tier, list_price in prices.tiers.items()]
    return table(["TIER", "CORE/h", "GiB/h", "IO/GiB", "NET/GiB", *(f"{kind}/h" for kind in kinds)], rows)


def _row(prices: Prices, kinds: list[str], sign: str) -> list[str]:
    amounts = [
        prices.cpu_core_hour_micros,
        prices.memory_gib_hour_micros,
        prices.io_gib_micros,
        prices.network_gib_micros,
        *(prices.accelerator_hour_micros.get(kind, 0) for kind in kinds),
    ]
    return [show_money(micros, sign) for micros in amounts]
