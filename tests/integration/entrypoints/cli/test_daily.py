"""What a lab does daily at the terminal: plan a SkyPilot file, wait for a place or not, stop many, see what is reserved."""

import json
import signal
import subprocess
import time
from collections.abc import Generator
from pathlib import Path

import pytest

from integration.entrypoints.api.serving import Served, serving
from integration.entrypoints.cli.conftest import YUNHE, Shell
from integration.entrypoints.cli.test_plans import add_pool
from yunhe.entrypoints.cli.terminal.follow import NOTHING_FITS

SKYPILOT = """
name: Train
resources: {infra: "*/cn-north", cpus: 1+, memory: 1+, disk_tier: best, ports: 8080, autostop: 10}
envs: {SIZE: 13b, BUCKET: }
secrets: {HF_TOKEN: }
file_mounts: {/data: s3://bucket/$SIZE}
run: echo $SIZE
"""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Generator[Served]:
    with serving(tmp_path_factory.mktemp("daily")) as served:
        with served.client() as client:
            add_pool(client, "near", 0.9, "cn-north@39.9,116.4", 4)
            add_pool(client, "far", 0.1, "eu-west@53.3,-6.3", 4)
        yield served


@pytest.fixture
def shell(served: Served, tmp_path: Path) -> Shell:
    return Shell(tmp_path, tmp_path, {"YUNHE_URL": served.url, "YUNHE_KEY": served.key})


def test_a_skypilot_file_is_planned_with_the_effect_of_every_field(shell: Shell, tmp_path: Path) -> None:
    path = tmp_path / "train.yaml"
    path.write_text(SKYPILOT)
    shown = shell.inside("plan", "--explain-fields", path)
    assert shown.returncode == 0, shown.stderr
    for field in (
        "resources.infra",
        "resources.ports",
        "envs.BUCKET",
        "secrets.HF_TOKEN",
        "file_mounts./data",
    ):
        assert field in shown.stdout
    assert "only */cn-north asked for (infra)" in shown.stdout, "far is cheaper and is not where it may run"
    told = json.loads(shell.inside("plan", "--explain-fields", path, "--output", "json").stdout)
    effects = {one["field"]: one["effect"] for one in told[0]["fields"]}
    assert effects["resources.infra"] == "honoured"
    assert effects["resources.disk_tier"] == "meaning"
    assert effects["resources.ports"] == "planned only"
    refused = shell.inside("run", "-y", path)
    assert refused.returncode == 1
    assert "nothing was submitted" in refused.stderr
    assert refused.stderr.count("resources.ports:") == 1
    elsewhere = shell.inside("plan", "--infra", "aws", path)
    assert elsewhere.returncode == NOTHING_FITS
    assert "allow any infra" in elsewhere.stdout


def test_a_pool_that_is_not_there_is_an_error_at_once(shell: Shell) -> None:
    for command in (["run", "-y"], ["run", "-d", "-y"], ["plan"]):
        done = shell.inside(*command, "--pool", "neer", "--", "true")
        assert done.returncode == 1
        assert "There is no pool 'neer'" in done.stderr
        assert "did you mean 'near'" in done.stderr
    assert json.loads(shell.inside("ps", "--all", "-o", "json").stdout) == []


def test_a_task_that_fits_nowhere_waits_only_as_long_as_is_said(shell: Shell) -> None:
    planned = shell.inside("plan", "--cpus", "400", "--", "true")
    assert planned.returncode == NOTHING_FITS
    refused = shell.inside("run", "-y", "--no-wait", "--name", "never", "--cpus", "400", "--", "true")
    assert refused.returncode == NOTHING_FITS
    assert json.loads(shell.inside("ps", "--all", "--name", "never", "-o", "json").stdout) == []
    gave_up = shell.inside("run", "-y", "--wait", "1s", "--name", "huge", "--cpus", "400", "--", "true")
    assert gave_up.returncode == NOTHING_FITS
    assert "had no place after 1" in gave_up.stderr
    (job,) = json.loads(shell.inside("ps", "--all", "--name", "huge", "-o", "json").stdout)
    assert job["state"] == "stopped"
    both = shell.inside("run", "-d", "--wait", "1s", "--", "true")
    assert both.returncode == 1


def test_many_files_are_one_table_and_are_stopped_by_a_pattern(shell: Shell, tmp_path: Path) -> None:
    files: list[Path] = []
    for number in range(4):
        files.append(tmp_path / f"sweep-{number}.yaml")
        files[-1].write_text("resources: {cpus: 1, memory: 64MB}\nrun: sleep 600\n")
    done = shell.inside("run", "-y", "-d", *files)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("COST/h") == 1
    assert "Considered for 4 tasks" in done.stderr
    until = time.monotonic() + 60
    while "4 of 4" not in (listed := shell.inside("pool", "ls").stdout) and time.monotonic() < until:
        time.sleep(0.2)
    assert "CORES RESERVED" in listed
    assert "4 of 4" in listed, "four cores are held on one pool, however little is used"
    stopped = shell.inside("stop", "-y", "--no-wait", "sweep-[01]")
    assert stopped.stderr.count("sweep-") == 2
    rest = shell.inside("stop", "-y", "--all")
    assert rest.stderr.count("sweep-") >= 2
    assert "stopped" in rest.stderr
    assert shell.inside("stop", "-y").returncode == 1
    assert shell.inside("stop", "-y", "--all", "sweep-0").returncode == 1


def hears_interrupts() -> None:
    """Undo what whoever runs the tests in the background has done to SIGINT."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def test_the_list_is_shown_anew_until_it_is_interrupted(shell: Shell) -> None:
    with subprocess.Popen(
        [*YUNHE, "ps", "--watch"], env=shell.environment, stdout=subprocess.PIPE, text=True
    ) as watching:
        assert watching.stdout is not None
        first = watching.stdout.readline()
        watching.send_signal(signal.SIGINT)
        assert watching.wait(timeout=60) == 0
    assert "JOB" in first


@pytest.mark.parametrize(
    ("words", "completed"),
    [("yunhe run --pool ne", "near"), ("yunhe run --policy che", "cheapest"), ("yunhe pool show fa", "far")],
)
def test_the_shell_completes_names(shell: Shell, words: str, completed: str) -> None:
    asking = {"_YUNHE_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
    done = subprocess.run(
        YUNHE, env={**shell.environment, **asking}, capture_output=True, text=True, check=False, timeout=60
    )
    assert completed in done.stdout.split()
