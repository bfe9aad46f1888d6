"""The text that runs the steps, run by this machine's own shells."""

import os
import resource
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from yunhe.conformance.caller import archive_of
from yunhe.infrastructure.kubernetes.files.outputs import FETCH
from yunhe.infrastructure.kubernetes.files.step_marks import StepMarks
from yunhe.infrastructure.kubernetes.objects.wrapper import (
    KEEPER,
    TIMED_OUT,
    USED,
    WRAPPER,
    Folders,
    Note,
    Used,
    command,
    read_note,
    unexpanded,
)

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

        self.unpack: list[str] = []
        self.timeout_s = 0
        self.grace_s = 10
        self.path = os.environ["PATH"]
        self.groups = "/sys/fs/cgroup"

    def bring(self, path: str, archive: bytes) -> None:
        """Lay an archive out as its volume does, in two pieces."""
        self.unpack.append(path)
        pieces = self.folder / "files" / str(len(self.unpack))
        pieces.mkdir(parents=True)
        (pieces / "0000").write_bytes(archive[:50])
        (pieces / "0001").write_bytes(archive[50:])

    def start(self, shell: str) -> subprocess.Popen[bytes]:
        folders = Folders(str(self.folder), str(self.folder / "note"), str(self.folder / "files"))
        limits = {"timeout_s": self.timeout_s, "grace_s": self.grace_s}
        argv = command("alloc_1", folders, self.names, unpack=self.unpack, **limits)
        assert "groups=/sys/fs/cgroup\n" in argv[2]
        argv[2] = argv[2].replace("groups=/sys/fs/cgroup\n", f"groups={self.groups}\n")
        argv[0:1] = [str(shutil.which("busybox")), "sh"] if shell == "busybox" else [str(shutil.which(shell))]
        return subprocess.Popen(
            argv,
            stdout=subprocess.PIPE,
            cwd=self.folder,
            start_new_session=True,
            env={**os.environ, "PATH": self.path},
        )

    def run(self, shell: str) -> tuple[int, bytes, str]:
        process = self.start(shell)
        output, _ = process.communicate(timeout=20)
        marks = StepMarks("alloc_1")
        clean = marks.feed(output) + marks.end()
        note, _, _ = self.note().partition(USED)
        return process.returncode, clean, note

    def note(self) -> str:
        return (self.folder / "note").read_text()


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


@pytest.mark.parametrize("shell", SHELLS)
def test_files_are_unpacked_in_order_before_the_first_step_and_are_its_own(
    tmp_path: Path, shell: str
) -> None:
    task = Task(tmp_path, "cat -- data/a data/deep/b '-x y/c'\numask")
    task.bring("data", archive_of({"a": b"old\n", "deep/b": b"beta\n"}))
    task.bring("data", archive_of({"a": b"new\n"}))
    task.bring("-x y", archive_of({"c": b"gamma\n"}))
    assert task.run(shell) == (0, b"new\nbeta\ngamma\n0077\n", "step-1")
    assert (tmp_path / "data").stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("shell", SHELLS)
def test_files_that_cannot_be_unpacked_are_told_as_such_and_no_step_begins(
    tmp_path: Path, shell: str
) -> None:
    task = Task(tmp_path, "echo begun")
    task.bring("data", b"not an archive" * 20)
    code, log, note = task.run(shell)
    assert (code, read_note(note).step) == (125, "")
    assert "could not be unpacked in ./data" in read_note(note).why
    assert log.endswith(read_note(note).why.encode() + b"\n")
    assert b"begun" not in log


def test_an_image_without_tar_is_told_as_such(tmp_path: Path) -> None:
    task = Task(tmp_path, "echo begun")
    task.bring("data", archive_of({"a": b"x"}))
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("expr", "mkdir", "cat"):
        (tools / name).symlink_to(str(shutil.which(name)))
    task.path = str(tools)
    code, log, note = task.run("dash")
    assert (code, log) == (125, read_note(note).why.encode() + b"\n")
    assert "no tar" in read_note(note).why


