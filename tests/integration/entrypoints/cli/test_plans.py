"""Plans on a running platform: what there is to choose from, several tasks together, saved and carried out later."""

import json
from collections.abc import Callable, Generator
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from integration.entrypoints.api.serving import Served, serving
from integration.entrypoints.cli.conftest import Shell
from yunhe.control.pools.model import PoolSpec
from yunhe.entrypoints.client import Client
from yunhe.kernel.ids import ProjectId
from yunhe.kernel.money import Prices
from yunhe.kernel.places import Place, parse_place
from yunhe.scheduling.decision.plans import JointPlan, ParetoPlan
from yunhe.trading.applications.model import Submission
from yunhe.trading.demand.parse import parse_yaml

BEIJING = Place("cn-north", 39.9, 116.4)
MARKET: dict[str, tuple[float, str, int]] = {
    "near": (0.90, "cn-north@39.9,116.4", 4),
    "mid": (0.40, "cn-east@31.2,121.5", 4),
    "far": (0.10, "eu-west@53.3,-6.3", 4),
    "worse": (0.50, "eu-west@53.3,-6.3", 4),
    "equal": (0.40, "cn-east@31.2,121.5", 4),
}
"""Pool → what a core costs for an hour, where it is, and its cores."""


BY_POLICY: dict[str, Callable[[float, float], float]] = {
    "cheapest": lambda cost, _: cost,
    "nearest": lambda _, km: km,
    "balanced": lambda cost, km: cost + km / 1e4,
}


def away(place: str) -> float:
    km = BEIJING.distance_km(parse_place(place))
    assert km is not None
    return km


def add_pool(client: Client, name: str, price: float, place: str, cpus: int) -> None:
    spec = PoolSpec(
        name=name,
        kind="fake",
        target=name,
        place=parse_place(place),
        options={"cpus": str(cpus), "memory": "16GB"},
        prices=Prices(cpu_core_hour_micros=round(price * 1e6)),
    )
    assert list(client.add_pool(spec))


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Generator[Served]:
    with serving(tmp_path_factory.mktemp("plans")) as served:
        with served.client() as client:
            for name, (price, place, cpus) in MARKET.items():
                add_pool(client, name, price, place, cpus)
        yield served


@pytest.fixture
def shell(served: Served, tmp_path: Path) -> Shell:
    return Shell(tmp_path, tmp_path, {"YUNHE_URL": served.url, "YUNHE_KEY": served.key})


def task_file(folder: Path, name: str, text: str) -> Path:
    path = folder / f"{name}.yaml"
    path.write_text(text)
    return path


