"""An injected change of every kind of fact is in the next period's decision, and none is older than its bound."""

import http.server
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from integration.control.plugins.processes import until
from integration.entrypoints.api.serving import Served, serving
from integration.entrypoints.cli.conftest import Shell
from yunhe.control.pools.facts import FACTS
from yunhe.control.pools.model import FactChanges, PoolSpec
from yunhe.control.pools.monitor import LOOK_EVERY_S
from yunhe.entrypoints.client import Client
from yunhe.infrastructure.contract.kind import Target
from yunhe.infrastructure.contract.model import NodeSystem
from yunhe.kernel.carbon import CarbonSeries
from yunhe.kernel.ids import NodeId
from yunhe.kernel.money import Prices
from yunhe.kernel.places import Place
from yunhe.kernel.resources import Accelerators, Resources
from yunhe.scheduling.decision.model import Placed, Policy
from yunhe.scheduling.perception.model import FactBounds
from yunhe.trading.applications.model import Submission
from yunhe.trading.demand.model import ResourceSpec, Task

BOUNDS = FactBounds(look_s=6.0, feed_s=8.0)
PERIOD_S = 2 * LOOK_EVERY_S + 0.5
"""The longest time from the end of one look to the end of the next, on a machine that has other things to do."""
NODE = NodeId("fake-1")
TWO_CORES = Resources(cpu_millis=2000, memory_mib=2048, disk_mib=1024)


def devices(number: int) -> Resources:
    return Resources(8000, 16_384, 102_400, (Accelerators("A100", number * 1000),))


def price(cents: int) -> Prices:
    return Prices(cpu_core_hour_micros=cents * 10_000)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Generator[Served]:
    with serving(tmp_path_factory.mktemp("fresh"), fact_bounds=BOUNDS) as served:
        yield served


@pytest.fixture
def client(served: Served) -> Generator[Client]:
    """Give an operator with two pools that are alike, but that alder is the cheaper."""
    with served.client() as client:
        for name, cents in (("alder", 4), ("birch", 5)):
            spec = PoolSpec(name=name, kind="fake", target=name, prices=price(cents))
            list(client.add_pool(spec))
        yield client
        for name in ("alder", "birch"):
            served.engines.site(Target(address=name)).pool.reported.clear()
            client.remove_pool(name, force=True)


class Change(NamedTuple):
    """A kind of fact, and what happens to it."""

    name: str
    task: dict[str, Any]
    """What the task asks for beside a core."""
    before: tuple[FactChanges, FactChanges]
    """What is told of alder, which then wins, and of birch, which does after the change."""
    told: FactChanges | None = None
    """Of alder."""
    reported: dict[str, Any] | None = None
    """By the node of alder; before the change both nodes report ``reports``."""
    reports: dict[str, Any] | None = None
    done: Callable[[Client], object] | None = None
    """What an operator does with alder."""


def both(**told: Any) -> tuple[FactChanges, FactChanges]:
    return FactChanges(**told), FactChanges(**told)


def carbon(grams: float) -> CarbonSeries:
    return CarbonSeries(g_per_kwh=(grams,))


def _raise_price(client: Client) -> None:
    client.set_prices("alder", price(6))


def _drain(client: Client) -> None:
    client.drain_pool("alder")


def _cordon(client: Client) -> None:
    client.cordon_node("alder", NODE)


