"""What holds of every task, however it is written."""

from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from yunhe.kernel.errors import InvalidInputError
from yunhe.kernel.ids import JobId, ProjectId
from yunhe.trading.demand.deconstruct import deconstruct, deconstruct_graph
from yunhe.trading.demand.model import Task
from yunhe.trading.demand.parse import parse_task
from yunhe.trading.demand.schema import task_schema

VALIDATOR = Draft202012Validator(task_schema())

words = st.text("abcxyz019-_.~/ \0", max_size=12)
junk = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 10**12) | st.floats() | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=6,
)
amounts = st.sampled_from([1, 2.5, "4+", "500m", "16GB", "512MB", 0, -1, "much", True, None]) | junk
plain: dict[str, st.SearchStrategy[object]] = {
    "cpus": amounts,
    "memory": amounts,
    "disk_size": amounts,
    "accelerators": st.sampled_from(["A100", "A100:2", "T4:0.5", {"A100": 4}, {"A": 1, "B": 2}]) | junk,
    "pool": st.sampled_from(["lab", "this-machine"]) | junk,
    "use_spot": st.booleans(),
}
alternatives = st.lists(st.fixed_dictionaries({}, optional=plain), max_size=3)
resources = st.fixed_dictionaries({}, optional={**plain, "any_of": alternatives, "ordered": alternatives})
part_names = st.sampled_from(["web", "db", "web ", ""])
components = st.lists(
    st.fixed_dictionaries(
        {"name": part_names}, optional={"resources": st.fixed_dictionaries({}, optional=plain)}
    ),
    max_size=2,
)
links = st.lists(
    st.fixed_dictionaries(
        {"from": part_names, "to": part_names},
        optional={
            "bandwidth": st.sampled_from([100, "1Gbps", 0, "wide"]) | junk,
            "latency": st.sampled_from(["10ms", 10, "soon"]) | junk,
            "same_node": st.booleans() | junk,
        },
    ),
    max_size=2,
)
placement: dict[str, st.SearchStrategy[object]] = {
    "residency": st.sampled_from(["cn", ["cn-north", "eu"], ["cn", "cn"], "c n"]) | junk,
    "where": st.sampled_from(["disk=ssd", ["a/b=c", "zone!=b"], {"disk": "ssd"}, ["disk"]]) | junk,
    "tolerations": st.sampled_from(["*", ["gpu", "a/b=c"], ["x y"]]) | junk,
    "architecture": st.sampled_from(["arm64", ["x86_64", "amd64"], "amr64"]) | junk,
    "groups": st.sampled_from(["web", ["web", "db"], ["Web"]]) | junk,
    "affinity": st.sampled_from(["db@pool", [{"group": "db"}, "web"], {"over": "node"}]) | junk,
    "anti_affinity": st.sampled_from(["web", {"group": "db", "over": "rack"}]) | junk,
    "spread": st.sampled_from(["pool", {"over": "region", "at_most": 2}, {"at_most": 0}]) | junk,
    "duration": amounts,
    "deadline": st.sampled_from(["2h", "2026-12-01T08:00:00+08:00", "2026-12-01T08:00:00"]) | junk,
    "start_after": st.sampled_from([90, "2026-12-01T08:00:00Z", "noon"]) | junk,
    "budget_per_hour": st.sampled_from([0, 0.5, -1, "1"]) | junk,
    "reliability": st.sampled_from([0.99, 1, 0, 2]) | junk,
    "interruptible": st.booleans() | junk,
    "max_latency": st.sampled_from(["20ms", 20]) | junk,
}
documents = st.fixed_dictionaries(
    {},
    optional={
        **placement,
        "name": st.sampled_from(["train", "a.b-c_d", "No"]) | junk,
        "run": st.just("true") | junk,
        "setup": st.just("true") | junk,
        "resources": resources | junk,
        "workdir": st.just(".") | junk,
        "envs": st.dictionaries(st.sampled_from(["A", "B1", "_c", "2d"]), junk, max_size=2) | junk,
        "secrets": st.lists(st.sampled_from(["S", "T", "3U"]), max_size=2) | junk,
        "file_mounts": st.dictionaries(words, words, max_size=2) | junk,
        "outputs": st.lists(words, max_size=2) | junk,
        "retries": st.integers(-1, 101) | junk,
        "timeout": st.sampled_from([90, "10m", "2h", "never"]) | junk,
        "near": st.sampled_from(["cn-north", "@39.9,116.4", "x/edge", "x/nowhere"]) | junk,
        "tier": st.sampled_from(["high", "low", "hi"]) | junk,
        "policy": st.sampled_from(["cheapest", "nearest", "balanced", "best"]) | junk,
        "weights": st.dictionaries(st.sampled_from(["cost_per_hour", "distance_km", "x"]), junk) | junk,
        "num_nodes": st.integers(0, 3),
        "service": st.fixed_dictionaries({}, optional={"replicas": st.integers(0, 3) | junk}) | junk,
        "components": components | junk,
        "links": links | junk,
    },
)


def parsed(document: object) -> Task | None:
    """Return the task, or None; to plan more is accepted than to run, and never less."""
    try:
        return parse_task(document, plan=True)
    except InvalidInputError as error:
        if not error.fields:
            raise
        return None


@settings(max_examples=400, deadline=None)
@given(documents | junk)
def test_any_document_is_a_task_or_is_refused_by_field(document: Any) -> None:
    task = parsed(document)
    if task is not None:
        assert not list(VALIDATOR.iter_errors(document)), "the schema refuses what the parser accepts"


@settings(max_examples=200, deadline=None)
@given(documents)
def test_what_was_accepted_is_accepted_again_after_the_wire(document: Any) -> None:
    task = parsed(document)
    if task is not None:
        again = msgspec.json.decode(msgspec.json.encode(task), type=Task)
        assert again == task
        assert parse_task(msgspec.to_builtins(again), plan=True) == task
        demand = deconstruct(again, JobId("job_1"), ProjectId("p"), 0.0)
        parts = deconstruct_graph(again, ProjectId("p"), 0.0).parts
        assert [part.name for part in parts] == [part.name for part in task.components]
        for alternative in (*demand.alternatives, *(part.demand.alternatives[0] for part in parts)):
            assert alternative.resources.cpu_millis > 0
            assert alternative.resources.memory_mib > 0


clean = st.fixed_dictionaries(
    {"run": st.just("true")},
    optional={
        "name": st.just("train"),
        "retries": st.integers(0, 100),
        "timeout": st.sampled_from([90, "10m"]),
        "tier": st.sampled_from(["high", "medium", "low"]),
        "outputs": st.just(["out/*"]),
        "resources": st.just({"cpus": "2+", "memory": 4}),
    },
)
faults = st.lists(
    st.sampled_from(
        [
            ("name", "Not A Name"),
            ("retries", -1),
            ("timeout", "soon"),
            ("tier", "best"),
            ("outputs", ["/etc"]),
            ("envs", {"1X": "a"}),
            ("service", {"replicas": 1}),
            ("wrokdir", "."),
        ]
    ),
    unique_by=lambda fault: fault[0],
    min_size=1,
)


@settings(max_examples=200, deadline=None)
@given(clean, faults)
def test_no_problem_hides_another(document: dict[str, object], planted: list[tuple[str, object]]) -> None:
    try:
        parse_task({**document, **dict(planted)})
    except InvalidInputError as error:
        named = {problem.field.split(".")[0].split("[")[0] for problem in error.fields}
        assert named == {field for field, _ in planted}
    else:
        raise AssertionError("a planted fault was accepted")
