"""A plan that is written to a file and run later: as planned, once, or refused with what has changed."""

import json
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from integration.entrypoints.api.serving import Served, serving
from integration.entrypoints.cli.conftest import Shell
from integration.entrypoints.cli.test_plans import add_pool
from yunhe.entrypoints.client import Client
from yunhe.kernel.errors import ConflictError, InvalidInputError, StalePlanError
from yunhe.kernel.ids import ProjectId
from yunhe.kernel.money import Prices
from yunhe.scheduling.orchestration.jobs.model import Job
from yunhe.scheduling.orchestration.jobs.states import JobState
from yunhe.trading.applications.model import SavedPlan, Submission
from yunhe.trading.demand.parse import parse_yaml

TASK = "name: {name}\nrun: '{run}'\npolicy: cheapest\nresources: {{cpus: {cpus}, memory: 1}}\n"


@pytest.fixture
def served(tmp_path: Path) -> Generator[Served]:
    with serving(tmp_path / "platform") as served:
        with served.client() as client:
            add_pool(client, "cheap", 0.10, "cn-north@39.9,116.4", 4)
            add_pool(client, "dear", 0.40, "cn-east@31.2,121.5", 4)
        yield served


@pytest.fixture
def client(served: Served) -> Generator[Client]:
    with served.client() as client:
        yield client


@pytest.fixture
def shell(served: Served, tmp_path: Path) -> Shell:
    return Shell(tmp_path, tmp_path, {"YUNHE_URL": served.url, "YUNHE_KEY": served.key})


def submission(name: str = "one", cpus: int = 3, run: str = "echo done") -> Submission:
    task = parse_yaml(TASK.format(name=name, cpus=cpus, run=run))
    return Submission(task=task, project_id=ProjectId("default"))


def saved(shell: Shell, folder: Path, **tasks: int) -> Path:
    files = []
    for name, cpus in tasks.items():
        files.append(folder / f"{name}.yaml")
        files[-1].write_text(TASK.format(name=name, cpus=cpus, run="echo done"))
    done = shell.inside("plan", "--save", folder / "night.plan", *files)
    assert done.returncode == 0, done.stderr
    assert "run it" in done.stderr
    return folder / "night.plan"


def ended(client: Client, job: Job) -> Job:
    return list(client.watch(job.id))[-1]


def test_a_saved_plan_runs_where_it_was_planned_and_only_once(
    client: Client, shell: Shell, tmp_path: Path
) -> None:
    client.set_secret("default", "TOKEN", "do-not-tell")
    path = saved(shell, tmp_path, small=1, large=4)
    planned = {
        one["submission"]["task"]["name"]: (one["place"]["pool_name"], one["place"]["node_id"])
        for one in json.loads(path.read_text())["tasks"]
    }
    assert {name: pool for name, (pool, _) in planned.items()} == {"small": "dear", "large": "cheap"}
    assert path.stat().st_mode & 0o077 == 0
    first = shell.inside("run", "--plan", path, "-y", "--output", "json")
    assert first.returncode == 0, first.stderr
    jobs: list[Any] = json.loads(first.stdout)
    for job in jobs:
        assert (job["attempts"][0]["pool_name"], job["attempts"][0]["node_id"]) == planned[job["name"]]
    again = shell.inside("run", "--plan", path, "-y", "--output", "json")
    assert again.returncode == 0, again.stderr
    assert [job["id"] for job in json.loads(again.stdout)] == [job["id"] for job in jobs]
    assert len(list(client.jobs())) == 2


def test_a_plan_names_secrets_and_does_not_contain_them(client: Client) -> None:
    client.set_secret("default", "TOKEN", "do-not-tell")
    task = parse_yaml("run: 'true'\nsecrets: [TOKEN]\n")
    plan = client.save_plan([Submission(task=task, project_id=ProjectId("default"))])
    text = msgspec.json.encode(plan).decode()
    assert "TOKEN" in text
    assert "do-not-tell" not in text


def _take_room(client: Client) -> None:
    job = client.submit(submission("other", cpus=4, run="sleep 60"))
    assert any(seen.state is JobState.RUNNING for seen in client.watch(job.id))


def _remove(client: Client) -> None:
    client.remove_pool("cheap")


def _cordon(client: Client) -> None:
    (node,) = client.pool("cheap").nodes
    client.cordon_node("cheap", node.id.rpartition("/")[2])