GREEN = {"speed": 1.0, "watts_full": 100.0, "carbon": carbon(400)}
CHANGES = [
    Change("speed", {"policy": Policy.FASTEST}, both(speed=2.0), told=FactChanges(speed=1.0)),
    Change("wait", {"policy": Policy.FASTEST}, both(speed=2.0, wait_s=1.0), told=FactChanges(wait_s=9e5)),
    Change("watts", {"policy": Policy.GREENEST}, both(**GREEN), told=FactChanges(watts_full=200)),
    Change(
        "idle watts",
        {"policy": Policy.GREENEST},
        both(**GREEN, watts_idle=50.0),
        told=FactChanges(watts_idle=0.0),
    ),
    Change("pue", {"policy": Policy.GREENEST}, both(**GREEN), told=FactChanges(pue=1.5)),
    Change("carbon", {"policy": Policy.GREENEST}, both(**GREEN), told=FactChanges(carbon=carbon(500))),
    Change(
        "energy price",
        {"policy": Policy.CHEAPEST},
        both(speed=1.0, watts_full=100.0),
        told=FactChanges(energy_price_micros_per_kwh=10**9),
    ),
    Change("reliability", {"reliability": 0.9}, both(reliability=0.99), told=FactChanges(reliability=0.5)),
    Change(
        "region",
        {"residency": ("cn-north",)},
        both(place=Place("cn-north")),
        told=FactChanges(place=Place("us")),
    ),
    Change(
        "coordinates",
        {"policy": Policy.NEAREST, "near": "@40,116"},
        both(place=Place("", 41.0, 116.0)),
        told=FactChanges(place=Place("", -41.0, 116.0)),
    ),
    Change(
        "label",
        {"where": ("disk=ssd",)},
        both(labels={"disk": "ssd"}),
        told=FactChanges(labels={"disk": "hdd"}),
    ),
    Change("taint", {}, both(), told=FactChanges(taints=("team=red",))),
    Change("unset", {"policy": Policy.FASTEST}, both(speed=2.0), told=FactChanges(unset=("speed",))),
    Change(
        "architecture",
        {"architecture": ("amd64",)},
        both(),
        reports={"isa": "amd64"},
        reported={"isa": "arm64"},
    ),
    Change(
        "label of a node",
        {"where": ("rack=b",)},
        both(),
        reports={"labels": {"rack": "b"}},
        reported={"labels": {"rack": "c"}},
    ),
    Change("taint of a node", {}, both(), reports={}, reported={"taints": ("gpu",)}),
    Change(
        "kernel of a node",
        {"where": ("node/kernel=6.1",)},
        both(),
        reports={"system": NodeSystem(kernel="6.1")},
        reported={"system": NodeSystem(kernel="5.4")},
    ),
    Change("size of a node", {"cpus": 4}, both(), reports={}, reported={"total": TWO_CORES}),
    Change(
        "devices of a node",
        {"accelerators": "A100:2"},
        both(),
        reports={"total": devices(2)},
        reported={"total": devices(1)},
    ),
    Change("readiness of a node", {}, both(), reports={}, reported={"ready": False, "reason": "it burns"}),
    Change("price", {}, both(), done=_raise_price),
    Change("drained", {}, both(), done=_drain),
    Change("cordoned", {}, both(), done=_cordon),
]
NO_DECISION_GOES_BY = {"site"}
"""Where a pool meets the network: it counts once links are known."""


def test_every_fact_that_can_be_told_is_changed_by_a_case() -> None:
    told = {name for change in CHANGES for name in msgspec.to_builtins(change.told or FactChanges())}
    assert told - {"unset"} == {*FACTS} - NO_DECISION_GOES_BY


def winner(client: Client, asked: dict[str, Any]) -> str:
    rest = {name: value for name, value in asked.items() if name not in {"cpus", "accelerators"}}
    resources = ResourceSpec(cpus=asked.get("cpus", 1), accelerators=asked.get("accelerators"))
    plan = client.plan(Submission(task=Task(run="true", resources=resources, **rest)))
    return plan.candidates[0].pool_name if isinstance(plan, Placed) else "none"


def settled(client: Client, asked: dict[str, Any], pool: str) -> float:
    """Wait until a pool is chosen; return how long that took."""
    began = time.monotonic()
    until(lambda: winner(client, asked) == pool)
    return time.monotonic() - began


@pytest.mark.feature(
    "S04",
    file="src/yunhe/control/pools/store.py",
    old="NODES.update().where(NODES.c.id == key).values(**values)",
    new='NODES.update().where(NODES.c.id == key).values(used=values["used"])',
)
@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.name.replace(" ", "-"))
def test_an_injected_change_is_in_the_next_period_s_decision(
    served: Served, client: Client, change: Change
) -> None:
    sites = {name: served.engines.site(Target(address=name)).pool for name in ("alder", "birch")}
    for name, told in zip(sites, change.before, strict=True):
        if told != FactChanges():
            client.set_pool_facts(name, told)
        sites[name].reported[NODE] = change.reports or {}
    settled(client, change.task, "alder")
    if change.reported is None:
        if change.told is not None:
            client.set_pool_facts("alder", change.told)
        if change.done is not None:
            change.done(client)
        assert winner(client, change.task) == "birch"
    else:
        sites["alder"].reported[NODE] = change.reported
        after_one_period(client)
        assert winner(client, change.task) == "birch"


def after_one_period(client: Client) -> None:
    """Wait until alder was looked at once from begin to end; a look that is under way may have begun before."""
    for _ in range(2):
        seen_at = client.pool("alder").seen_at
        until(lambda seen_at=seen_at: client.pool("alder").seen_at != seen_at, within_s=60.0)


