"""Through the CLI on three real hosts with declared facts: each field keeps a task from where it may not run."""

import math
import os
from collections.abc import Generator, Sequence
from contextlib import ExitStack
from typing import Any

import pytest

from integration.entrypoints.cli.conftest import Shell, free_port
from integration.entrypoints.cli.placement_cases import (
    CASES,
    SHOWN_APART,
    SMALL,
    explained,
    planned,
    said,
)
from support.agent_roots import agent_root
from support.repository import REPOSITORY
from yunhe.trading.demand.placement_fields import PLACEMENT_FIELDS

NEAR = ("--near", "@39.9,116.4")
HOSTS: dict[str, tuple[str, ...]] = {
    "east": (
        *("--place", "cn-north/central@39.9,116.4", "--speed", "1.0", "--reliability", "0.9"),
        *("--label", "disk=hdd", "--watts", "100", "--carbon", "600", "--price", "cpu=0.01/h"),
    ),
    "west": (
        *("--place", "eu-west/central@48.9,2.3", "--speed", "2.0", "--reliability", "0.999"),
        *("--label", "disk=ssd", "--watts", "100", "--carbon", "100", "--price", "cpu=0.05/h"),
    ),
    "spare": (
        *("--place", "cn-south/central@23.1,113.3", "--speed", "1.5", "--reliability", "0.99"),
        *(
            "--label",
            "disk=ssd",
            "--taint",
            "spot",
            "--watts",
            "100",
            "--carbon",
            "50",
            "--price",
            "cpu=0.02/h",
        ),
    ),
}

WAITS: dict[str, tuple[tuple[str, ...], tuple[str, ...], set[str]]] = {
    "residency": ((), ("--residency", "us"), {"resident"}),
    "where": ((), ("--where", "disk=tape"), {"labelled", "tolerated"}),
    "level": ((), ("--level", "edge"), {"level"}),
    "architecture": ((), ("--architecture", "riscv64"), {"architecture", "tolerated"}),
    "affinity": ((), ("--affinity", "nobody@pool"), {"together", "tolerated"}),
    "anti_affinity": (("--pool", "west"), ("--anti-affinity", "web"), {"together", "named"}),
    "deadline": (("--duration", "4h"), ("--deadline", "1h"), {"timely", "tolerated"}),
    "duration": (("--deadline", "4h"), ("--duration", "40h"), {"timely", "tolerated"}),
    "budget_per_hour": ((), ("--budget-per-hour", "0.0001"), {"affordable", "tolerated"}),
    "reliability": ((), ("--reliability", "0.99999"), {"reliable", "tolerated"}),
    "spread": (("--pool", "west", "--group", "web"), ("--spread", "pool"), {"together", "named"}),
    "max_latency": (("--near", "@-40,-60"), ("--max-latency", "1ms"), {"reachable", "tolerated"}),
}
"""Field → what is asked for without it, with it, and the rules that then refuse the pools."""


@pytest.fixture(scope="module")
def user(tmp_path_factory: pytest.TempPathFactory) -> Generator[Shell]:
    shell = Shell(tmp_path_factory.mktemp("three") / "home", REPOSITORY)
    with ExitStack() as roots:
        root = {name: roots.enter_context(agent_root()) for name in ("first", *HOSTS)}
        up = shell("up", "--port", str(free_port()), "--agent-root", str(root["first"]), timeout_s=110.0)
        assert up.returncode == 0, up.stderr
        try:
            said(shell, "pool", "rm", "this-machine", "--yes")
            for name, facts in HOSTS.items():
                said(shell, "pool", "add", "local", "--name", name, "--option", f"root={root[name]}", *facts)
            said(shell, "run", "--detach", "--group", "web", "--pool", "west", *SMALL, "--", "sleep 600")
            yield shell
        finally:
            shell("down")


def goes(shell: Shell, *options: str) -> str:
    decision = planned(shell, *options)
    assert decision["type"] == "placed", decision
    return decision["candidates"][0]["pool_name"]


def rules(decision: dict[str, Any]) -> set[str]:
    return {no["rule"] for no in decision["rejected"]}


@pytest.mark.parametrize("field", WAITS)
def test_a_task_that_fits_without_a_field_waits_with_it_and_explain_names_the_rule(
    user: Shell, field: str
) -> None:
    without, with_it, expected = WAITS[field]
    assert planned(user, *without)["type"] == "placed"
    found = explained(user, *without, *with_it)
    assert found["decision"]["type"] == "waiting"
    assert rules(found["decision"]) == expected
    assert found["job"]["reason"]


def test_no_field_is_left_out() -> None:
    assert WAITS.keys() | SHOWN_APART == CASES.keys() | SHOWN_APART == {*PLACEMENT_FIELDS, "level"}


def test_a_job_is_held_until_it_may_start_and_explain_names_the_field(user: Shell) -> None:
    assert planned(user)["type"] == "placed"
    held = explained(user, "--start-after", "1h", page=True)
    assert "held until" in held["job"]["reason"]
    assert "(start_after)" in held["page"]