CHANGES: dict[str, tuple[Callable[[Client], object], str]] = {
    "gone": (_remove, "pool cheap is gone"),
    "drained": (lambda client: client.drain_pool("cheap"), "pool cheap takes no new work"),
    "cordoned": (_cordon, "of pool cheap is gone, cordoned or not ready"),
    "price": (
        lambda client: client.set_prices("cheap", Prices(cpu_core_hour_micros=200_000)),
        "the price in pool cheap was ¥0.3000/h, is ¥0.6000/h",
    ),
    "room": (_take_room, "does not take it any more: 3 cores asked, 0 free"),
    "better": (
        lambda client: add_pool(client, "new", 0.01, "cn-east@31.2,121.5", 8),
        "new would be chosen now instead of cheap",
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_plan_that_the_world_has_changed_under_is_refused_with_what_changed(
    client: Client, shell: Shell, tmp_path: Path, change: str
) -> None:
    path = saved(shell, tmp_path, one=3)
    plan = client.save_plan([submission()])
    happen, said = CHANGES[change]
    happen(client)
    before = [job.id for job in client.jobs()]
    done = shell.inside("run", "--plan", path, "-y")
    assert done.returncode == 1, done.stdout
    told = " ".join(done.stderr.split())
    assert "The plan does not hold any more; nothing was started." in told
    assert said in told
    with pytest.raises(StalePlanError) as refused:
        client.run_plan(plan)
    assert any(said in problem.problem for problem in refused.value.fields)
    assert [job.id for job in client.jobs()] == before


def test_a_plan_that_has_run_is_not_stale_whatever_became_of_the_world(client: Client) -> None:
    plan = client.save_plan([submission()])
    (job,) = client.run_plan(plan)
    assert ended(client, job).state is JobState.SUCCEEDED
    client.drain_pool("cheap")
    assert [one.id for one in client.run_plan(plan)] == [job.id]


def test_a_job_of_a_plan_waits_for_its_node_rather_than_go_elsewhere(client: Client) -> None:
    """What becomes of the room between the check and the placing: it is told, and nothing runs elsewhere."""
    plan = client.save_plan([submission(cpus=3)])
    (job,) = client.run_plan(plan)
    demand = client.job(job.id).demand
    assert demand.alternatives[0].pools == ("cheap",)
    assert demand.nodes == (plan.tasks[0].place.node_id,)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "cannot be read: No such file or directory"),
        (b"\x80\x81", "is no plan"),
        (b"run: echo\n", "is no plan"),
        (b"[]", "is no plan"),
        (b'{"tasks": [], "made_at": 1}', "was changed after it was written"),
    ],
)
def test_a_file_that_is_no_plan_is_refused(
    shell: Shell, tmp_path: Path, content: bytes | None, said: str
) -> None:
    path = tmp_path / "night.plan"
    if content is not None:
        path.write_bytes(content)
    done = shell.inside("run", "--plan", path, "-y")
    assert done.returncode == 1
    assert said in " ".join(done.stderr.split())


def test_a_plan_that_was_changed_is_refused_here_and_there(
    client: Client, shell: Shell, tmp_path: Path
) -> None:
    path = saved(shell, tmp_path, one=3)
    path.write_text(path.read_text().replace("echo done", "echo harm"))
    done = shell.inside("run", "--plan", path, "-y")
    assert done.returncode == 1
    assert "was changed after it was written" in " ".join(done.stderr.split())
    plan = client.save_plan([submission()])
    with pytest.raises(InvalidInputError) as refused:
        client.run_plan(SavedPlan(made_at=plan.made_at + 1, tasks=plan.tasks, digest=plan.digest))
    assert [problem.field for problem in refused.value.fields] == ["digest"]
    assert list(client.jobs()) == []


def test_tasks_that_do_not_all_fit_make_no_plan(client: Client, shell: Shell, tmp_path: Path) -> None:
    with pytest.raises(ConflictError) as refused:
        client.save_plan([submission("a", 4), submission("b", 4), submission("c", 2)])
    assert [(p.field, p.problem) for p in refused.value.fields] == [("a", "dear: 4 cores asked, 2 free")]
    (tmp_path / "app.yaml").write_text("run: 'true'\nnum_nodes: 2\n")
    done = shell.inside("plan", "--save", tmp_path / "app.plan", tmp_path / "app.yaml")
    assert done.returncode == 1
    assert "num_nodes: is planned only" in " ".join(done.stderr.split())
    assert not (tmp_path / "app.plan").exists()


def test_options_do_not_go_with_a_saved_plan(shell: Shell, tmp_path: Path) -> None:
    path = saved(shell, tmp_path, one=3)
    for words in (["run", "--plan", path, "--cpus", "1"], ["run", "--plan", path, tmp_path / "one.yaml"]):
        done = shell.inside(*words)
        assert done.returncode == 1
        assert "A saved plan runs as it is" in done.stderr
    done = shell.inside("plan", "--plan", path)
    assert "Use yunhe run --plan FILE." in done.stderr


def test_a_plan_for_a_pool_that_is_no_cluster_is_not_rendered(
    client: Client, shell: Shell, tmp_path: Path
) -> None:
    path = saved(shell, tmp_path, one=3)
    for words in (["--plan", path], [tmp_path / "one.yaml"]):
        done = shell.inside("plan", "--render", "kubernetes", *words)
        assert done.returncode == 1
        assert "pool cheap, which is of kind fake, not kubernetes" in " ".join(done.stderr.split())
    assert shell.inside("plan", "--render", "helm", tmp_path / "one.yaml").returncode == 1
    assert list(client.jobs()) == []
