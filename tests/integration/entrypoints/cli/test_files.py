"""Files of a task: what changed is sent and no more, what is ignored stays behind and is told, and a death loses nothing."""

import hashlib
import os
import signal
import sqlite3
import subprocess
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import msgspec
import pytest

from integration.entrypoints.cli.conftest import YUNHE, Shell, free_port
from yunhe.entrypoints.cli.session.context import Config, Context
from yunhe.entrypoints.client import Client
from yunhe.kernel.quotas import QuotaName
from yunhe.kernel.units import MIB

UPLOADING = ("chunks-before-commit", "chunks-after-commit", "archive-before-commit", "archive-after-commit")


def sent_bytes(client: Client) -> int:
    """Return what was uploaded today."""
    uses = client.project("default").quotas
    return next(use.used or 0 for use in uses if use.name is QuotaName.UPLOAD_BYTES_PER_DAY)


def task_in(folder: Path, run: str) -> Path:
    path = folder / "task.yaml"
    path.write_text(
        f"name: files\nresources: {{cpus: 0.1, memory: 256MB}}\nworkdir: {folder / 'work'}\nrun: |\n  {run}\n"
    )
    return path


def digests_in(work: Path) -> str:
    """Return what sha256sum says of every file, sorted."""
    files = sorted(str(path.relative_to(work)) for path in work.rglob("*") if path.is_file())
    return "".join(f"{hashlib.sha256((work / name).read_bytes()).hexdigest()}  ./{name}\n" for name in files)


SUMS = "find . -type f -o -type l | LC_ALL=C sort | xargs sha256sum"


def test_a_job_finds_the_files_with_modes_links_and_empty_folders(admin: Shell, tmp_path: Path) -> None:
    work = tmp_path / "work"
    (work / "sub" / "empty").mkdir(parents=True)
    (work / "run.sh").write_text("echo from the script")
    (work / "run.sh").chmod(0o755)
    (work / "sub" / "data").write_bytes(Random(1).randbytes(3 * MIB))
    (work / "link").symlink_to("sub/data")
    done = admin("run", "-y", task_in(tmp_path, f"./run.sh; ls -d sub/empty; readlink link; {SUMS}"))
    assert done.returncode == 0, done.stderr
    said, _, sums = done.stdout.partition("sub/data\n")
    assert said == "from the script\nsub/empty\n"
    assert sums == digests_in(work)


