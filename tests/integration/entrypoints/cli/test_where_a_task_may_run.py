"""Through the CLI on three real hosts with declared facts: each field keeps a task from where it may not run."""

import math
from collections.abc import Generator, Sequence
from contextlib import ExitStack
from typing import Any

import pytest

from integration.entrypoints.cli.conftest import Shell, free_port
from integration.entrypoints.cli.placement_cases import SMALL, explained, planned, said
from support.agent_roots import agent_root
from support.repository import REPOSITORY

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
