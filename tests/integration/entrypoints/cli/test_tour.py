"""The first ten minutes: what the README promises, done as a user would do it."""

import json
import re
import signal
import subprocess
import time
from collections.abc import Callable, Generator
from pathlib import Path

import pytest

from integration.entrypoints.cli.conftest import YUNHE, Platform, Shell
from support.repository import REPOSITORY
from yunhe.kernel.ids import JobId
from yunhe.scheduling.orchestration.jobs.states import JobState

pytestmark = pytest.mark.drives("host")

EXAMPLES = sorted((REPOSITORY / "examples").glob("*.yaml"))


def newest(shell: Shell, name: str) -> JobId:
    with shell.client() as client:
        return next(iter(client.jobs(name=name))).id


def state_of(shell: Shell, job_id: str) -> JobState:
    with shell.client() as client:
        return client.job(job_id).state


def until(holds: Callable[[], bool], within_s: float = 20.0) -> None:
    give_up = time.monotonic() + within_s
    while not holds():
        assert time.monotonic() < give_up, "it did not come to pass"
        time.sleep(0.05)


def test_up_ends_with_a_finished_job_its_log_and_its_cost(platform: Platform) -> None:
    assert platform.first.stdout.startswith("hello from ")
    said = platform.first.stderr
    assert f"Yunhe is up.   API {platform.url}/docs" in said
    assert re.search(r"pool  this-machine   \d+ cores", said)
    assert re.search(r"hello  ✓ succeeded in .* on this-machine\n +used .* core-s(, .* peak)?, cost ¥", said)


def test_up_again_finds_what_runs(platform: Platform) -> None:
    before = (platform.admin.home / "server.pid").read_text()
    again = platform.admin(*platform.words, "--no-sample")
    assert again.returncode == 0, again.stderr
    assert (platform.admin.home / "server.pid").read_text() == before


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_every_example_runs(admin: Shell, path: Path) -> None:
    if path.stem == "secret":
        assert admin.inside("secret", "set", "DEMO_TOKEN", typed="s3cret").returncode == 0
    done = admin("run", "-y", path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip(), "an example shows something"
    assert "✔   this-machine" in done.stderr
    assert "✓ succeeded" in done.stderr


def test_the_exit_code_is_the_jobs(admin: Shell) -> None:
    done = admin("run", "--", "sh", "-c", "echo out; exit 7")
    assert done.returncode == 7
    assert done.stdout == "out\n"
    assert "✗ failed" in done.stderr


def test_json_is_one_document_on_standard_output(admin: Shell) -> None:
    done = admin("run", "--output", "json", "--", "echo", "hi")
    job = json.loads(done.stdout)
    assert (done.returncode, job["state"], job["exit_code"]) == (0, "succeeded", 0)
    assert json.loads(admin("ps", "--all", "--limit", "1", "-o", "json").stdout)[0]["id"] == job["id"]
    assert json.loads(admin("plan", "-o", "json", "--", "true").stdout)["type"] == "placed"
    for read in (
        ["pool", "ls"],
        ["cost"],
        ["cost", "--by", "pool"],
        ["explain", job["id"]],
        ["project", "ls"],
        ["secret", "ls"],
        ["token", "ls"],
        ["audit"],
        ["config", "show"],
        ["config", "ls"],
        ["doctor"],
        ["pool", "price", "this-machine"],
        ["run", "--schema"],
    ):
        words = read if "--schema" in read else [*read, "--output", "json"]
        json.loads(admin.inside(*words).stdout)


def test_costs_that_are_not_all_shown_say_so_and_the_total_is_of_all(admin: Shell) -> None:
    admin("run", "--", "true")
    admin("run", "--", "true")
    whole = json.loads(admin.inside("cost", "-o", "json").stdout)
    assert whole["count"] == len(whole["lines"]) > 1
    part = admin.inside("cost", "--limit", "1")
    assert f"1 of {whole['count']} jobs" in part.stderr
    assert f"total of {whole['count']}" in part.stdout
    told = json.loads(admin.inside("cost", "-n", "1", "-o", "json").stdout)
    assert (len(told["lines"]), told["count"], told["amount_micros"]) == (
        1,
        whole["count"],
        whole["amount_micros"],
    )
    assert told["next_cursor"]
    assert "--limit" not in admin.inside("cost").stderr


def test_a_batch_runs_all_and_fails_if_one_does(admin: Shell, tmp_path: Path) -> None:
    (tmp_path / "good.yaml").write_text("run: echo good")
    (tmp_path / "bad.yaml").write_text("run: exit 3")
    done = admin("run", "-y", tmp_path / "good.yaml", tmp_path / "bad.yaml")
    assert done.returncode == 3
    assert re.search(r"good +succeeded", done.stdout)
    assert re.search(r"bad +failed", done.stdout)


def test_outputs_come_back(admin: Shell, tmp_path: Path) -> None:
    assert admin("run", "-y", "examples/word-count.yaml").returncode == 0
    fetched = admin.inside("cp", "word-count:counts.txt", tmp_path)
    assert fetched.returncode == 0, fetched.stderr
    assert (tmp_path / "counts.txt").read_text().startswith("6 the\n")


@pytest.fixture
def heeded_interrupts() -> Generator[None]:
    """Undo what a shell does to programs in its background, and they to those they start."""
    inherited = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, inherited)