@pytest.mark.parametrize("shell", SHELLS)
def test_the_log_of_what_brought_files_begins_with_a_mark_too(tmp_path: Path, shell: str) -> None:
    task = Task(tmp_path, "echo begun")
    task.bring("", archive_of({"a": b"x"}))
    output, _ = task.start(shell).communicate(timeout=20)
    marks = StepMarks("alloc_1")
    assert marks.feed(output) + marks.end() == b"begun\n"
    assert (marks.begins_with_mark, marks.step_number) == (True, 1)


@pytest.mark.parametrize("shell", SHELLS)
def test_when_the_time_is_up_a_step_hears_it_once_and_the_note_says_so(tmp_path: Path, shell: str) -> None:
    step = "trap 'echo heard; sleep 0.3; exit 8' TERM\nwhile :; do sleep 5 & wait $!; done"
    task = Task(tmp_path, "true", step, "echo next")
    task.timeout_s = 1
    code, log, note = task.run(shell)
    assert (code, log, read_note(note)) == (8, b"heard\n", Note("step-2", TIMED_OUT))


@pytest.mark.parametrize("shell", SHELLS)
def test_what_ends_in_time_is_not_touched_by_its_timeout(tmp_path: Path, shell: str) -> None:
    task = Task(tmp_path, "echo one", "echo two")
    task.timeout_s = 1
    code, log, note = task.run(shell)
    assert (code, log, read_note(note)) == (0, b"one\ntwo\n", Note("step-2", ""))


@pytest.mark.parametrize("text", [WRAPPER, FETCH, KEEPER])
def test_the_kubelet_finds_nothing_to_expand_in_it(text: str) -> None:
    assert "$(" not in text
    assert "$$" not in text


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


SAVES = "trap 'sleep 0.2; echo saved; exit 0' TERM\nsh -c 'echo ready; exec sleep 30'\n"
"""It is ready when what it waits for is there too: whatever a shell starts after the signal does not hear it."""


def asked(task: Task, shell: str) -> tuple[int, bytes]:
    """Send the polite signal once the program is ready; return the exit code and what was printed after it."""
    process = task.start(shell)
    assert process.stdout is not None
    for line in process.stdout:
        if line == b"ready\n":
            break
    os.kill(process.pid, signal.SIGTERM)
    rest, _ = process.communicate(timeout=20)
    return process.returncode, rest


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize(
    "script", ["sh program\necho more\n", "sh program | tee copy\n", "sh program &\nwait\n"]
)
def test_a_program_below_the_shell_has_the_grace_to_save_its_work(
    tmp_path: Path, shell: str, script: str
) -> None:
    (tmp_path / "program").write_text(SAVES)
    code, rest = asked(Task(tmp_path, script, "echo next step\n"), shell)
    assert code == 143
    assert set(rest.splitlines()) - {b"Terminated"} == {
        b"saved"
    }  # a shell tells what a signal did to its children


@pytest.mark.parametrize("shell", SHELLS)
def test_a_program_that_does_not_end_is_forced_after_the_grace(tmp_path: Path, shell: str) -> None:
    (tmp_path / "program").write_text("trap '' TERM\necho ready\nsleep 30\necho never\n")
    task = Task(tmp_path, "sh program\n")
    task.grace_s = 1
    began = time.monotonic()
    code, rest = asked(task, shell)
    assert (code, rest) == (143, b"")
    assert 0.9 < time.monotonic() - began < 15


@pytest.mark.parametrize("shell", SHELLS)
def test_what_timed_out_saves_its_work_and_the_note_says_why(tmp_path: Path, shell: str) -> None:
    (tmp_path / "program").write_text(SAVES)
    task = Task(tmp_path, "sh program\n")
    task.timeout_s = 1
    code, output, note = task.run(shell)
    assert (code, output.replace(b"Terminated\n", b"")) == (143, b"ready\nsaved\n")
    assert read_note(note) == Note("step-1", TIMED_OUT)


