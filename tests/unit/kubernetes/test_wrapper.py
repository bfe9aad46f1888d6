"""The text that runs the steps, run by this machine's own shells."""

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from yunhe.infrastructure.kubernetes.step_marks import StepMarks
from yunhe.infrastructure.kubernetes.wrapper import WRAPPER, command, unexpanded

SHELLS = [shell for shell in ("dash", "bash", "busybox") if shutil.which(shell)]


class Task:
    """Steps as the container has them."""

    def __init__(self, folder: Path, *scripts: str) -> None:
        self.folder = folder
        for number, script in enumerate(scripts, start=1):
            file = folder / str(number)
            file.write_text(script)
            file.chmod(0o755)
        self.names = [f"step-{number}" for number in range(1, len(scripts) + 1)]

    def start(self, shell: str) -> subprocess.Popen[bytes]:
        argv = command("alloc_1", str(self.folder), str(self.folder / "note"), self.names)
        argv[0:1] = ["busybox", "sh"] if shell == "busybox" else [shell]
        return subprocess.Popen(argv, stdout=subprocess.PIPE, cwd=self.folder, start_new_session=True)

    def run(self, shell: str) -> tuple[int, bytes, str]:
        process = self.start(shell)
        output, _ = process.communicate(timeout=20)
        marks = StepMarks("alloc_1")
        clean = marks.feed(output) + marks.end()
        return process.returncode, clean, (self.folder / "note").read_text()


@pytest.mark.parametrize("shell", SHELLS)
def test_the_first_step_that_fails_ends_it_and_is_named(tmp_path: Path, shell: str) -> None:
    task = Task(tmp_path, "echo one\n", "echo two >&2\nexit 9\n", "echo three\n")
    assert task.run(shell) == (9, b"one\ntwo\n", "step-2")


@pytest.mark.parametrize("shell", SHELLS)
def test_steps_that_succeed_end_it_with_zero(tmp_path: Path, shell: str) -> None:
    assert Task(tmp_path, "printf a", "printf b").run(shell) == (0, b"ab", "step-2")


@pytest.mark.parametrize("shell", SHELLS)
def test_a_step_that_a_signal_ends_is_told_as_shells_do(tmp_path: Path, shell: str) -> None:
    assert Task(tmp_path, "kill -9 $$").run(shell)[0] == 137


@pytest.mark.parametrize("shell", SHELLS)
def test_nothing_but_the_steps_writes_to_the_log(tmp_path: Path, shell: str) -> None:
    assert Task(tmp_path, "echo begun\nkill -9 $$").run(shell)[1] == b"begun\n"


@pytest.mark.parametrize("shell", SHELLS)
def test_a_step_is_a_script_of_what_its_first_line_says_else_of_bash(tmp_path: Path, shell: str) -> None:
    asks = "echo ${BASH_VERSION:+bash}"
    task = Task(tmp_path, asks, f"#!/bin/bash\n{asks}", "#!/usr/bin/env python3\nprint('python')")
    assert task.run(shell)[1] == b"bash\nbash\npython\n"


@pytest.mark.parametrize(("step", "code"), [("exit 5", 5), ("exit 0", 143)])
@pytest.mark.parametrize("shell", SHELLS)
def test_a_step_that_hears_the_polite_signal_says_how_it_ended_and_the_next_does_not_begin(
    tmp_path: Path, shell: str, step: str, code: int
) -> None:
    task = Task(tmp_path, f"trap '{step}' TERM\necho ready\nwhile :; do sleep 5 & wait $!; done", "echo next")
    process = task.start(shell)
    assert process.stdout is not None
    said = b""
    while b"ready" not in said:
        said += os.read(process.stdout.fileno(), 4096)
    os.kill(process.pid, signal.SIGTERM)
    rest, _ = process.communicate(timeout=10)
    assert (process.returncode, rest) == (code, b"")


@pytest.mark.parametrize("shell", SHELLS)
def test_the_polite_signal_reaches_the_steps_and_what_they_started(tmp_path: Path, shell: str) -> None:
    task = Task(
        tmp_path,
        "sh -c 'trap \"echo child heard; exit\" TERM; echo ready; while :; do sleep 0.1; done'",
        "echo next",
    )
    process = task.start(shell)
    assert process.stdout is not None
    said = b""
    while b"ready" not in said:
        said += os.read(process.stdout.fileno(), 4096)
    os.kill(process.pid, signal.SIGTERM)
    rest, _ = process.communicate(timeout=10)
    assert b"child heard" in rest
    assert b"next" not in rest
    assert process.returncode == 143


@pytest.mark.parametrize("shell", SHELLS)
def test_what_ignores_the_polite_signal_is_waited_for(tmp_path: Path, shell: str) -> None:
    task = Task(tmp_path, 'trap "" TERM\necho ready\nsleep 1\necho survived\n')
    process = task.start(shell)
    assert process.stdout is not None
    said = b""
    while b"ready" not in said:
        said += os.read(process.stdout.fileno(), 4096)
    began_at = time.monotonic()
    os.kill(process.pid, signal.SIGTERM)
    rest, _ = process.communicate(timeout=10)
    assert b"survived" in rest
    assert time.monotonic() - began_at > 0.7


def test_the_kubelet_finds_nothing_to_expand_in_it() -> None:
    assert "$(" not in WRAPPER
    assert "$$" not in WRAPPER


def kubelet_expands(text: str) -> str:
    """Expand as k8s.io/kubernetes/third_party/forked/golang/expansion does where no variable is known."""
    out, position = "", 0
    while position < len(text):
        if text[position] == "$" and position + 1 < len(text):
            following = text[position + 1]
            if following == "$":
                out, position = out + "$", position + 2
                continue
            if following == "(" and ")" in text[position + 2 :]:
                end = text.index(")", position)
                out, position = out + "EXPANDED", end + 1
                continue
        out, position = out + text[position], position + 1
    return out


@given(text=st.text(alphabet="$() aHOME", max_size=20))
def test_what_the_kubelet_expands_comes_out_as_it_was(text: str) -> None:
    assert kubelet_expands(unexpanded(text)) == text