@pytest.mark.usefixtures("heeded_interrupts")
def test_interrupting_a_run_leaves_the_job_running(admin: Shell) -> None:
    running = subprocess.Popen(
        [*YUNHE, "run", "-y", "--name", "long", "--", "sh", "-c", "echo begun; sleep 60"],
        cwd=REPOSITORY,
        env=admin.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with running:
        try:
            assert running.stdout is not None
            assert running.stdout.readline() == "begun\n"
            running.send_signal(signal.SIGINT)
            _, said = running.communicate(timeout=20)
        finally:
            running.kill()
    job_id = newest(admin, "long")
    assert running.returncode == 130
    assert "is left running." in said
    assert f"come back   yunhe logs -f {job_id}" in said
    time.sleep(1.0)
    assert state_of(admin, job_id) is JobState.RUNNING
    assert admin.inside("logs", "long").stdout == "begun\n"
    assert admin.inside("stop", "-y", job_id).returncode == 0
    assert state_of(admin, job_id) is JobState.STOPPED


def test_a_shell_beside_a_job_has_a_real_terminal(admin: Shell) -> None:
    assert admin.inside("run", "-y", "-d", "--name", "host", "--", "sleep", "60").returncode == 0
    until(lambda: state_of(admin, newest(admin, "host")) is JobState.RUNNING)
    with admin.terminal("exec", "-it", "host", "--", "sh") as terminal:
        terminal.until(b"$ ")
        terminal.type(b"test -t 0 && echo term-$((40+2)); exit 9\n")
        terminal.until(b"term-42")
        assert terminal.process.wait(timeout=20) == 9
    admin.inside("stop", "-y", "host")


def test_a_command_beside_a_job_ends_with_its_own_code_and_sees_the_end_of_its_input(admin: Shell) -> None:
    assert admin.inside("run", "-y", "-d", "--name", "side", "--", "sleep", "60").returncode == 0
    until(lambda: state_of(admin, newest(admin, "side")) is JobState.RUNNING)
    done = admin("exec", "side", "--", "sh", "-c", "echo hi; exit 5", timeout_s=20)
    assert (done.returncode, done.stdout) == (5, "hi\n")
    assert admin("exec", "side", "--", "cat", timeout_s=20).stdout == ""
    assert (
        admin("exec", "-i", "side", "--", "wc", "-l", typed="x\n" * 100_000, timeout_s=30).stdout.strip()
        == "100000"
    )
    admin.inside("stop", "-y", "side")


def test_a_job_too_large_is_explained_with_what_would_start_it(admin: Shell) -> None:
    asked = admin.inside("run", "-y", "-d", "--name", "huge", "--cpus", "4000", "--", "true")
    assert asked.returncode == 0
    assert "No pool can take it now." in asked.stderr
    page = admin.inside("explain", "huge").stdout
    assert "huge waits" in page
    assert "4000 cores asked" in page
    assert "smallest change that would start it now: ask for" in page
    assert admin.inside("stop", "-y", "huge").returncode == 0


def test_limits_change_while_a_job_runs(admin: Shell) -> None:
    assert admin.inside("run", "-y", "-d", "--name", "elastic", "--", "sleep", "60").returncode == 0
    until(lambda: state_of(admin, newest(admin, "elastic")) is JobState.RUNNING)
    changed = admin.inside("resize", "elastic", "--cpus", "0.5")
    assert changed.returncode == 0, changed.stderr
    assert "now has 0.5 cores" in changed.stderr
    assert "has 0.5 cores  1 GiB, asked for 1 core  1 GiB" in admin.inside("explain", "elastic").stdout
    tiny = admin.inside("resize", "elastic", "--memory", "1KB")
    assert tiny.returncode == 1
    assert "less than can be given" in tiny.stderr
    admin.inside("stop", "-y", "elastic")


def test_an_export_of_the_ledger_holds_until_somebody_changes_it(admin: Shell, tmp_path: Path) -> None:
    admin("run", "-y", "--", "true")
    export = tmp_path / "ledger.ndjson"
    assert admin.inside("ledger", "export", export).returncode == 0
    alone = Shell(tmp_path / "nobody", tmp_path)
    whole = alone.inside("ledger", "verify", export)
    assert whole.returncode == 0
    lines = export.read_text().splitlines()
    head = json.loads(lines[-1])["hash"]
    assert head in whole.stderr
    assert alone.inside("ledger", "verify", export, "--head", head).returncode == 0
    export.write_text("\n".join(lines[:-1]) + "\n")
    cut = alone.inside("ledger", "verify", export, "--head", head)
    assert cut.returncode == 1
    assert "cut short" in cut.stderr
    export.write_text("")
    assert alone.inside("ledger", "verify", export).returncode == 1
    lines[0] = re.sub(r'"amount_micros":\d+', '"amount_micros":123456', lines[0])
    export.write_text("\n".join(lines) + "\n")
    refused = alone.inside("ledger", "verify", export)
    assert refused.returncode == 1
    assert "line 1 was changed" in refused.stderr


def test_a_new_user_comes_in_works_and_sees_no_more_than_their_project(
    platform: Platform, admin: Shell, tmp_path: Path
) -> None:
    assert admin.inside("project", "create", "vision").returncode == 0
    assert admin.inside("project", "add", "vision", "mei", "--role", "member").returncode == 0
    key = admin.inside("token", "create", "laptop", "--user", "mei", "--expires", "1h").stdout
    mei = Shell(tmp_path / "mei", tmp_path)
    assert "no key" in mei("ps").stderr
    joined = mei("login", platform.url, "--project", "vision", typed=key)
    assert joined.returncode == 0, joined.stderr
    done = mei("run", "-y", "--", "echo", "first job")
    assert (done.returncode, done.stdout) == (0, "first job\n")
    assert {job["project_id"] for job in json.loads(mei("ps", "-a", "-o", "json").stdout)} == {"vision"}
    assert "first" not in admin.inside("ps", "-a", "-p", "default").stdout
    for words in (["pool", "drain", "this-machine"], ["ps", "-p", "default"], ["audit"]):
        refused = mei.inside(*words)
        assert refused.returncode == 1
        assert refused.stderr.startswith("✗ ")
    assert "mei" in admin.inside("audit", "--denied").stdout
    assert mei.inside("doctor").returncode == 0


def test_a_platform_that_was_down_comes_back_with_its_jobs(platform: Platform, admin: Shell) -> None:
    admin("run", "-y", "--name", "kept", "--", "echo", "remembered")
    admin.inside("run", "-y", "-d", "--name", "through", "--", "sh", "-c", "sleep 3; echo went on")
    assert admin("down").returncode == 0
    gone = admin("ps")
    assert gone.returncode == 1
    assert "does not answer" in gone.stderr
    assert "→ Start a server with yunhe up" in gone.stderr
    assert admin("doctor").returncode == 1
    assert admin(*platform.words, "--no-sample", timeout_s=110.0).returncode == 0
    assert admin("logs", "kept").stdout == "remembered\n"
    assert admin("logs", "-f", "through").stdout == "went on\n"