BUSY = "i=0; while [ $i -lt 100000 ]; do i=$((i + 1)); done\n"
GROUPS = {
    "v2": {
        "cgroup.events": "populated 1",
        "cpu.stat": "usage_usec {cpu_us}\nuser_usec 1\nsystem_usec 1",
        "memory.peak": "{peak}",
        "io.stat": "8:0 rbytes={read} wbytes={written} rios=1 wios=1\n8:16 \n8:32 rbytes=1000 wbytes=0",
    },
    "v1": {
        "cpuacct/cpuacct.usage": "{cpu_us}000",
        "memory/memory.max_usage_in_bytes": "{peak}",
        "blkio/blkio.throttle.io_service_bytes": (
            "8:0 Read {read}\n8:0 Write {written}\n8:0 Total 9\n8:32 Read 1000\nTotal 9"
        ),
    },
}
"""The counters of a container's own group, as the kernel writes them."""


def lay_out(folder: Path, version: str, **figures: int) -> None:
    """Write the counters of a group."""
    for name, text in GROUPS[version].items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text.format(**figures) + "\n")


@pytest.mark.parametrize("version", GROUPS)
@pytest.mark.parametrize("shell", SHELLS)
def test_the_counters_of_the_containers_own_group_are_told_from_its_first_step_on(
    tmp_path: Path, shell: str, version: str
) -> None:
    group, later = tmp_path / "group", tmp_path / "later"
    lay_out(group, version, cpu_us=40_000, peak=2**20, read=0, written=0)
    lay_out(later, version, cpu_us=6_860_000, peak=5 * 2**20 + 1, read=2**40, written=4096)
    task = Task(tmp_path, f"cp -r {later}/. {group}\n", "exit 3")
    task.groups = str(group)
    assert task.run(shell)[0] == 3
    assert read_note(task.note()) == Note("step-2", "", Used(6_820_000, 6, 2**40 + 1000, 4096))


@pytest.mark.parametrize("shell", SHELLS)
def test_where_there_is_no_group_of_its_own_the_shells_times_are_told(tmp_path: Path, shell: str) -> None:
    lay_out(tmp_path / "group", "v1", cpu_us=10**12, peak=1, read=1, written=1)
    (tmp_path / "group/cpuacct/release_agent").touch()  # the root of all groups: everybody's use
    task = Task(tmp_path, BUSY, f"sh -c '{BUSY}'\nexit 4")
    task.groups = str(tmp_path / "group")
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert task.run(shell)[0] == 4
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    told = read_note(task.note()).used
    assert told is not None
    assert used_s > 0.05
    assert abs(told.cpu_us / 1e6 - used_s) < 0.05, (
        "but for the wrapper itself, to a hundredth of a second for each figure"
    )


@pytest.mark.parametrize("shell", SHELLS)
def test_what_a_step_writes_to_the_note_is_not_what_it_used(tmp_path: Path, shell: str) -> None:
    lay_out(tmp_path / "group", "v2", cpu_us=5_000_000, peak=2**20, read=1, written=1)
    later = f"echo usage_usec 9000000 > {tmp_path}/group/cpu.stat"
    task = Task(tmp_path, f"{later}\nprintf '\\0370 1 1 1 1' >> {tmp_path}/note")
    task.groups = str(tmp_path / "group")
    assert task.run(shell)[0] == 0
    used = read_note(task.note()).used
    assert used is not None
    assert used.cpu_us == 4_000_000


@pytest.mark.parametrize(
    "text", ["", "1 2 3 4", "-1 2 3 4 5", "1 2 3 4 9999999999999999999", "0m1.0s\n", "1e9 1 1 1 1", "\x1e"]
)
def test_figures_that_no_wrapper_writes_are_none(text: str) -> None:
    assert read_note(f"step-1{USED}{text}") == Note("step-1", "", None)