def test_of_a_workdir_with_one_byte_changed_one_chunk_is_sent(admin: Shell, tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    for number in range(6):
        (work / f"part{number}").write_bytes(Random(100 + number).randbytes(5 * MIB))
    task = task_in(tmp_path, SUMS)
    with admin.client() as client:
        before = sent_bytes(client)
        assert admin("run", "-d", "-y", task).returncode == 0
        first = sent_bytes(client) - before
        assert 30 * MIB < first < 31 * MIB
        assert admin("run", "-d", "-y", task).returncode == 0
        assert sent_bytes(client) - before == first
        with (work / "part3").open("r+b") as file:
            file.seek(2 * MIB)
            file.write(b"!")
        done = admin("run", "-y", task)
        assert done.returncode == 0, done.stderr
        assert done.stdout == digests_in(work)
        assert 0 < sent_bytes(client) - before - first <= MIB + 10_000
    with sqlite3.connect(admin.home / "yunhe.db") as database:
        assert database.execute("SELECT count(*) FROM blob_chunk").fetchone() == (0,)
    kept = sum(path.stat().st_size for path in (admin.home / "files").rglob("*") if path.is_file())
    assert kept >= 30 * MIB
    assert all(path.stat().st_mode & 0o077 == 0 for path in (admin.home / "files").rglob("*"))


def test_what_is_ignored_stays_behind_and_is_told_by_plan_too(admin: Shell, tmp_path: Path) -> None:
    work = tmp_path / "work"
    (work / ".git").mkdir(parents=True)
    (work / ".git" / "HEAD").write_text("ref")
    (work / ".gitignore").write_text("secret.env\n")
    (work / "secret.env").write_text("TOKEN=hunter2")
    (work / "a.py").write_text("")
    task = task_in(tmp_path, "ls -A")
    told = f"left out of {work}: .git/, secret.env (2 files, 16 B); --all-files sends everything"
    planned = admin("plan", task)
    assert told in planned.stderr
    assert "left out" not in planned.stdout
    ran = admin("run", "-y", task)
    assert told in ran.stderr
    assert ran.stdout.split() == [".gitignore", "a.py"]
    every = admin("run", "-y", "--all-files", task)
    assert "left out" not in every.stderr
    assert every.stdout.split() == [".git", ".gitignore", "a.py", "secret.env"]


def test_twenty_thousand_small_files_arrive_and_one_that_changed_is_sent_in_its_pack(
    admin: Shell, tmp_path: Path
) -> None:
    work, rng = tmp_path / "work", Random(9)
    for number in range(20_000):
        path = work / f"d{number % 100:02d}" / f"{number}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(rng.randbytes(rng.randrange(1000)))
    task = task_in(tmp_path, "find . -type f | wc -l; cat d42/*.txt | sha256sum")
    with admin.client() as client:
        done = admin("run", "-y", task, timeout_s=300)
        assert done.returncode == 0, done.stderr
        content = b"".join(path.read_bytes() for path in sorted((work / "d42").iterdir()))
        assert done.stdout == f"20000\n{hashlib.sha256(content).hexdigest()}  -\n"
        first = sent_bytes(client)
        (work / "d42" / "42.txt").write_bytes(b"changed")
        assert admin("run", "-d", "-y", task, timeout_s=300).returncode == 0
        assert 0 < sent_bytes(client) - first <= MIB


@contextmanager
def serving(shell: Shell, port: int, **environment: str) -> Generator[subprocess.Popen[bytes]]:
    """Run a server of its own that may be killed."""
    process = subprocess.Popen(
        [*YUNHE, "serve", "--port", str(port), "--no-log-stderr"],
        env=shell.environment | environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        with Client(f"http://127.0.0.1:{port}", patience_s=60) as client:
            client.ready()
        key = (shell.home / "first.key").read_text().strip()
        config = Config(contexts={"local": Context(url=f"http://127.0.0.1:{port}", key=key)})
        (shell.home / "config.json").write_bytes(msgspec.json.encode(config))
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()


@pytest.fixture
def alone(tmp_path: Path) -> Shell:
    return Shell(tmp_path / "alone", tmp_path)


def no_garbage_for_good(home: Path) -> None:
    """Every file has a row or is written down as garbage, and every row has its file."""
    files = {path.name for path in (home / "files").rglob("*") if path.is_file()}
    with sqlite3.connect(home / "yunhe.db") as database:
        kept = {name for (name,) in database.execute("SELECT name FROM chunk")}
        garbage = {name for (name,) in database.execute("SELECT name FROM blob_garbage")}
        weight = database.execute("SELECT sum(max(size_bytes, 4096)) FROM chunk").fetchone()[0] or 0
        weight += database.execute("SELECT sum(list_bytes) FROM blob").fetchone()[0] or 0
        used = database.execute("SELECT used FROM project_use WHERE name = 'blob_bytes'").fetchone()
    assert kept <= files <= kept | garbage
    assert (used[0] if used else 0) == weight


def test_a_server_killed_at_any_step_of_an_upload_loses_nothing(alone: Shell, tmp_path: Path) -> None:
    work, marks, port = tmp_path / "work", tmp_path / "marks", free_port()
    work.mkdir()
    marks.mkdir()
    (work / "data").write_bytes(Random(3).randbytes(9 * MIB))
    task = task_in(tmp_path, "true")
    for point in UPLOADING:
        asked = {"YUNHE_FAILPOINT": point, "YUNHE_FAILPOINT_DIR": str(marks)}
        with serving(alone, port, **asked) as server:
            done = alone("run", "-d", "-y", "-o", "json", task)
            assert done.returncode not in (0, None)
            assert server.wait(30) == -signal.SIGKILL, point
        no_garbage_for_good(alone.home)
    with serving(alone, port):
        done = alone("run", "-d", "-y", "-o", "json", task)
        assert done.returncode == 0, done.stderr
        with alone.client() as client:
            assert sent_bytes(client) <= 2 * 9.1 * MIB
            assert len(list(client.jobs())) == 1
    no_garbage_for_good(alone.home)


@pytest.mark.parametrize("what", ["server killed", "interrupted"])
def test_an_upload_that_was_cut_off_goes_on_where_it_ended(alone: Shell, tmp_path: Path, what: str) -> None:
    work, port, size = tmp_path / "work", free_port(), 120 * MIB
    work.mkdir()
    (work / "data").write_bytes(b"".join(Random(seed).randbytes(MIB) for seed in range(120)))
    task = task_in(tmp_path, "true")
    with serving(alone, port) as server:
        process = subprocess.Popen(
            [*YUNHE, "run", "-d", "-y", "-o", "json", str(task)],
            env=alone.environment,
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        with alone.client() as client:
            while sent_bytes(client) < 10 * MIB:
                assert process.poll() is None, process.communicate()
                time.sleep(0.02)
        if what == "interrupted":
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=60)
            assert process.returncode == 130, errors
            assert "what was sent is not sent again" in errors
        else:
            server.kill()
            _, errors = process.communicate(timeout=60)
            assert process.returncode not in (0, None), errors
    no_garbage_for_good(alone.home)
    with serving(alone, port), alone.client() as client:
        there = sent_bytes(client)
        assert 10 * MIB <= there < size
        done = alone("run", "-d", "-y", "-o", "json", str(task))
        assert done.returncode == 0, done.stderr
        assert sent_bytes(client) - there < size - 9 * MIB
        assert len(list(client.jobs())) == 1
    no_garbage_for_good(alone.home)


def test_a_terminal_shows_how_many_bytes_were_sent_and_a_pipe_nothing(alone: Shell, tmp_path: Path) -> None:
    work, port = tmp_path / "work", free_port()
    work.mkdir()
    (work / "data").write_bytes(Random(5).randbytes(40 * MIB))
    task = task_in(tmp_path, "true")
    with serving(alone, port):
        ours, theirs = os.openpty()
        seen = bytearray()

        def read() -> None:
            while True:
                try:
                    seen.extend(os.read(ours, 65536))
                except OSError:
                    return

        reader = threading.Thread(target=read)
        process = subprocess.Popen(
            [*YUNHE, "run", "-d", "-y", "-o", "json", str(task)],
            env=alone.environment | {"TERM": "xterm", "COLUMNS": "120"},
            cwd=tmp_path,
            stdout=subprocess.DEVNULL,
            stderr=theirs,
        )
        os.close(theirs)
        reader.start()
        assert process.wait(60) == 0
        reader.join(10)
        os.close(ours)
        assert b"sending" in seen
        assert b"/40.0 MiB" in seen
        (work / "data").write_bytes(Random(6).randbytes(40 * MIB))
        piped = alone("run", "-d", "-y", "-o", "json", task)
        assert (piped.returncode, piped.stderr) == (0, "")
