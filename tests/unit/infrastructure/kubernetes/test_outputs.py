"""What is fetched from a directory, by this machine's own shells and tar, and by the agent for comparison."""

import io
import os
import shutil
import socket
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import msgspec
import pytest

from yunhe.agent.files.packing import pack
from yunhe.conformance.caller import files_in
from yunhe.infrastructure.kubernetes.api.shapes import Pod
from yunhe.infrastructure.kubernetes.files.outputs import FETCH, repack, shell_patterns, within_reach
from yunhe.kernel.errors import ConflictError, NotFoundError
from yunhe.kernel.ids import AllocationId

SHELLS = [shell for shell in ("dash", "bash", "busybox") if shutil.which(shell)]


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """A directory with everything that could go wrong."""
    (tmp_path / "secret.txt").write_text("outside\n")
    folder = tmp_path / "work"
    for name in ("one.txt", "-two.txt", ".hidden.txt", "a b.txt", "run.log", "$(id).txt", "new\nline.txt"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(f"{name}\n")
    for name in ("deep/x/1.csv", "deep/y/2.csv", "deep/y/.3.csv", "deep/readme"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)
    (folder / "out.txt").symlink_to("../secret.txt")
    (folder / "away").symlink_to(tmp_path)
    (folder / "in.txt").symlink_to("deep/readme")
    os.link(folder / "one.txt", folder / "same.txt")
    os.mkfifo(folder / "pipe.txt")
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(folder / "socket.txt"))
    return folder


def fetched(shell: str, work: Path, *patterns: str) -> dict[str, bytes]:
    """Return the members that come: content, or where a link leads."""
    first = [str(shutil.which("busybox")), "sh"] if shell == "busybox" else [shell]
    argv = [*first, "-c", FETCH, "yunhe", str(work), *shell_patterns(patterns)]
    done = subprocess.run(argv, stdout=subprocess.PIPE, timeout=30, check=False)
    assert done.returncode == 0
    plain, packed = io.BytesIO(done.stdout), io.BytesIO()
    plain.seek(0, 2)
    repack(plain, packed, [pattern.split("/") for pattern in patterns])
    return members(packed.getvalue())


def members(archive: bytes) -> dict[str, bytes]:
    with tarfile.open(fileobj=io.BytesIO(archive), mode="r:gz") as tar:
        links = {member.name: member.linkname.encode() for member in tar if member.issym()}
        folders = {member.name: b"" for member in tar if member.isdir()}
    return files_in(archive) | links | folders


def by_agent(work: Path, *patterns: str) -> dict[str, bytes]:
    """Return what an agent would send for the same patterns."""
    reader, writer = os.pipe()
    pack(str(work), list(patterns), writer)
    with os.fdopen(reader, "rb") as file:
        return members(file.read())


PATTERNS = [
    ("*.txt",),
    ("one.txt", "nowhere/*", "one.txt"),
    ("?two.txt", "?hidden.txt"),
    ("deep",),
    ("deep/*/*.csv",),
    ("**/*.csv",),
    ("deep/**",),
    ("deep/**/2.csv", "run.log"),
    ("away/*", "away"),
    ("[a-r]*.log",),
    ("",),
    ("nothing",),
]


@pytest.mark.parametrize("patterns", PATTERNS, ids=" ".join)
@pytest.mark.parametrize("shell", SHELLS)
def test_a_pattern_fetches_what_it_does_on_a_host(shell: str, work: Path, patterns: tuple[str, ...]) -> None:
    assert fetched(shell, work, *patterns) == by_agent(work, *patterns)


@pytest.mark.parametrize("shell", SHELLS)
def test_nothing_of_what_links_lead_to_outside_comes(shell: str, work: Path) -> None:
    for patterns in [("*",), ("**/*.txt",), ("away/**",), ("away/secret.txt",), ("out.txt",), ("",)]:
        got = fetched(shell, work, *patterns)
        assert b"outside\n" not in got.values()
        assert not {"out.txt", "away", "away/secret.txt", "secret.txt"} & got.keys()


@pytest.mark.parametrize("shell", SHELLS)
def test_more_names_than_one_archive_takes_all_come(shell: str, tmp_path: Path) -> None:
    for number in range(1203):
        (tmp_path / f"{number}.txt").write_text(str(number))
    assert fetched(shell, tmp_path, "*.txt") == {f"{n}.txt": str(n).encode() for n in range(1203)}


def test_a_pattern_never_runs_anything(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    for text in ("$(touch ../evil)", "`touch ../evil`", "; touch ../evil", "x' ; touch ../evil ; '"):
        fetched("dash", tmp_path / "work", text)
    assert not (tmp_path / "evil").exists()


# From where


RUNNING: dict[str, Any] = {"running": {"startedAt": "2027-01-15T08:00:01Z"}}
ENDED: dict[str, Any] = {"terminated": {"exitCode": 0}}
WAITING: dict[str, Any] = {"waiting": {"reason": "ContainerCreating"}}


def pod(phase: str, **states: dict[str, Any]) -> Pod:
    body = {
        "spec": {"nodeName": "n", "containers": [{"name": name} for name in states]},
        "status": {
            "phase": phase,
            "containerStatuses": [{"name": name, "state": state} for name, state in states.items()],
        },
    }
    return msgspec.convert(body, Pod)


@pytest.mark.parametrize(
    ("seen", "where"),
    [
        (pod("Running", task=RUNNING), "task"),
        (pod("Running", task=RUNNING, keeper=RUNNING), "keeper"),
        (pod("Running", task=ENDED, keeper=RUNNING), "keeper"),
        (pod("Running", task=ENDED, keeper=WAITING), None),
    ],
)
def test_files_are_fetched_from_the_keeper_else_from_what_runs(seen: Pod, where: str | None) -> None:
    assert within_reach(AllocationId("a"), seen) == where


@pytest.mark.parametrize(
    ("seen", "problem"),
    [
        (None, "no pod of a"),
        (pod("Succeeded", task=ENDED), "went with its pod"),
        (pod("Failed", task=ENDED, keeper=ENDED), "are gone"),
        (pod("Running", task=ENDED, keeper=ENDED), "are gone"),
    ],
)
def test_files_that_are_gone_for_good_are_told_as_such(seen: Pod | None, problem: str) -> None:
    with pytest.raises(NotFoundError, match=problem):
        within_reach(AllocationId("a"), seen)


def test_files_of_what_has_yet_to_start_are_not_gone() -> None:
    with pytest.raises(ConflictError, match="has not started"):
        within_reach(AllocationId("a"), pod("Pending"))
