"""Bad input through the command line: refused with a remedy, and nothing has changed."""

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from integration.entrypoints.cli.conftest import Platform, Shell

pytestmark = pytest.mark.drives("host")


def state(shell: Shell) -> dict[str, Any]:
    """Return everything a refusal must leave as it is."""
    with shell.client() as client:
        keys = client.keys()
        return {
            "jobs": [(job.id, job.state) for job in client.jobs()],
            "pools": [(pool.spec, pool.state) for pool in client.pools()],
            "prices": client.prices("this-machine"),
            "ledger": [msgspec.json.encode(line) for line in client.ledger()],
            "projects": client.projects(),
            "secrets": client.secrets("default"),
            "keys": [(key.id, key.revoked_at) for key in keys],
            "config": (shell.home / "config.json").read_bytes(),
        }


def tree(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


def task(text: str) -> Callable[[Path], list[str | Path]]:
    def words(folder: Path) -> list[str | Path]:
        (folder / "task.yaml").write_text(text)
        return ["run", "-y", folder / "task.yaml"]

    return words


def typed(*words: str) -> Callable[[Path], list[str | Path]]:
    return lambda folder: list(words)


def leading_out(folder: Path) -> list[str | Path]:
    (folder / "work").mkdir()
    (folder / "work" / "link").symlink_to("/etc/passwd")
    (folder / "task.yaml").write_text(f"run: cat link\nworkdir: {folder / 'work'}")
    return ["run", "-y", folder / "task.yaml"]


CASES: dict[str, tuple[Callable[[Path], list[str | Path]], str]] = {
    "no such file": (typed("run", "no-such.yaml"), "cannot be read"),
    "not yaml": (task("run: ["), "not YAML"),
    "unknown field": (task("run: 'true'\nenv: {A: b}"), "did you mean 'envs'"),
    "wrong types": (task("run: 3\nretries: many\nenvs: [A]"), "3 problems"),
    "impossible resources": (task("run: 'true'\nresources: {cpus: 0, memory: -1}"), "resources.cpus"),
    "path traversal": (task("run: 'true'\noutputs: [../../etc/passwd]"), "inside the job's directory"),
    "mount outside": (
        task("run: 'true'\nfile_mounts: {/etc/cron.d/x: /etc/hostname}"),
        "write it as ~/etc/cron.d/x",
    ),
    "link out of the workdir": (leading_out, "leads out"),
    "planned field": (task("run: 'true'\nbudget: 40/h"), "not supported yet"),
    "planned only": (task("run: 'true'\nservice: {replicas: 2}"), "yunhe plan decides and explains it"),
    "oversize script": (task("run: |\n  # " + "x" * 300_000), "at most 256 KiB"),
    "unknown secret": (task("run: 'true'\nsecrets: [NO_SUCH]"), "NO_SUCH"),
    "unknown pool option": (typed("pool", "add", "local", "--name", "p", "--option", "speed=9"), "speed"),
    "unknown kind of pool": (typed("pool", "add", "mainframe", "--name", "p"), "mainframe"),
    "nowhere on earth": (typed("pool", "add", "local", "--name", "p", "--place", "x@999,0"), "not on Earth"),
    "unreadable price": (typed("pool", "price", "this-machine", "cpu=cheap"), "--price"),
    "unknown project": (typed("run", "-y", "-p", "no-such", "--", "true"), "no-such"),
    "unknown job": (typed("stop", "-y", "no-such-job"), "no job"),
    "path out of a job": (typed("cp", "hello:../../../etc/passwd", "."), "inside the job's directory"),
    "resize of nothing": (typed("resize", "hello", "--cpus", "lots"), "--cpus"),
    "resize after the end": (typed("resize", "hello", "--cpus", "1"), "only a running job"),
    "command beside an ended job": (typed("exec", "hello", "--", "true"), "job_"),
    "empty secret": (typed("secret", "set", "EMPTY"), "empty"),
    "bad duration": (typed("token", "create", "t", "--expires", "soon"), "--expires"),
    "wrong key": (typed("login", "URL"), "key"),
}


@pytest.mark.parametrize("name", CASES)
def test_bad_input_is_refused_and_changes_nothing(platform: Platform, tmp_path: Path, name: str) -> None:
    prepare, hint = CASES[name]
    words = [platform.url if word == "URL" else word for word in prepare(tmp_path)]
    admin = Shell(platform.admin.home, tmp_path)
    before, files = state(admin), tree(tmp_path)
    done = admin.inside(*words)
    assert done.returncode not in {0, 130}, done.stdout
    assert done.stderr.count("✗ ") == 1, done.stderr
    assert hint in done.stderr
    assert "Traceback" not in done.stderr
    assert state(admin) == before
    assert tree(tmp_path) == files


def test_an_expired_key_opens_nothing(platform: Platform, tmp_path: Path) -> None:
    key = platform.admin("token", "create", "brief", "--expires", "1s").stdout.strip()
    late = Shell(tmp_path / "late", tmp_path, {"YUNHE_URL": platform.url, "YUNHE_KEY": key})
    time.sleep(1.2)
    refused = late("run", "-y", "--", "true")
    assert refused.returncode == 1
    assert "expired" in refused.stderr


def test_a_secret_is_not_in_any_process_list_or_answer(platform: Platform) -> None:
    admin = platform.admin
    assert admin("secret", "set", "HIDDEN", typed="hunter2-hunter2").returncode == 0
    running = admin("run", "-y", "-d", "--name", "holder", "--secret", "HIDDEN", "--", "sleep", "20")
    assert running.returncode == 0
    time.sleep(1.0)
    for process in Path("/proc").glob("[0-9]*"):
        try:
            line = (process / "cmdline").read_bytes()
        except OSError:
            continue
        assert b"hunter2-hunter2" not in line, f"process {process.name} of {os.getpid()}"
    for words in (["secret", "ls"], ["ps", "-a"], ["explain", "holder"], ["audit"]):
        assert "hunter2-hunter2" not in admin.inside(*words, "-o", "json").stdout
    admin("stop", "-y", "holder")
    admin("secret", "rm", "-y", "HIDDEN")
