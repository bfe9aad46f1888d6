"""What an operator tells of pools: kept, shown with source and age, and weighed by the next decision."""

import time
from collections.abc import Generator
from pathlib import Path

import msgspec
import pytest

from integration.entrypoints.api.serving import Served, serving
from integration.entrypoints.cli.conftest import Shell
from yunhe.control.pools.model import FactChanges, PoolSpec
from yunhe.entrypoints.client import Client
from yunhe.kernel.carbon import CarbonSeries
from yunhe.kernel.errors import ForbiddenError, InvalidInputError
from yunhe.kernel.money import Prices
from yunhe.kernel.places import Level, Place
from yunhe.scheduling.decision.model import Placed, Policy
from yunhe.trading.accounts.model import Role
from yunhe.trading.applications.model import Submission
from yunhe.trading.demand.model import ResourceSpec, Task

SAME = Prices(cpu_core_hour_micros=50_000)


@pytest.fixture
def served(tmp_path: Path) -> Generator[Served]:
    with serving(tmp_path / "home") as served:
        yield served


@pytest.fixture
def client(served: Served) -> Generator[Client]:
    with served.client() as client:
        yield client


@pytest.fixture
def shell(served: Served, tmp_path: Path) -> Shell:
    return Shell(tmp_path, tmp_path, {"YUNHE_URL": served.url, "YUNHE_KEY": served.key})


def add(client: Client, name: str, facts: FactChanges | None = None, place: Place | None = None) -> None:
    list(
        client.add_pool(PoolSpec(name=name, kind="fake", target=name, prices=SAME, facts=facts, place=place))
    )


def chosen(client: Client, policy: Policy) -> str:
    plan = client.plan(Submission(task=Task(run="true", resources=ResourceSpec(cpus=1), policy=policy)))
    assert isinstance(plan, Placed)
    return plan.candidates[0].pool_name


def test_told_facts_are_weighed_by_the_next_decision_and_forgotten_when_unset(client: Client) -> None:
    add(client, "alder", FactChanges(speed=1.0, watts_full=100, carbon=CarbonSeries(g_per_kwh=(400,))))
    add(client, "birch", FactChanges(speed=2.0, watts_full=100, carbon=CarbonSeries(g_per_kwh=(500,))))
    assert chosen(client, Policy.FASTEST) == "birch"
    assert chosen(client, Policy.GREENEST) == "birch"  # half the time at 5/4 of the carbon
    client.set_pool_facts("alder", FactChanges(speed=4.0, carbon=CarbonSeries(g_per_kwh=(4000,))))
    assert chosen(client, Policy.FASTEST) == "alder"
    assert chosen(client, Policy.GREENEST) == "birch"
    client.set_pool_facts("alder", FactChanges(unset=("speed",)))
    assert chosen(client, Policy.FASTEST) == "birch"


def test_each_fact_has_its_source_and_age_and_what_is_not_said_stays(client: Client) -> None:
    add(client, "lab", FactChanges(speed=1.5, labels={"disk": "ssd", "rack": "b"}), place=Place("cn-north"))
    time.sleep(0.3)
    known = client.set_pool_facts("lab", FactChanges(reliability=0.999, labels={"rack": "c"})).facts
    by_name = {fact.name: fact for fact in known if not fact.node}
    assert {name: fact.value for name, fact in by_name.items()} == {
        "speed": 1.5,
        "labels": {"disk": "ssd", "rack": "c"},
        "place": {"region": "cn-north"},
        "reliability": 0.999,
    }
    assert {fact.source for fact in by_name.values()} == {"told"}
    assert by_name["reliability"].age_s < 0.3 <= by_name["speed"].age_s < 30
    client.set_pool_facts("lab", FactChanges(place=Place("cn-east"), unset=("labels.disk",)))
    pool = client.pool("lab")
    assert pool.spec.place == Place("cn-east")
    assert pool.facts["labels"].value == {"rack": "c"}


def test_a_place_may_be_said_among_the_facts_when_a_pool_is_added(client: Client) -> None:
    add(client, "lab", FactChanges(speed=1.5, place=Place("cn-north")))
    assert client.pool("lab").spec.place == Place("cn-north")


def test_a_pool_that_is_added_again_keeps_what_was_told_of_it(client: Client) -> None:
    add(client, "lab", FactChanges(speed=1.5), place=Place("cn-north"))
    add(client, "lab")
    assert client.pool("lab").facts["speed"].value == 1.5
    assert client.pool("lab").spec.place == Place("cn-north")


def test_what_cannot_be_so_is_refused_field_by_field_and_nothing_is_changed(client: Client) -> None:
    add(client, "lab", FactChanges(watts_idle=50))
    wrong = FactChanges(
        speed=0,
        reliability=1.2,
        watts_full=40,
        carbon=CarbonSeries(feed="ftp://example.org"),
        unset=("spede",),
        labels={"good": "yes"},
    )
    with pytest.raises(InvalidInputError) as refused:
        client.set_pool_facts("lab", wrong)
    fields = {problem.field: problem for problem in refused.value.fields}
    assert set(fields) == {"speed", "reliability", "watts_idle", "carbon.feed", "unset"}
    assert fields["unset"].did_you_mean == "speed"
    assert set(client.pool("lab").facts) == {"watts_idle"}