def as_json(shell: Shell, *words: str | Path) -> Any:
    done = shell.inside(*words, "--output", "json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def submission(text: str) -> Submission:
    return Submission(task=parse_yaml(text), project_id=ProjectId("default"))


def front(values: dict[str, tuple[float, ...]]) -> set[str]:
    """Who is not beaten: no other is at most as large everywhere and smaller somewhere."""
    return {
        name
        for name, mine in values.items()
        if not any(
            all(a <= b for a, b in zip(other, mine, strict=True)) and other != mine
            for other in values.values()
        )
    }


@pytest.mark.feature(
    "T12",
    file="src/yunhe/scheduling/decision/candidates.py",
    old="np.all(values <= row, axis=1) & np.any(values < row, axis=1)",
    new="np.any(values < row, axis=1)",
)
@pytest.mark.parametrize("policy", ["cheapest", "nearest", "balanced"])
def test_pareto_lists_what_brute_force_finds_and_what_each_costs_in_the_others_terms(
    served: Served, shell: Shell, tmp_path: Path, policy: str
) -> None:
    text = f"run: 'true'\nnear: cn-north@39.9,116.4\npolicy: {policy}\nresources: {{cpus: 2, memory: 1}}\n"
    market = {name: (2 * price, away(place)) for name, (price, place, _) in MARKET.items()}
    found = as_json(shell, "plan", "--pareto", task_file(tmp_path, "app", text))
    names = [one["candidate"]["pool_name"] for one in found["choices"]]
    assert set(names) == front(market) == {"near", "mid", "equal", "far"}
    assert [one["candidate"]["pool_name"] for one in found["beaten"]] == ["worse"]
    liked = sorted(market, key=lambda name: (BY_POLICY[policy](*market[name]), name))
    assert names[0] == liked[0]
    for one in found["choices"]:
        cost, distance = market[one["candidate"]["pool_name"]]
        assert one["values"]["cost"] == pytest.approx(cost)
        assert one["values"]["distance_km"] == pytest.approx(distance)
        more = one["against_first"].get("cost", 0.0)
        assert more == pytest.approx(cost - market[names[0]][0])
    with served.client() as client:
        plan = client.pareto(submission(text))
    assert isinstance(plan, ParetoPlan)
    assert [one.candidate.pool_name for one in plan.choices] == names
    ranked = as_json(shell, "plan", tmp_path / "app.yaml")["candidates"]
    scores = [BY_POLICY[policy](*market[one["pool_name"]]) for one in ranked]
    assert scores == sorted(scores)
    assert {one["pool_name"] for one in ranked} == set(market)


def test_the_page_says_what_each_has_more_and_less_of_and_what_is_unknown(
    shell: Shell, tmp_path: Path
) -> None:
    text = "run: 'true'\nnear: cn-north@39.9,116.4\npolicy: cheapest\nresources: {cpus: 1, memory: 1}\n"
    done = shell.inside("plan", "--pareto", task_file(tmp_path, "app", text))
    assert done.returncode == 0, done.stderr
    page = " ".join(done.stdout.split())
    assert "worse is beaten by far" in page
    assert "+¥0.8000 cost, −124 ms latency, −8,288 km distance" in page
    assert "not known of any of them: start, run time, carbon, risk" in page


def test_one_candidate_has_nothing_to_be_compared_with(shell: Shell, tmp_path: Path) -> None:
    path = task_file(tmp_path, "app", "run: 'true'\nresources: {cpus: 1, memory: 1, pool: mid}\n")
    done = shell.inside("plan", "--pareto", path)
    assert done.returncode == 0, done.stderr
    assert "it is the only candidate" in done.stdout


def test_pareto_of_a_task_that_fits_nowhere_says_why(shell: Shell, tmp_path: Path) -> None:
    path = task_file(tmp_path, "app", "run: 'true'\nresources: {cpus: 64}\n")
    done = shell.inside("plan", "--pareto", path)
    assert done.returncode == 3, done.stderr
    assert "64 cores asked, 4 free" in done.stdout


def test_pareto_of_a_graph_is_refused(shell: Shell, tmp_path: Path) -> None:
    path = task_file(tmp_path, "app", "run: 'true'\ncomponents: [{name: web}]\n")
    done = shell.inside("plan", "--pareto", path)
    assert done.returncode == 1
    assert "has components, which cannot be compared" in " ".join(done.stderr.split())


def cheapest(sizes: list[int], *, only: str = "") -> float | None:
    """The least cost over every assignment of tasks to pools that have the cores."""
    pools = [only] if only else list(MARKET)
    costs = [
        sum(size * MARKET[name][0] for name, size in zip(names, sizes, strict=True))
        for names in product(pools, repeat=len(sizes))
        if all(
            sum(size for at, size in zip(names, sizes, strict=True) if at == name) <= MARKET[name][2]
            for name in pools
        )
    ]
    return min(costs, default=None)


@pytest.mark.feature(
    "T24",
    file="src/yunhe/scheduling/decision/together.py",
    old="best, exact = _through_every_way(demands, cycle, min(plans, key=lambda plan: plan.cost))",
    new="best, exact = in_turn, bool(plans)",
)
@pytest.mark.parametrize("sizes", [[1, 4], [1, 3, 4], [3, 3, 2, 2], [1, 1, 1, 1], [2, 2, 3, 4, 1]])
def test_together_costs_no_more_than_any_pool_alone_or_one_after_another_and_is_the_optimum(
    served: Served, shell: Shell, tmp_path: Path, sizes: list[int]
) -> None:
    texts = [f"run: 'true'\npolicy: cheapest\nresources: {{cpus: {size}, memory: 1}}\n" for size in sizes]
    files = [task_file(tmp_path, f"t{n}", text) for n, text in enumerate(texts)]
    plan = as_json(shell, "plan", *files)
    assert plan["cost"] == pytest.approx(cheapest(sizes))
    assert plan["exact"]
    assert plan["cost"] <= plan["one_after_another"] + 1e-9
    for name in MARKET:
        alone = cheapest(sizes, only=name)
        assert plan["single_pools"].get(name) == (None if alone is None else pytest.approx(alone))
        assert alone is None or plan["cost"] <= alone + 1e-9
    with served.client() as client:
        same = client.plan_together([submission(text) for text in texts])
    assert isinstance(same, JointPlan)
    assert same.cost == pytest.approx(plan["cost"])


def test_the_page_says_what_planning_together_saves(shell: Shell, tmp_path: Path) -> None:
    sizes = {"small": 1, "large": 4}
    files = [
        task_file(tmp_path, name, f"run: 'true'\npolicy: cheapest\nresources: {{cpus: {size}, memory: 1}}\n")
        for name, size in sizes.items()
    ]
    done = shell.inside("plan", *files)
    assert done.returncode == 0, done.stderr
    page = " ".join(done.stdout.split())
    assert "together ¥0.8000, one after another ¥1.70: saves ¥0.9000" in page, page
    assert "no other way is better" in page


def test_tasks_that_do_not_fit_together_name_the_nearest_miss(shell: Shell, tmp_path: Path) -> None:
    files = [
        task_file(tmp_path, f"t{n}", "run: 'true'\nresources: {cpus: 3, memory: 1, pool: mid}\n")
        for n in range(2)
    ]
    done = shell.inside("plan", *files)
    assert done.returncode == 3, done.stderr
    page = " ".join(done.stdout.split())
    assert "does not fit beside the others." in page
    assert "came nearest: mid; 3 cores asked, 1 free" in page


def test_tasks_of_different_policies_are_not_planned_together(shell: Shell, tmp_path: Path) -> None:
    files = [
        task_file(tmp_path, policy, f"run: 'true'\npolicy: {policy}\n") for policy in ("cheapest", "balanced")
    ]
    done = shell.inside("plan", *files)
    assert done.returncode == 1
    assert "add --policy cheapest" in " ".join(done.stderr.split())
    assert shell.inside("plan", "--policy", "cheapest", *files).returncode == 0
