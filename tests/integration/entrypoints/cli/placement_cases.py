"""What each field of a task asks of one pool: a task that fits without it waits with it, and the rule is named."""

import time
from typing import Any, NamedTuple

import msgspec

from integration.entrypoints.cli.conftest import Shell

SMALL = ("--cpus", "0.5", "--memory", "64MB")
FACTS = (
    *("--place", "cn-north/central@39.9,116.4", "--speed", "1.0", "--reliability", "0.9"),
    *("--label", "disk=hdd", "--watts", "100", "--carbon", "600"),
)


class FieldCase(NamedTuple):
    """Options of a task that fits, those that keep it waiting, and the rule that then says no."""

    fits: tuple[str, ...]
    waits: tuple[str, ...]
    rule: str


CASES = {
    "residency": FieldCase(("--residency", "cn"), ("--residency", "us"), "resident"),
    "where": FieldCase(("--where", "disk=hdd"), ("--where", "disk!=hdd"), "labelled"),
    "level": FieldCase(("--level", "central"), ("--level", "edge"), "level"),
    "architecture": FieldCase(("--architecture", "x86_64"), ("--architecture", "riscv64"), "architecture"),
    "affinity": FieldCase(("--affinity", "web@pool"), ("--affinity", "nobody@pool"), "together"),
    "anti_affinity": FieldCase(("--anti-affinity", "nobody"), ("--anti-affinity", "web@pool"), "together"),
    "deadline": FieldCase(("--duration", "2h"), ("--duration", "2h", "--deadline", "1h"), "timely"),
    "budget_per_hour": FieldCase(("--budget-per-hour", "9"), ("--budget-per-hour", "0.0001"), "affordable"),
    "reliability": FieldCase(("--reliability", "0.5"), ("--reliability", "0.9999"), "reliable"),
    "duration": FieldCase(("--deadline", "4h"), ("--deadline", "4h", "--duration", "40h"), "timely"),
    "spread": FieldCase(("--group", "web"), ("--group", "web", "--spread", "pool"), "together"),
    "max_latency": FieldCase(
        ("--near", "@39,116", "--max-latency", "5ms"),
        ("--near", "@-40,-60", "--max-latency", "5ms"),
        "reachable",
    ),
}

SHOWN_APART = {"groups", "tolerations", "interruptible", "start_after"}
"""Fields that allow more instead of less, that others are judged by, or that hold a job instead of refusing pools."""


def said(shell: Shell, *words: str) -> str:
    done = shell.inside(*words)
    assert done.returncode == 0, f"{' '.join(words)}: {done.stdout}{done.stderr}"
    return done.stdout


def planned(shell: Shell, *options: str) -> dict[str, Any]:
    return msgspec.json.decode(said(shell, "plan", "--output", "json", *SMALL, *options, "--", "true"))


def explained(shell: Shell, *options: str, page: bool = False) -> dict[str, Any]:
    """Submit a job, wait until the placer has said why it waits, and return the explanation; it is stopped again.

    With *page*, what a person reads is there too.
    """
    words = ("run", "--detach", "--output", "json", *SMALL, *options, "--", "true")
    job = msgspec.json.decode(said(shell, *words))["id"]
    found: dict[str, Any] = {}
    try:
        for _ in range(200):
            found = msgspec.json.decode(said(shell, "explain", job, "--output", "json"))
            if found["job"].get("reason"):
                break
            time.sleep(0.05)
        assert found["job"]["state"] == "pending", found["job"]
        return {**found, "page": " ".join(said(shell, "explain", job).split())} if page else found
    finally:
        said(shell, "stop", job)


def check_every_field(shell: Shell, pool: str) -> None:
    """Hold a pool with ``FACTS`` and a price of more than 0.0002 per core and hour to every case."""
    said(shell, "run", "--detach", "--group", "web", "--pool", pool, *SMALL, "--", "sleep 600")
    for field, case in CASES.items():
        assert planned(shell, "--pool", pool, *case.fits)["type"] == "placed", field
        decision = explained(shell, "--pool", pool, *case.waits)["decision"]
        rules = {no["pool_name"]: no["rule"] for no in decision["rejected"]}
        assert rules[pool] == case.rule, f"{field}: {decision['rejected']}"
    said(shell, "pool", "set", pool, "--taint", "spot")
    decision = explained(shell, "--pool", pool)["decision"]
    assert "is tainted spot" in str(decision["rejected"])
    for allowing in (("--toleration", "spot"), ("--interruptible",)):
        assert planned(shell, "--pool", pool, *allowing)["type"] == "placed", allowing
    said(shell, "pool", "set", pool, "--unset", "taints")
    assert planned(shell, "--pool", pool)["type"] == "placed"
    held = explained(shell, "--pool", pool, "--start-after", "1h", page=True)
    assert "held until" in held["job"]["reason"]
    assert "(start_after)" in held["page"]
