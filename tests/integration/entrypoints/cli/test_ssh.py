"""``yunhe ssh`` is called as ssh is, by people and by programs."""

import os
import shutil
import subprocess
from collections.abc import Generator
from pathlib import Path

import pytest

from integration.control.plugins.processes import until
from integration.entrypoints.cli.conftest import YUNHE, Platform, Shell
from yunhe.scheduling.orchestration.jobs.states import JobState


@pytest.fixture(scope="module")
def entered(platform: Platform) -> Generator[Shell]:
    shell = platform.admin
    words = ("run", "-y", "-d", "--name", "entered", "--", "sh", "-c", "echo in > note.txt; sleep 300")
    assert shell.inside(*words).returncode == 0

    def runs() -> bool:
        with shell.client() as client:
            return next(iter(client.jobs(name="entered"))).state is JobState.RUNNING

    until(runs)
    yield shell
    shell.inside("stop", "-y", "entered")


def test_a_command_is_read_by_a_shell_in_the_job_and_its_exit_code_comes_back(entered: Shell) -> None:
    done = entered("ssh", "entered", "cat", "note.txt", "|", "tr", "i", "I;", "exit", "7")
    assert (done.returncode, done.stdout) == (7, "In\n")
    after_dashes = entered("ssh", "entered", "--", "ls", "-1")
    assert (after_dashes.returncode, after_dashes.stdout) == (0, "note.txt\n")
    assert entered("ssh", "entered", "wc -c", typed="x" * 100_000).stdout.strip() == "100000"


def test_its_input_may_be_a_file_or_nothing(entered: Shell, tmp_path: Path) -> None:
    (tmp_path / "typed").write_text("from a file\n")
    for source, heard in ((str(tmp_path / "typed"), b"from a file\n"), (os.devnull, b"")):
        with Path(source).open("rb") as given:
            words = [*YUNHE, "ssh", "entered", "cat"]
            done = subprocess.run(
                words, stdin=given, cwd=entered.cwd, env=entered.environment, capture_output=True, check=False
            )
        assert (done.returncode, done.stdout) == (0, heard), done.stderr


def test_a_shell_has_a_terminal_that_follows_the_window(entered: Shell) -> None:
    with entered.terminal("ssh", "entered", size=(30, 90)) as terminal:
        terminal.until(b"$ ")
        terminal.type(b"stty size; cat note.txt\n")
        seen = terminal.until(b"30 90")
        terminal.resize(40, 100)
        terminal.type(b"while test \"$(stty size)\" = '30 90'; do sleep 0.1; done; stty size; exit 9\n")
        seen += terminal.until(b"40 100")
        assert b"in\r\n" in seen
        assert terminal.process.wait(timeout=30) == 9


@pytest.mark.skipif(shutil.which("rsync") is None, reason="rsync is not installed")
def test_rsync_goes_through_it_both_ways(entered: Shell, tmp_path: Path) -> None:
    (tmp_path / "sent").mkdir()
    data = os.urandom(3_000_000)
    (tmp_path / "sent" / "with a blank").write_bytes(data)
    for source, target in ((f"{tmp_path}/sent/", "entered:kept/"), ("entered:kept/", f"{tmp_path}/back/")):
        done = subprocess.run(
            ["rsync", "-a", "-e", f"{' '.join(YUNHE)} ssh", source, target],
            env=entered.environment,
            cwd=entered.cwd,
            capture_output=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stderr
    assert (tmp_path / "back" / "with a blank").read_bytes() == data