@pytest.mark.parametrize(
    ("place", "said"),
    [
        (Place("cn-north", 39.9), "needs both a latitude and a longitude"),
        (Place("", None, 116.4), "needs both a latitude and a longitude"),
        (Place("cn-north", 500.0, 1.0), "is not on Earth"),
        (Place(level=Level.EDGE), "names no place"),
    ],
)
def test_a_place_that_nobody_could_show_is_refused_when_told_and_when_added(
    client: Client, shell: Shell, place: Place, said: str
) -> None:
    add(client, "lab", place=Place("cn-north"))
    for tell in (
        lambda: client.set_pool_facts("lab", FactChanges(place=place)),
        lambda: add(client, "other", place=place),
    ):
        with pytest.raises(InvalidInputError) as refused:
            tell()
        assert [problem.field for problem in refused.value.fields] == ["place"]
        assert said in refused.value.fields[0].problem
    assert shell.inside("pool", "ls").returncode == 0
    assert client.pool("lab").spec.place == Place("cn-north")


@pytest.mark.parametrize("name", ["", "a=b", "a!"])
def test_a_label_that_no_task_could_ask_for_is_refused(client: Client, name: str) -> None:
    add(client, "lab")
    with pytest.raises(InvalidInputError) as refused:
        client.set_pool_facts("lab", FactChanges(labels={name: "x"}))
    assert [problem.field for problem in refused.value.fields] == ["labels"]


@pytest.mark.parametrize("number", ["nan", "inf"])
@pytest.mark.parametrize("option", ["--speed", "--pue", "--energy-price", "--reliability", "--watts"])
def test_a_number_that_is_none_is_refused_rather_than_lost(
    client: Client, shell: Shell, option: str, number: str
) -> None:
    add(client, "lab")
    refused = shell.inside("pool", "set", "lab", option, number)
    assert refused.returncode in {1, 2}
    assert option in refused.stderr
    assert not client.pool("lab").facts


def test_only_who_manages_pools_may_say_what_is_so_of_them(served: Served, client: Client) -> None:
    add(client, "lab")
    client.set_member("default", "ann", Role.MEMBER)
    with served.client(client.create_key("anns", user="ann").text) as ann:
        with pytest.raises(ForbiddenError):
            ann.set_pool_facts("lab", FactChanges(speed=9))
        assert ann.pool_facts("lab").pool == "lab"
    client.set_pool_facts("lab", FactChanges(speed=1.5))
    lines = [(line.action, line.detail) for line in client.audit() if line.action == "pool set"]
    assert ("pool set", "speed") in lines


def test_facts_are_told_and_read_at_the_command_line(client: Client, shell: Shell, tmp_path: Path) -> None:
    add(client, "lab")
    hours = tmp_path / "hours.csv"
    hours.write_text("hour,g_per_kwh\n0,500\n8,100\n18,450\n")
    words = "pool set lab --speed 1.4 --watts 60..250 --reliability 0.9995 --label disk=ssd --taint gpu"
    words += f" --wait 30s --energy-price 0.12 --carbon {hours} --place cn-north/edge"
    told = shell.inside(*words.split())
    assert told.returncode == 0, told.stderr
    assert "100 to 500 over 24 h" in told.stdout
    shown = msgspec.json.decode(shell.inside("pool", "show", "lab", "--output", "json").stdout)
    values = {fact["name"]: fact["value"] for fact in shown["facts"] if not fact.get("node")}
    assert values["carbon"]["g_per_kwh"] == [500.0] * 8 + [100.0] * 10 + [450.0] * 6
    assert values["energy_price_micros_per_kwh"] == 120_000
    assert (values["watts_idle"], values["watts_full"], values["wait_s"]) == (60, 250, 30)
    words = "pool set lab --watts many --label disk --carbon nowhere.csv"
    refused = shell.inside(*words.split())
    assert refused.returncode == 1
    assert {word for word in ("--watts", "--label", "--carbon") if word in refused.stderr} == {
        "--watts",
        "--label",
        "--carbon",
    }


def test_a_series_of_certain_hours_says_from_when_it_is(client: Client, shell: Shell, tmp_path: Path) -> None:
    add(client, "lab")
    hours = tmp_path / "hours.csv"
    hours.write_text("hour,g_per_kwh\n2026-01-31T06:00Z,500\n2026-01-31T09:00Z,100\n")
    told = shell.inside("pool", "set", "lab", "--carbon", hours)
    assert "100 to 500 over 4 h, starts_at=2026-01-31 06:00 UTC" in told.stdout, told.stderr


def test_a_plan_says_when_a_task_would_start(client: Client, shell: Shell) -> None:
    add(client, "lab")
    words = ("plan", "--cpus", "1")

    def starts(*more: str) -> str:
        return " ".join(shell.inside(*words, *more, "--", "true").stdout.split())

    assert "yes now" in starts()
    assert "yes in ~2.0 h" in starts("--start-after", "2h")
    client.set_pool_facts("lab", FactChanges(wait_s=300.0))
    assert "yes in ~5 min" in starts()
