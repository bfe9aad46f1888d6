"""Nodes, replicas and components: read with every fault at once, planned, and refused to be run."""

from typing import Any

import msgspec
import pytest

from yunhe.kernel.errors import InvalidInputError
from yunhe.kernel.ids import JobId, ProjectId
from yunhe.scheduling.decision.model import Domain, Spread, Tie
from yunhe.trading.demand import amounts
from yunhe.trading.demand.deconstruct import deconstruct, deconstruct_graph
from yunhe.trading.demand.model import ComponentSpec, LinkSpec, ResourceSpec, ServiceSpec, Task
from yunhe.trading.demand.parse import not_runnable, parse_task, parse_yaml

JOB, PROJECT = JobId("job_1"), ProjectId("p")
NOW = 1_000_000.0
GRAPH = """
run: "true"
near: cn-north
resources: {memory: 2, pool: lab}
components:
  - {name: web, resources: {cpus: 2}}
  - {name: db, resources: {cpus: 4, memory: 16, pool: vault}}
  - {name: cache}
links:
  - {from: web, to: db, bandwidth: 1Gbps, latency: 10ms}
  - {from: web, to: cache, same_node: true}
"""


def problems_of(document: dict[str, Any], *, plan: bool = True) -> dict[str, str]:
    with pytest.raises(InvalidInputError) as refused:
        parse_task({"run": "true", **document}, plan=plan)
    return {problem.field: str(problem) for problem in refused.value.fields}


PLANNED: list[dict[str, Any]] = [
    {"num_nodes": 2},
    {"service": {"replicas": 1}},
    {"components": [{"name": "a"}]},
]


@pytest.mark.parametrize("document", PLANNED, ids=lambda document: next(iter(document)))
def test_what_is_planned_only_is_accepted_to_plan_and_refused_to_run(document: dict[str, Any]) -> None:
    (field,) = document
    task = parse_task({"run": "true", **document}, plan=True)
    assert parse_task(msgspec.json.decode(msgspec.json.encode(task)), plan=True) == task
    assert [problem.field for problem in not_runnable(task)] == [field]
    assert not not_runnable(Task(run="true"))
    found = problems_of({**document, "retries": -1}, plan=False)
    assert set(found) == {field, "retries"}, "the refusal hides no other fault"
    assert "is planned only: yunhe plan decides and explains it; to run it, " in found[field]


@pytest.mark.parametrize(
    "document", [{"num_nodes": 1}, {"components": []}, {"links": []}, {"service": None}, {"num_nodes": None}]
)
def test_a_field_that_asks_for_nothing_may_stay(document: dict[str, Any]) -> None:
    assert parse_task({"run": "true", **document}) == Task(run="true")


def test_a_graph_is_read_as_it_is_written() -> None:
    task = parse_yaml(GRAPH, plan=True)
    assert task.components == (
        ComponentSpec("web", ResourceSpec(cpus=2)),
        ComponentSpec("db", ResourceSpec(cpus=4, memory=16, pool="vault")),
        ComponentSpec("cache"),
    )
    assert task.links == (
        LinkSpec("web", "db", "1Gbps", "10ms"),
        LinkSpec("web", "cache", same_node=True),
    )


def test_every_fault_of_a_graph_is_told_at_once() -> None:
    found = problems_of(
        {
            "components": [
                {"name": "web"},
                {"name": "web"},
                {"nmae": "db"},
                {"name": "x", "resources": {"any_of": []}},
            ],
            "links": [
                {"from": "wbe", "to": "web", "bandwidth": 0, "latency": 10},
                {"from": "web", "to": "web", "same_node": "yes"},
                {"to": "web", "speed": 1},
                7,
            ],
            "service": {"replicas": 0, "replica_policy": {"min_replicas": 1}},
            "num_nodes": "two",
        }
    )
    assert set(found) == {
        "components",
        "components[2].nmae",
        "components[2].name",
        "components[3].resources.any_of",
        "links[0].from",
        "links[0].bandwidth",
        "links[0].latency",
        "links[1]",
        "links[1].same_node",
        "links[2].from",
        "links[2].speed",
        "links[3]",
        "service.replicas",
        "service.replica_policy",
        "num_nodes",
    }
    assert "did you mean 'name'" in found["components[2].nmae"]
    assert "did you mean 'web'" in found["links[0].from"]
    assert "10ms" in found["links[0].latency"]


@pytest.mark.parametrize(
    ("document", "field"),
    [
        ({"num_nodes": 2, "service": {"replicas": 2}}, "service"),
        ({"num_nodes": 2, "components": [{"name": "a"}]}, "components"),
        ({"service": {}, "components": [{"name": "a"}]}, "components"),
        ({"links": [{"from": "a", "to": "b"}]}, "links[0].from"),
        ({"components": [{"name": "a"}], "resources": {"any_of": [{"cpus": 1}]}}, "resources"),
        ({"components": [{"name": f"c{i}"} for i in range(33)]}, "components"),
        ({"num_nodes": 1001}, "num_nodes"),
        ({"num_nodes": True}, "num_nodes"),
    ],
)
def test_what_does_not_go_together_is_refused(document: dict[str, Any], field: str) -> None:
    assert field in problems_of(document)


def test_nodes_are_a_gang_in_one_pool_and_replicas_go_to_any() -> None:
    gang = deconstruct(Task(run="true", num_nodes=3), JOB, PROJECT, NOW)
    assert (gang.members, gang.members_min, gang.one_pool) == (3, None, True)
    assert gang.spread == Spread(Domain.NODE, 1)
    replicas = deconstruct(Task(run="true", service=ServiceSpec(2)), JOB, PROJECT, NOW)
    assert (replicas.members, replicas.members_min, replicas.one_pool) == (2, None, False)
    assert replicas.spread == Spread(Domain.NODE, 1)


def test_a_component_needs_what_it_says_over_what_the_task_says() -> None:
    demand = deconstruct_graph(parse_yaml(GRAPH, plan=True), PROJECT, NOW)
    needs = {part.name: part.demand.alternatives[0] for part in demand.parts}
    assert {
        name: (need.resources.cpu_millis, need.resources.memory_mib, need.pools)
        for name, need in needs.items()
    } == {
        "web": (2000, 2048, ("lab",)),
        "db": (4000, 16384, ("vault",)),
        "cache": (1000, 2048, ("lab",)),
    }
    assert all(part.demand.near is not None for part in demand.parts)
    assert demand.ties == (
        Tie(source="web", target="db", mbps=1000.0, max_latency_ms=10.0),
        Tie(source="web", target="cache", same_node=True),
    )


@pytest.mark.parametrize(
    ("written", "mbps"),
    [(100, 100.0), (2.5, 2.5), ("100", 100.0), ("1Gbps", 1000.0), ("500 Kbps", 0.5), ("3 mbit/s", 3.0)],
)
def test_bandwidth_is_read_as_people_write_it(written: str | float, mbps: float) -> None:
    assert amounts.bandwidth_mbps(written) == mbps


@pytest.mark.parametrize("written", ["", "fast", "1GB", "-1", 0, "1e3", "inf"])
def test_what_is_no_bandwidth_is_refused(written: str | float) -> None:
    with pytest.raises(ValueError, match="Gbps"):
        amounts.bandwidth_mbps(written)
