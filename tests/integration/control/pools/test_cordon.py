"""Decisions respect what operators say: a cordoned node and a drained pool take nothing new."""

from collections.abc import Generator
from pathlib import Path

import pytest

from integration.control.plugins.processes import until
from integration.entrypoints.api.serving import Served, add_fake_pool, serving
from yunhe.entrypoints.client import Client
from yunhe.kernel.errors import NotFoundError
from yunhe.scheduling.decision.model import Placed, Waiting
from yunhe.scheduling.orchestration.jobs.states import JobState
from yunhe.trading.applications.model import Submission
from yunhe.trading.demand.model import ResourceSpec, Task

ASK = Submission(task=Task(run="exit 0", resources=ResourceSpec(cpus=1)))


@pytest.fixture
def served(tmp_path: Path) -> Generator[Served]:
    with serving(tmp_path) as running:
        yield running


@pytest.fixture
def client(served: Served) -> Generator[Client]:
    with served.client() as client:
        add_fake_pool(client, "lab", nodes="2", cpus="2")
        yield client


def node_of(client: Client) -> str:
    decision = client.plan(ASK)
    assert isinstance(decision, Placed)
    return decision.assignments[0].node_id.partition("/")[2]


def test_work_goes_to_the_other_node_then_waits_saying_why_and_runs_once_a_node_is_free_again(
    client: Client,
) -> None:
    for cordoned, other in (("fake-1", "fake-2"), ("fake-2", "fake-1")):
        client.cordon_node("lab", cordoned)
        assert node_of(client) == other
        client.cordon_node("lab", cordoned, on=False)
    for node in ("fake-1", "fake-2"):
        pool = client.cordon_node("lab", node)
    assert [node.cordoned for node in pool.nodes] == [True, True]
    states = {vertex.name: vertex.state for vertex in client.graph("lab").vertices if vertex.state}
    assert states == {"lab": "ready", "fake-1": "cordoned", "fake-2": "cordoned"}
    decision = client.plan(ASK)
    assert isinstance(decision, Waiting)
    assert "cordoned" in decision.rejected[0].detail
    job = client.submit(ASK)
    until(lambda: "cordoned" in client.job(job.id).reason)
    client.cordon_node("lab", "fake-2", on=False)
    until(lambda: client.job(job.id).state is JobState.SUCCEEDED)


def test_a_cordon_outlasts_the_looks_that_replace_what_is_known_of_nodes(client: Client) -> None:
    client.cordon_node("lab", "fake-1")
    seen = client.pool("lab").seen_at
    until(lambda: client.pool("lab").seen_at != seen)
    assert [node.cordoned for node in client.pool("lab").nodes] == [True, False]
    with pytest.raises(NotFoundError, match="no node"):
        client.cordon_node("lab", "fake-9")


def test_a_drained_pool_takes_nothing_new_until_it_is_let(client: Client) -> None:
    client.drain_pool("lab")
    assert isinstance(client.plan(ASK), Waiting)
    client.drain_pool("lab", on=False)
    assert isinstance(client.plan(ASK), Placed)


def test_a_pool_tells_its_account_and_its_sizes_with_the_same_verbs_as_any_other(client: Client) -> None:
    pool = client.pool("lab")
    assert pool.account is not None
    assert pool.account.identity == "anybody"
    assert pool.catalogue is not None
    assert pool.catalogue.specs


@pytest.mark.feature(
    "C35",
    file="src/yunhe/scheduling/perception/graph.py",
    old='"millicores", node.total.cpu_millis',
    new='"millicores", node.used.cpu_millis',
)
def test_the_graph_that_is_asked_for_is_the_inventory_that_is_asked_for(client: Client) -> None:
    add_fake_pool(client, "annex", nodes="3", cpus="5")
    graph, pools = client.graph(), client.pools()
    vertices = {vertex.id: vertex for vertex in graph.vertices}
    assert {(edge.source, edge.target) for edge in graph.edges if edge.source in {p.id for p in pools}} == {
        (pool.id, node.id) for pool in pools for node in pool.nodes
    }
    for node in (node for pool in pools for node in pool.nodes):
        assert vertices[f"{node.id}#cpu"].total == node.total.cpu_millis
        assert vertices[f"{node.id}#memory"].total == node.total.memory_mib
    annex = client.pool("annex")
    alone = client.graph("annex")
    assert {edge.target for edge in alone.edges if edge.source == annex.id} == {n.id for n in annex.nodes}
    assert all(vertex.id.startswith(annex.id) for vertex in alone.vertices)


def test_each_node_says_what_it_says_to_a_waiting_job(client: Client) -> None:
    client.cordon_node("lab", "fake-1")
    asks = Submission(task=Task(run="true", resources=ResourceSpec(cpus=3)))
    job = client.submit(asks)
    every = client.ask_nodes(job.id)
    assert every.refused == {"lab": {"roomy": 1}}
    small = client.ask_nodes(job.id, "fake-2")
    assert small.node == "lab/fake-2"
    assert small.refusal is not None
    assert small.refusal.detail == "3 cores asked, 2 free"
    with pytest.raises(NotFoundError, match="cordoned"):
        client.ask_nodes(job.id, "lab/fake-1")
    with pytest.raises(NotFoundError, match="Did you mean"):
        client.ask_nodes(job.id, "lab/fake-9")
    modest = client.submit(Submission(task=Task(run="sleep 60", resources=ResourceSpec(cpus=1))))
    assert client.ask_nodes(modest.id, "fake-2").refusal is None
    for one in (job, modest):
        client.stop(one.id)
