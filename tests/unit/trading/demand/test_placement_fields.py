"""Where and when a task may run: every field is read, and asks of the decision what it says."""

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from yunhe.kernel.errors import InvalidInputError
from yunhe.kernel.ids import JobId, ProjectId
from yunhe.scheduling.decision.model import Affinity, Domain, Spread
from yunhe.trading.demand.deconstruct import deconstruct
from yunhe.trading.demand.model import Task
from yunhe.trading.demand.parse import parse_task, parse_yaml
from yunhe.trading.demand.placement_fields import PLACEMENT_FIELDS, TAKEN_BACK

NOW = 1_000_000.0
MORNING = "2026-12-01T08:00:00+08:00"
MORNING_AT = datetime(2026, 12, 1, tzinfo=UTC).timestamp()
NEAR = {"near": "@39.9,116.4"}

CASES: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"residency": "cn"}, {"residency": ("cn",)}),
    ({"residency": ["cn-north", "eu"]}, {"residency": ("cn-north", "eu")}),
    ({"where": {"disk": "ssd"}}, {"where": ("disk=ssd",)}),
    ({"where": ["disk=ssd", "topology.io/zone!=b"]}, {"where": ("disk=ssd", "topology.io/zone!=b")}),
    ({"tolerations": ["gpu=only", "maintenance"]}, {"tolerations": ("gpu=only", "maintenance")}),
    ({"architecture": "aarch64"}, {"isa": ("arm64",)}),
    ({"architecture": ["x86_64", "amd64", "riscv64"]}, {"isa": ("amd64", "riscv64")}),
    ({"groups": "web"}, {"groups": ("web",)}),
    ({"affinity": "db@pool"}, {"affinity": (Affinity("db", Domain.POOL),)}),
    (
        {"affinity": [{"group": "db"}], "anti_affinity": {"group": "web", "over": "region"}},
        {"affinity": (Affinity("db"), Affinity("web", Domain.REGION, apart=True))},
    ),
    ({"spread": "pool", "service": {"replicas": 2}}, {"spread": Spread(Domain.POOL, 1)}),
    ({"spread": "pool", "groups": ["web"]}, {"spread": Spread(Domain.POOL, 1), "groups": ("web",)}),
    (
        {"spread": {"over": "region", "at_most": 2}, "num_nodes": 3},
        {"spread": Spread(Domain.REGION, 2), "members": 3},
    ),
    ({"duration": "90m"}, {"run_s": 5400.0}),
    ({"deadline": "2h"}, {"deadline_at": NOW + 7200}),
    ({"deadline": MORNING}, {"deadline_at": MORNING_AT}),
    ({"start_after": 90}, {"not_before": NOW + 90}),
    ({"start_after": "2026-12-01T00:00:00Z"}, {"not_before": MORNING_AT}),
    ({"budget_per_hour": 0.5}, {"budget_per_hour_micros": 500_000}),
    ({"budget_per_hour": 0}, {"budget_per_hour_micros": 0}),
    ({"reliability": 0.99}, {"reliability_min": 0.99}),
    ({"interruptible": True}, {"interruptible": True, "tolerations": TAKEN_BACK}),
    ({"resources": {"use_spot": True}}, {"interruptible": True, "tolerations": TAKEN_BACK}),
    (
        {"interruptible": True, "tolerations": "gpu"},
        {"interruptible": True, "tolerations": ("gpu", *TAKEN_BACK)},
    ),
    ({"max_latency": "20ms", **NEAR}, {"max_latency_ms": 20.0}),
]


@pytest.mark.parametrize(("document", "asked"), CASES, ids=",".join)
def test_a_field_asks_for_what_it_says(document: dict[str, Any], asked: dict[str, Any]) -> None:
    task = parse_task({"run": "true", **document}, plan=True)
    assert parse_task(msgspec.json.decode(msgspec.json.encode(task)), plan=True) == task
    plain = deconstruct(Task(run="true", near=document.get("near")), JobId("j"), ProjectId("p"), NOW)
    demand = deconstruct(task, JobId("j"), ProjectId("p"), NOW)
    changed = {
        name: getattr(demand, name)
        for name in demand.__struct_fields__
        if getattr(demand, name) != getattr(plain, name)
    }
    assert {**asked, **changed} == {**changed, **asked}
    assert set(asked) <= set(changed)


def test_every_placement_field_has_a_case() -> None:
    assert set(PLACEMENT_FIELDS) <= {name for document, _ in CASES for name in document}


def test_a_time_need_not_be_in_quotes() -> None:
    task = parse_yaml(f"run: 'true'\ndeadline: {MORNING}\nstart_after: 2026-12-01 00:00:00Z\n")
    demand = deconstruct(task, JobId("j"), ProjectId("p"), NOW)
    assert (demand.deadline_at, demand.not_before) == (MORNING_AT, MORNING_AT)


@pytest.mark.parametrize(
    ("document", "field", "said"),
    [
        ({"residency": "cn north"}, "residency", "must be a region such as cn-north"),
        ({"where": ["disk"]}, "where[0]", "must be key=value"),
        ({"tolerations": "a b"}, "tolerations", "must be key, key=value, or *"),
        ({"architecture": "amr64"}, "architecture", "did you mean 'arm64'"),
        ({"groups": ["Web"]}, "groups", "did you mean 'web'"),
        ({"groups": ["web", ""]}, "groups", "without a name"),
        ({"affinity": "db@rack"}, "affinity.over", "must be one of node, pool, region"),
        ({"anti_affinity": [{"over": "node"}]}, "anti_affinity[0].group", "is missing"),
        ({"spread": "pool"}, "spread", "needs several members"),
        ({"deadline": "2026-12-01T08:00:00"}, "deadline", "needs its time zone"),
        ({"deadline": "2026-02-30T08:00:00Z"}, "deadline", "must be a day that there is"),
        ({"deadline": "2026-12-01T25:00:00Z"}, "deadline", "must be a time of day"),
        ({"deadline": "2026-12-01"}, "deadline", "must be like 2h"),
        ({"start_after": "noon"}, "start_after", "is not a duration"),
        ({"budget_per_hour": -1}, "budget_per_hour", "must be from 0"),
        ({"reliability": 0}, "reliability", "must be more than 0 to 1"),
        ({"interruptible": "yes"}, "interruptible", "must be true or false"),
        ({"max_latency": "20ms"}, "near", "is needed with max_latency"),
        ({"max_latency": 20, **NEAR}, "max_latency", "needs its unit"),
        ({"policy": "lowest-latency"}, "near", "is needed under policy lowest-latency"),
        ({"zones": ["cn"]}, "zones", "did you mean 'residency'"),
        ({"labels": {"disk": "ssd"}}, "labels", "did you mean 'where'"),
        ({"resources": {"labels": {"a": "b"}}}, "resources.labels", "with the task's where"),
    ],
)
def test_a_value_that_cannot_hold_is_refused_by_field(
    document: dict[str, Any], field: str, said: str
) -> None:
    with pytest.raises(InvalidInputError) as refused:
        parse_task({"run": "true", **document}, plan=True)
    assert said in {problem.field: str(problem) for problem in refused.value.fields}[field]