@contextmanager
def feed() -> Generator[tuple[str, Callable[[str], None]]]:
    """Serve a carbon feed; its text can be changed."""
    said = ["400"]

    class Answer(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if said[0] else 503)
            self.end_headers()
            self.wfile.write(said[0].encode())

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - its name
            """Say nothing."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answer) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/carbon.csv", lambda text: said.__setitem__(0, text)
        finally:
            server.shutdown()
            thread.join()


def test_a_feed_is_read_again_and_again_and_is_unknown_once_it_is_too_old(client: Client) -> None:
    asked = {"policy": Policy.GREENEST}
    with feed() as (address, say):
        for name, grams in (("alder", CarbonSeries(feed=address)), ("birch", carbon(450))):
            client.set_pool_facts(name, FactChanges(speed=1.0, watts_full=100.0, carbon=grams))
        assert settled(client, asked, "alder") <= PERIOD_S
        say("hour,g_per_kwh\n0,900\n")
        assert settled(client, asked, "birch") <= BOUNDS.feed_s / 4 + PERIOD_S
        say("")  # it answers 503
        until(lambda: bool(_carbon_fact(client).problem))
        assert _carbon_fact(client).known
        assert _carbon_fact(client).source == "reported"
        until(lambda: not _carbon_fact(client).known, within_s=BOUNDS.feed_s + PERIOD_S)
        assert "503" in _carbon_fact(client).problem


def _carbon_fact(client: Client) -> Any:
    return next(fact for fact in client.pool_facts("alder").facts if fact.name == "carbon")


def test_no_fact_is_older_than_its_bound_while_pools_answer(client: Client) -> None:
    ages: list[float] = []
    seen: set[float] = set()
    until_s = time.monotonic() + 3 * LOOK_EVERY_S
    while time.monotonic() < until_s:
        known = client.pool_facts("alder")
        looked = [fact for fact in known.facts if fact.node]
        assert all(fact.known for fact in looked)
        ages += [fact.age_s for fact in looked]
        seen.add(round(known.taken_at - looked[0].age_s, 3))
        time.sleep(0.2)
    assert max(ages) <= BOUNDS.look_s
    assert len(seen) >= 2, "looked at again in each period"


@pytest.mark.feature(
    "S04",
    file="src/yunhe/scheduling/perception/seen.py",
    old='if age_s > bounds.look_s else ""',
    new='if age_s > bounds.told_s else ""',
)
def test_what_nobody_has_looked_at_for_too_long_is_unknown_and_said_to_be(
    served: Served, client: Client, tmp_path: Path
) -> None:
    shell = Shell(tmp_path, tmp_path, {"YUNHE_URL": served.url, "YUNHE_KEY": served.key})
    task = Task(run="true", resources=ResourceSpec(cpus=1))
    faults = served.engines.site(Target(address="alder")).faults
    faults.latency_s = 60.0
    until(lambda: winner(client, {}) == "birch", within_s=BOUNDS.look_s + PERIOD_S)
    assert client.pool("alder").state == "ready", "it is the age that counts, not yet the silence"
    plan = client.plan(Submission(task=task))
    assert isinstance(plan, Placed)
    assert not any(candidate.pool_name == "alder" for candidate in plan.candidates)
    shown = shell.inside("pool", "show", "alder").stdout
    assert "too old" in shown
    client.drain_pool("birch")
    job = client.submit(Submission(task=task))
    until(lambda: "what is older than" in " ".join(shell.inside("explain", job.id).stdout.split()))
    client.stop(job.id)
    faults.latency_s = 0.0


def test_a_fact_that_was_told_too_long_ago_is_named_by_explain(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    home = tmp_path_factory.mktemp("told")
    with serving(home, fact_bounds=FactBounds(told_s=1.0)) as served, served.client() as client:
        spec = PoolSpec(name="alder", kind="fake", target="alder", prices=price(4))
        list(client.add_pool(spec))
        client.set_pool_facts("alder", FactChanges(speed=2.0, reliability=0.99))
        shell = Shell(tmp_path, tmp_path, {"YUNHE_URL": served.url, "YUNHE_KEY": served.key})

        def explained(**asked: Any) -> str:
            task = Task(run="true", resources=ResourceSpec(cpus=1), **asked)
            job = client.submit(Submission(task=task))
            until(lambda: client.job(job.id).state == "succeeded" or bool(client.job(job.id).reason))
            page = " ".join(shell.inside("explain", job.id).stdout.split())
            client.stop(job.id) if client.job(job.id).state == "pending" else None
            return page

        until(lambda: not any(fact.known for fact in client.pool_facts("alder").facts if not fact.node))
        assert "its speed was told" in (page := explained(policy=Policy.FASTEST)), page
        assert "its reliability was told" in (page := explained(reliability=0.9)), page
        page = explained()
        assert "not weighed of alder: " in page
        assert "speed (told" in page
        assert "what is older than 1" in page
