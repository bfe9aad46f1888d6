"""Plugins and the tree of resources as people read them."""

from rich.console import Console, RenderableType

from yunhe.control.plugins.in_process import in_process
from yunhe.control.plugins.model import Plugin, PluginState
from yunhe.control.pools.model import Pool, PoolNode, PoolSpec, PoolState
from yunhe.entrypoints.cli.views.plugins import kinds_table, plugin_page, plugins_table
from yunhe.entrypoints.cli.views.pools import graph_tree
from yunhe.kernel.ids import NodeId, PoolId
from yunhe.kernel.resources import Resources
from yunhe.scheduling.perception.graph import build_graph


def drawn(what: RenderableType) -> str:
    console = Console(width=100, record=True, file=None)
    with console.capture() as captured:
        console.print(what)
    return captured.get()


def ssh() -> Plugin:
    manifest = in_process().manifests["ssh"]
    return Plugin(
        name="ssh",
        version=manifest.version,
        vendor=manifest.vendor,
        summary=manifest.summary,
        state=PluginState.ACTIVE,
        contract=1,
        in_process=True,
        target=manifest.target,
        options=manifest.options,
        powers=manifest.powers,
        missing=manifest.missing,
        limits=manifest.limits,
        fields=manifest.fields,
        pools=("lab",),
    )


def test_a_plugin_is_shown_with_its_options_powers_and_every_field() -> None:
    listed, page, kinds = (
        drawn(one) for one in (plugins_table([ssh()]), plugin_page(ssh(), now=0.0), kinds_table([ssh()]))
    )
    assert "active" in listed
    assert "lab" in listed
    assert "identity" in kinds
    assert "LaunchOrder.timeout_s" in page
    assert "Meters.gap_ms" in page
    assert max(map(len, page.splitlines())) <= 100


def test_the_tree_shows_each_node_below_its_pool_with_what_it_has_and_uses() -> None:
    pool_id = PoolId("pool_1")
    node = PoolNode(
        id=NodeId("pool_1/n1"),
        pool_id=pool_id,
        total=Resources(4000, 2048, 1024),
        used=Resources(1000, 1024, 0),
        cordoned=True,
        seen_at=0.0,
    )
    spec = PoolSpec(name="lab", kind="ssh")
    pool = Pool(id=pool_id, spec=spec, state=PoolState.READY, added_at=0.0, nodes=(node,))
    lines = drawn(graph_tree(build_graph([pool], taken_at=0.0))).splitlines()
    assert lines[0].startswith("lab  ssh  ready")
    assert "n1  cordoned  cpu 1.0 of 4" in lines[1]