def test_jobs_of_a_group_are_spread_over_pools(user: Shell) -> None:
    """One of the group runs in west; it is the fastest, and has room."""
    task = ("--policy", "fastest", "--group", "web", "--toleration", "spot")
    assert goes(user, *task) == "west"
    assert goes(user, *task, "--spread", "pool") == "spare"
    assert goes(user, *task, "--spread", "region") == "spare"


@pytest.mark.parametrize("allowing", [("--toleration", "spot"), ("--interruptible",), ("--use-spot",)])
def test_a_tainted_pool_takes_only_what_tolerates_it(user: Shell, allowing: Sequence[str]) -> None:
    found = explained(user, "--pool", "spare")
    assert rules(found["decision"]) == {"tolerated", "named"}
    assert "is tainted spot" in found["job"]["reason"]
    assert goes(user, "--pool", "spare", *allowing) == "spare"


def test_a_deadline_that_only_the_faster_pool_meets_decides(user: Shell) -> None:
    assert goes(user, "--policy", "cheapest", "--duration", "2h") == "east"
    assert goes(user, "--policy", "cheapest", "--duration", "2h", "--deadline", "90m") == "west"


def test_a_zone_that_excludes_the_cheapest_decides(user: Shell) -> None:
    assert goes(user, "--policy", "cheapest") == "east"
    assert goes(user, "--policy", "cheapest", "--residency", "eu") == "west"


def test_labels_and_groups_decide_where(user: Shell) -> None:
    assert goes(user, "--policy", "cheapest", "--where", "disk=ssd") == "west"
    assert goes(user, "--policy", "cheapest", "--where", "disk!=hdd") == "west"
    assert goes(user, "--policy", "cheapest", "--affinity", "web@pool") == "west"
    assert goes(user, "--policy", "fastest", "--anti-affinity", "web@region") == "east"


def test_the_job_itself_goes_where_its_fields_say(user: Shell) -> None:
    done = user.inside("run", "--yes", *SMALL, "--where", "disk=ssd", "--name", "there", "--", "true")
    assert done.returncode == 0, done.stderr
    assert " on west" in said(user, "explain", "there")


def test_every_policy_chooses_the_least_on_three_real_hosts(user: Shell) -> None:
    """By hand: two hours of half a core at speed 1, failures make work start again."""
    task = ("--toleration", "spot", "--duration", "2h", *NEAR)
    said_of = {"east": (1.0, 0.9), "west": (2.0, 0.999), "spare": (1.5, 0.99)}
    hours = {name: ((1 / r) ** (2 / speed) - 1) / math.log(1 / r) for name, (speed, r) in said_of.items()}
    price = {"east": 0.01, "west": 0.05, "spare": 0.02}
    carbon = {"east": 600, "west": 100, "spare": 50}
    cores = len(os.sched_getaffinity(0))
    least = {
        "cheapest": min(price, key=lambda name: price[name] * hours[name]),
        "fastest": min(hours, key=lambda name: hours[name]),
        "greenest": min(carbon, key=lambda name: carbon[name] * hours[name]),
        "nearest": "east",
        "lowest-latency": "east",
    }
    assert least == {**least, "cheapest": "east", "fastest": "west", "greenest": "spare"}
    assert {policy: goes(user, "--policy", policy, *task) for policy in least} == least
    terms = {
        one["pool_name"]: one["terms"]["run_s"]
        for one in planned(user, "--policy", "fastest", *task)["candidates"]
    }
    assert terms == pytest.approx({name: value * 3600 for name, value in hours.items()}, rel=1e-3)
    away = {"east": 0.0, "west": km((39.9, 116.4), (48.9, 2.3)), "spare": km((39.9, 116.4), (23.1, 113.3))}
    grams = {name: 0.1 / cores * 0.5 * hours[name] * carbon[name] for name in hours}
    money = {
        name: 0.5 * price[name] * hours[name]  # what it costs
        + hours[name]  # an hour sooner is worth 1
        + grams[name] * 0.0001  # 100 for a tonne
        + away[name] * (0.0001 + 0.015 * 0.001)  # the distance, and 0.015 ms of latency for a kilometre
        for name in hours
    }
    assert min(money, key=lambda name: money[name]) == "spare", "neither the cheapest nor the fastest"
    balanced = planned(user, "--policy", "balanced", *task)["candidates"]
    assert [one["pool_name"] for one in balanced] == sorted(money, key=lambda name: money[name])
    assert {one["pool_name"]: one["score"] for one in balanced} == pytest.approx(money, rel=2e-3)
    slow = ("--duration", "1m")  # so short that its time hardly counts: the near and cheap one wins
    assert goes(user, "--policy", "balanced", *task, *slow) == "east"


def km(a: tuple[float, float], b: tuple[float, float]) -> float:
    """By the spherical law of cosines; the core uses haversines."""
    (lat1, lon1), (lat2, lon2) = ((math.radians(x), math.radians(y)) for x, y in (a, b))
    turn = math.sin(lat1) * math.sin(lat2) + math.cos(lat1) * math.cos(lat2) * math.cos(lon1 - lon2)
    return 6371.0 * math.acos(turn)
