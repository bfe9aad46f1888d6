"""``yunhe vault rotate`` beside a running server: killed in the middle, repeated, and refused where it would break another."""

import json
import signal
import subprocess
from pathlib import Path

from integration.entrypoints.cli.conftest import YUNHE, Shell

TASK = """\
name: opens
secrets: [ROTATED]
resources: {cpus: 0.25, memory: 64MB}
run: echo "it is $ROTATED" | tr a-z A-Z
"""


def test_a_rotation_that_is_killed_goes_on_and_the_server_never_stops(admin: Shell, tmp_path: Path) -> None:
    task = tmp_path / "opens.yaml"
    task.write_text(TASK)
    assert admin("secret", "set", "ROTATED", typed="kept").returncode == 0
    killed = subprocess.Popen(
        [*YUNHE, "vault", "rotate"], env=admin.environment, cwd=admin.cwd, stderr=subprocess.PIPE, text=True
    )
    assert killed.stderr is not None
    for line in killed.stderr:
        if "waiting" in line:
            break
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    assert (admin.home / "vault.key.old").exists(), "it was not killed in the middle"
    between = admin("run", task)
    assert "IT IS KEPT" in between.stdout, between.stderr
    done = admin("vault", "rotate", "--output", "json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["reached"] == "done"
    assert {path.name for path in admin.home.glob("vault.key*")} == {"vault.key", "vault.key.lock"}
    assert "IT IS KEPT" in admin("run", task).stdout
    lines = json.loads(admin("audit", "--output", "json").stdout)
    told = [line["outcome"] for line in lines if line["action"] == "vault rotate"]
    assert told == ["done", "begun", "begun"]


def test_a_rotation_that_would_break_something_is_refused(tmp_path: Path) -> None:
    shell = Shell(tmp_path / "home", tmp_path)
    nothing = shell.inside("vault", "rotate")
    assert nothing.returncode != 0
    assert "No platform lives in" in nothing.stderr
    assert not (tmp_path / "home").exists()
    shell.home.mkdir()
    (shell.home / "vault.key").touch()
    several = shell.inside("vault", "rotate", "--database", "postgresql://yunhe@db/yunhe")
    assert several.returncode != 0
    assert "--until prepared" in several.stderr
    shown = shell.inside("vault", "rotate", "--database", "postgresql://yunhe:hunter2@db/yunhe")
    assert shown.returncode != 0
    assert "hunter2" not in shown.stdout + shown.stderr
