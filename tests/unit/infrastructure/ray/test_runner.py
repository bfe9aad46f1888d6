"""What runs on a node, as Ray would run it, but without Ray: packages unpacked, a log to write to, signals."""

import io
import json
import os
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from yunhe.agent.runs.directory import Run
from yunhe.conformance.caller import archive_of
from yunhe.infrastructure.contract.model import LaunchOrder, Step
from yunhe.infrastructure.ray.node.report import Reporter
from yunhe.infrastructure.ray.node.runner import KEY, make_home, open_secrets, sweep
from yunhe.infrastructure.ray.package import (
    Package,
    Sealed,
    order_package,
    runner_package,
    seal_secrets,
    upload_package,
)
from yunhe.kernel.ids import AllocationId, NodeId, ProjectId
from yunhe.kernel.resources import Resources

ID = "alloc_1"
PATIENCE_S = 30.0


class RayLike:
    """A node's directories, and a job started in them as Ray starts one."""

    def __init__(self, directory: Path) -> None:
        self.session = directory / "session"
        self.logs = self.session / "logs"
        self.logs.mkdir(parents=True)
        self._packages = directory / "packages"
        self.jobs: list[subprocess.Popen[bytes]] = []

    def start(self, order: LaunchOrder, *uploads: Package, sweep: list[str] | None = None) -> Any:
        sealed = seal_secrets(order.secrets)
        modules = [order_package(order, sealed, sweep or []), *uploads]
        paths = [self._unpack(package) for package in modules]
        working = self._unpack(runner_package())
        with (self.logs / f"job-driver-{order.allocation_id}.log").open("wb") as log:
            job = subprocess.Popen(
                [sys.executable, "-m", "yunhe.infrastructure.ray.node"],
                cwd=working,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env={
                    "PATH": os.environ["PATH"],
                    "PYTHONPATH": os.pathsep.join(map(str, [working, *paths])),
                    KEY: sealed.key,
                    "RAY_ADDRESS": "127.0.0.1:1",
                },
            )
        self.jobs.append(job)
        return job

    def _unpack(self, package: Package) -> Path:
        folder = self._packages / package.name.removesuffix(".zip")
        with zipfile.ZipFile(io.BytesIO(package.data)) as archive:
            archive.extractall(folder)
        return folder

    def file(self, name: str) -> Path:
        """Return a file as Ray serves it: below the log directory."""
        return self.logs / "yunhe" / ID / name

    def report(self) -> dict[str, Any]:
        try:
            return json.loads(self.file("report.json").read_text())
        except FileNotFoundError:
            return {"ended": None, "step": "", "started_at": None}

    def log(self) -> bytes:
        segments = (path for path in sorted(self.file("log").iterdir()) if path.suffix != ".marks")
        return b"".join(path.read_bytes() for path in segments)

    def until(self, happened: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            if happened(report := self.report()):
                return report
            time.sleep(0.02)
        raise AssertionError(self.report(), (self.logs / f"job-driver-{ID}.log").read_text())


@pytest.fixture
def ray(tmp_path: Path) -> Generator[RayLike, None, None]:
    node = RayLike(tmp_path)
    yield node
    for job in node.jobs:
        job.kill()
        job.wait()


def order(*scripts: str, **fields: Any) -> LaunchOrder:
    chosen: dict[str, Any] = {"resources": Resources(), **fields}
    return LaunchOrder(
        allocation_id=AllocationId(ID),
        token=1,
        project_id=ProjectId("p"),
        node_id=NodeId("n"),
        steps=tuple(Step(name=f"step-{n}", script=f"{text}\n") for n, text in enumerate(scripts, start=1)),
        **chosen,
    )


def test_steps_run_in_order_and_the_first_that_fails_ends_it(ray: RayLike) -> None:
    job = ray.start(order("echo one > note\necho one", "cat note\nexit 9", "echo three"))
    assert job.wait(PATIENCE_S) == 9
    report = ray.report()
    assert (report["ended"]["exit_code"], report["ended"]["ending"], report["step"]) == (9, "done", "step-2")
    assert ray.log() == b"one\none\n"
    assert report["log_bytes"] == 8
    assert report["meters"]["wall_ms"] > 0
    (minute,) = ray.file("minutes.jsonl").read_text().splitlines()
    assert json.loads(minute)["seq"] == report["last_minute"]


def test_output_is_kept_byte_by_byte(ray: RayLike) -> None:
    job = ray.start(order(r"printf 'a\r\n\377\000b'"))
    assert job.wait(PATIENCE_S) == 0
    assert ray.log() == b"a\r\n\xff\x00b"


def test_secrets_and_environment_reach_the_steps_and_our_own_does_not(ray: RayLike) -> None:
    script = f'test "$TOKEN" = hush\ntest "$GREETING" = "a b"\ntest -z "${KEY}"\ntest -z "$PYTHONPATH"\npwd'
    job = ray.start(order(script, envs={"GREETING": "a b"}, secrets={"TOKEN": "hush"}))
    assert job.wait(PATIENCE_S) == 0
    assert ray.log().decode().strip() == str(ray.session / "yunhe" / ID / "work")
    on_disk = [path for path in ray.session.parent.rglob("*") if path.is_file()]
    assert not [path for path in on_disk if path.suffix != ".pyc" and b'TOKEN": "hush' in path.read_bytes()]


def test_archives_are_unpacked_where_they_belong(ray: RayLike) -> None:
    first = upload_package("data", archive_of({"a.txt": b"old\n", "b.txt": b"kept\n"}))
    second = upload_package("data", archive_of({"a.txt": b"new\n"}))
    assert ray.start(order("cat data/a.txt data/b.txt"), first, second).wait(PATIENCE_S) == 0
    assert ray.log() == b"new\nkept\n"


def test_an_archive_that_leads_out_is_not_run_beside(ray: RayLike) -> None:
    bad = upload_package("data", archive_of({"../../evil.txt": b"evil\n"}))
    assert ray.start(order("echo ran"), bad).wait(PATIENCE_S) == 125
    report = ray.report()
    assert "could not start" in report["ended"]["detail"]
    assert report["log_bytes"] == 0


def test_a_timeout_ends_it(ray: RayLike) -> None:
    job = ray.start(order("echo started\nsleep 60", timeout_s=0.5))
    assert job.wait(PATIENCE_S) == 124
    assert ray.report()["ended"]["ending"] == "timed-out"


def test_ray_s_signal_is_passed_on_once_and_the_end_is_recorded(ray: RayLike) -> None:
    job = ray.start(
        order('trap "echo asked" TERM\necho ready\nfor n in 1 2 3 4 5 6 7 8 9; do sleep 0.2; done')
    )
    ray.until(lambda report: report.get("log_bytes", 0) > 0)
    os.kill(job.pid, signal.SIGTERM)
    assert job.wait(PATIENCE_S) == 143
    assert ray.report()["ended"]["ending"] == "stopped"
    assert ray.log().count(b"asked") == 1


def test_when_the_runner_is_killed_nothing_of_the_allocation_runs_on(ray: RayLike) -> None:
    job = ray.start(order("echo $$ > pid\nsleep 60 & echo $! >> pid\nwait"))
    ray.until(lambda report: report["step"] == "step-1" and (ray.file("work/pid")).exists())
    deadline = time.monotonic() + PATIENCE_S
    while len(pids := ray.file("work/pid").read_text().split()) < 2 and time.monotonic() < deadline:
        time.sleep(0.02)
    os.killpg(job.pid, signal.SIGKILL)
    while any(lives(int(pid)) for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert [pid for pid in pids if lives(int(pid))] == []
    assert ray.report()["ended"] is None, "nobody may say how it ended"


def test_a_second_runner_of_the_same_allocation_starts_nothing(ray: RayLike) -> None:
    assert ray.start(order("echo ran")).wait(PATIENCE_S) == 0
    before = ray.report()
    assert ray.start(order("echo ran")).wait(PATIENCE_S) == 70
    assert ray.report() == before
    assert ray.log() == b"ran\n"


def test_what_was_released_is_swept_by_the_next(ray: RayLike) -> None:
    home = Path(make_home(str(ray.logs)))
    for name in ("alloc_old", "alloc_other"):
        (home / name).mkdir()
    assert ray.start(order("true"), sweep=["alloc_old"]).wait(PATIENCE_S) == 0
    assert sorted(path.name for path in home.iterdir()) == [ID, "alloc_other"]


def test_what_ended_long_ago_is_swept_and_what_runs_is_not(tmp_path: Path) -> None:
    for name, ended in (("old", {"ended_at": 1.0}), ("new", {"ended_at": time.time()}), ("live", None)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "report.json").write_text(json.dumps({"ended": ended}))
    sweep(str(tmp_path), [])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["live", "new"]


@settings(max_examples=40)
@given(st.dictionaries(st.text(), st.text()))
def test_what_was_sealed_is_opened_by_its_key_alone(values: dict[str, str]) -> None:
    sealed = seal_secrets(values)
    assert open_secrets(sealed.text, sealed.key) == values
    assert seal_secrets(values).key != sealed.key


def test_the_same_content_gives_the_same_package() -> None:
    sealed = Sealed("", "00")
    assert order_package(order("true"), sealed, []) == order_package(order("true"), sealed, [])
    assert order_package(order("true"), sealed, []).name != order_package(order("false"), sealed, []).name
    runner_package.cache_clear()
    first = runner_package()
    runner_package.cache_clear()
    assert runner_package() == first


def lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_what_was_used_up_to_the_end_counts_even_if_a_sample_was_taken_after_it(tmp_path: Path) -> None:
    run = Run(str(tmp_path), ID)
    run.make(os.getuid())
    run.create_record("start", {"started_at": 1.0, "started_clock_ms": 1000})
    reporter = Reporter(run, os.getpid())
    reporter.tick()  # its clock is that of this machine, long after the end below
    counters = {"cpu_us": 10**12, "read_bytes": 0, "written_bytes": 2**40, "memory_peak_kib": None}
    ended = {"exit_code": 0, "ending": "done", "step": "run", "detail": "", "log_bytes": 0}
    reporter.finish({**ended, **counters, "ended_at": 3.0, "ended_clock_ms": 3000})
    told = json.loads(Path(run.at("report.json")).read_text())["meters"]
    assert (told["cpu_us"], told["written_bytes"]) == (10**12, 2**40)
