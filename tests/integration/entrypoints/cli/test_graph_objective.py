"""The objective of a graph on a running platform, against values computed by hand."""

from collections.abc import Generator
from pathlib import Path

import msgspec
import pytest

from integration.entrypoints.api.serving import Served, add_fake_pool, serving
from integration.entrypoints.cli.conftest import Shell
from yunhe.control.pools.model import FactChanges
from yunhe.kernel.ids import ProjectId
from yunhe.scheduling.decision.model import GraphPlaced
from yunhe.trading.applications.model import Submission
from yunhe.trading.demand.parse import parse_yaml

GRAPH = """
run: "true"
objective: {objective}
resources: {{memory: 1}}
components: [{{name: web, resources: {{cpus: 1}}}}, {{name: db, resources: {{cpus: 1}}}}]
links: [{{from: web, to: db, bandwidth: 100Mbps}}]
"""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Generator[Served]:
    """One pool of two nodes, each with 4 cores."""
    with serving(tmp_path_factory.mktemp("objective")) as served:
        with served.client() as client:
            add_fake_pool(client, "alpha", cpus="4", memory="16GB", nodes="2")
        yield served


@pytest.fixture
def shell(served: Served, tmp_path: Path) -> Shell:
    return Shell(tmp_path, tmp_path, {"YUNHE_URL": served.url, "YUNHE_KEY": served.key})


def planned(served: Served, objective: str) -> GraphPlaced:
    task = parse_yaml(GRAPH.format(objective=objective), plan=True)
    with served.client() as client:
        plan = client.plan(Submission(task=task, project_id=ProjectId("default")))
    assert isinstance(plan, GraphPlaced)
    return plan


def nodes_used(plan: GraphPlaced) -> int:
    return len({part.node_id for part in plan.parts})


APART = (1 - 1 / 4, 1.0, 1 - 5 / 8)
"""One core of 4 on each node; no link between sites is used; each draws 4·(.5 + .5·¼) = 2.5, of 8 in all."""
TOGETHER = (1 - 2 / 4, 1.0, 1 - 3 / 8)
"""Two cores of 4 on one node, which draws 4·(.5 + .5·½) = 3; the other is off."""


@pytest.mark.feature(
    "S40",
    file="src/yunhe/scheduling/decision/graphs/value.py",
    old="power = float((idle * (use > 0) + (full - idle) * use).sum())",
    new="power = float((idle + (full - idle) * use).sum())",
)
@pytest.mark.parametrize(
    ("objective", "parts"),
    [
        ("{nodes: 1}", APART),
        ("{energy: 1}", TOGETHER),
        ("{nodes: 1, links: 1, energy: 0.5}", APART),
        ("{nodes: 1, links: 1, energy: 3}", TOGETHER),
    ],
)
def test_a_graph_goes_where_its_objective_is_greatest(
    served: Served, objective: str, parts: tuple[float, float, float]
) -> None:
    plan = planned(served, objective)
    assert nodes_used(plan) == (2 if parts is APART else 1)
    assert plan.value is not None
    assert (plan.value.nodes, plan.value.links, plan.value.energy) == pytest.approx(parts)
    weights = parse_yaml(GRAPH.format(objective=objective), plan=True).objective
    assert weights is not None
    assert plan.value.total == pytest.approx(
        weights.nodes * parts[0] + weights.links * parts[1] + weights.energy * parts[2]
    )


def test_the_page_tells_what_the_placement_is_worth(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "app.yaml").write_text(GRAPH.format(objective="{nodes: 1, links: 1, energy: 0.5}"))
    done = shell.inside("plan", tmp_path / "app.yaml")
    assert done.returncode == 0, done.stderr
    page = " ".join(done.stdout.split())
    assert "value 1.937: balance of nodes 0.750, balance of links 1.000, energy 0.375" in page
    told = msgspec.json.decode(shell.inside("plan", tmp_path / "app.yaml", "--output", "json").stdout)
    assert told["value"]["total"] == pytest.approx(1.9375)


def test_without_an_objective_nothing_is_said_of_value(served: Served) -> None:
    text = GRAPH.format(objective="{nodes: 1}").replace("objective: {nodes: 1}\n", "")
    with served.client() as client:
        plan = client.plan(Submission(task=parse_yaml(text, plan=True), project_id=ProjectId("default")))
    assert isinstance(plan, GraphPlaced)
    assert plan.value is None


def test_watts_that_are_known_count_instead_of_the_sizes_of_nodes(served: Served) -> None:
    with served.client() as client:
        client.set_pool_facts("alpha", FactChanges(watts_idle=10.0, watts_full=110.0))
        try:
            plan = planned(served, "{energy: 1}")
        finally:
            client.set_pool_facts("alpha", FactChanges(unset=("watts_idle", "watts_full")))
    assert nodes_used(plan) == 1
    assert plan.value is not None
    assert plan.value.energy == pytest.approx(1 - (10 + 100 / 2) / 220)


def test_nodes_that_draw_nothing_save_all_there_is(served: Served) -> None:
    with served.client() as client:
        client.set_pool_facts("alpha", FactChanges(watts_idle=0.0, watts_full=0.0))
        try:
            plan = planned(served, "{energy: 1}")
        finally:
            client.set_pool_facts("alpha", FactChanges(unset=("watts_idle", "watts_full")))
    assert plan.value is not None
    assert plan.value.energy == 1.0


@pytest.mark.parametrize(
    ("objective", "said"),
    [
        ("{speed: 1}", "objective.speed: is not part of the value (nodes, links, energy)"),
        ("{nodes: -1}", "objective.nodes: must be a number from 0 to 1000000"),
        ("{nodes: 0}", "objective: counts nothing"),
    ],
)
def test_an_objective_that_says_nothing_is_refused(
    shell: Shell, tmp_path: Path, objective: str, said: str
) -> None:
    (tmp_path / "app.yaml").write_text(GRAPH.format(objective=objective))
    done = shell.inside("plan", tmp_path / "app.yaml")
    assert done.returncode == 1
    assert said in " ".join(done.stderr.split())


def test_an_objective_without_components_is_refused(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "app.yaml").write_text("run: 'true'\nobjective: {nodes: 1}\n")
    done = shell.inside("plan", tmp_path / "app.yaml")
    assert "objective: counts only for components" in " ".join(done.stderr.split())
