"""The log of a real server process: what is in it, what never is, how loud and how long it gets."""

import json
import os
import pty
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from integration.entrypoints.api.server_process import process, wait_ready
from integration.entrypoints.api.serving import add_fake_pool, free_port
from yunhe.entrypoints.client import Client
from yunhe.observability.log_file import OLDER_FILES, log_files
from yunhe.runtime.settings import LogLevel, Settings, log_path
from yunhe.runtime.start import first_key_path
from yunhe.trading.applications.model import Submission
from yunhe.trading.demand.model import Task

SECRET = "hunter2 'and' \"more\" of it"
FAIL_ONCE = """
from yunhe.control.pools.service import PoolService
launch = PoolService.launch
async def fail_once(self, pool_id, order, mounts):
    PoolService.launch = launch
    raise RuntimeError(f"cannot launch {order}")
PoolService.launch = fail_once
"""


def read(home: Path) -> list[dict[str, Any]]:
    """Return every line of the log; each must be JSON."""
    return [json.loads(line) for file in log_files(log_path(home)) for line in file.read_bytes().splitlines()]


def wait_for(home: Path, wanted: Callable[[dict[str, Any]], bool], count: int = 1) -> list[dict[str, Any]]:
    """Return the lines that are *wanted* once there are *count*."""
    give_up = time.monotonic() + 20
    while time.monotonic() < give_up:
        found = [line for line in read(home) if wanted(line)] if log_path(home).exists() else []
        if len(found) >= count:
            return found
        time.sleep(0.05)
    raise AssertionError(f"not logged: {read(home)[-20:]}")


def test_each_request_has_one_line_with_the_id_of_its_answer(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path / "home", port=free_port())
    url = f"http://127.0.0.1:{settings.port}"
    with process(settings):
        wait_ready(url)
        key = first_key_path(settings.home).read_text().strip()
        headers = {"Authorization": f"Bearer {key}"}
        found = httpx.get(f"{url}/v1/jobs/job_0?x=1", headers=headers, trust_env=False)
        nothing = httpx.get(f"{url}/no/such/place", headers={"X-Request-Id": "mine-1"}, trust_env=False)
        ids = [answer.headers["X-Request-Id"] for answer in (found, nothing)]
        lines = wait_for(settings.home, lambda line: line.get("request_id") in ids, 2)
    assert [line["request_id"] for line in read(settings.home) if line.get("request_id") in ids] == ids
    assert ids[1] == "mine-1"
    shown = ("level", "logger", "method", "route", "status", "job_id")
    assert [tuple(line.get(name) for name in shown) for line in lines] == [
        ("info", "yunhe.access", "GET", "/v1/jobs/{job_id}", 400, "job_0"),
        ("info", "yunhe.access", "GET", "unmatched", 404, None),
    ]
    assert all(0 < line["duration_ms"] < 20_000 for line in lines)


def test_lines_of_the_driver_carry_the_job_and_no_line_a_secret(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path / "home", port=free_port(), log_level=LogLevel.DEBUG)
    url = f"http://127.0.0.1:{settings.port}"
    with process(settings, FAIL_ONCE):
        wait_ready(url)
        key = first_key_path(settings.home).read_text().strip()
        with Client(url, key) as client:
            add_fake_pool(client)
            client.set_secret("default", "DATABASE", SECRET)
            job = client.submit(Submission(task=Task(run="echo hi", secrets=("DATABASE",))))
            assert list(client.watch(job.id))[-1].state == "succeeded"
        ended = wait_for(settings.home, lambda line: line["message"] == "attempt ended")
    assert ended[0]["job_id"] == job.id
    failed = [line for line in read(settings.home) if line["level"] == "error"]
    assert [(line["message"], line["job_id"]) for line in failed] == [
        ("step failed, will be repeated", str(job.id))
    ]
    assert "RuntimeError: cannot launch LaunchOrder(" in failed[0]["traceback"]
    assert "secrets={'DATABASE': " in failed[0]["traceback"]
    text = log_path(settings.home).read_text()
    for secret in (SECRET, "hunter2", "more", key):
        assert json.dumps(secret)[1:-1] not in text, secret


def test_the_files_of_a_busy_server_stay_within_their_bound(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path / "home", port=free_port(), log_file_bytes=10_000)
    url = f"http://127.0.0.1:{settings.port}"
    with process(settings):
        wait_ready(url)
        key = first_key_path(settings.home).read_text().strip()
        with httpx.Client(trust_env=False, headers={"Authorization": f"Bearer {key}"}) as client:
            for number in range(300):
                client.get(f"{url}/v1/me", headers={"X-Request-Id": f"number-{number}"})
        wait_for(settings.home, lambda line: line.get("request_id") == "number-299")
        sizes = [file.stat().st_size for file in log_files(log_path(settings.home))]
    assert len(sizes) == OLDER_FILES + 1
    assert all(size <= 10_000 for size in sizes)
    assert len(list(settings.home.glob("server.log*"))) == OLDER_FILES + 1
    numbered = [line["request_id"] for line in read(settings.home) if "request_id" in line]
    assert numbered == [f"number-{number}" for number in range(300 - len(numbered), 300)]


@contextmanager
def serve(home: Path, *words: str, stderr: int, **environment: str) -> Generator[None]:
    """Run ``yunhe serve WORDS`` for one request."""
    port = free_port()
    command = [
        sys.executable,
        "-m",
        "yunhe.entrypoints.cli",
        "serve",
        "--home",
        str(home),
        "--port",
        str(port),
    ]
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("YUNHE_")}
    server = subprocess.Popen(
        [*command, *words],
        env={**inherited, "PYTHONPATH": ":".join(sys.path), **environment},
        stderr=stderr,
    )
    try:
        wait_ready(f"http://127.0.0.1:{port}")
        httpx.get(f"http://127.0.0.1:{port}/modules", trust_env=False)
        yield
    finally:
        server.terminate()
        assert server.wait(30) == 0


@pytest.mark.parametrize(
    ("words", "environment", "levels"),
    [
        ((), {}, {"info"}),
        (("--log-level", "debug"), {}, {"info", "debug"}),
        (("--log-level", "error"), {}, set[str]()),
        ((), {"YUNHE_LOG_LEVEL": "debug"}, {"info", "debug"}),
        (("--log-level", "info"), {"YUNHE_LOG_LEVEL": "error"}, {"info"}),
    ],
)
def test_the_level_is_that_of_the_option_or_of_the_environment(
    tmp_path: Path, words: tuple[str, ...], environment: dict[str, str], levels: set[str]
) -> None:
    home = tmp_path / "home"
    with serve(home, *words, stderr=subprocess.DEVNULL, **environment):
        pass
    assert ({line["level"] for line in read(home)} if log_path(home).exists() else set[str]()) == levels


def test_a_pipe_gets_the_same_json_lines_as_the_file(tmp_path: Path) -> None:
    with (tmp_path / "stderr").open("wb") as stderr, serve(tmp_path / "home", stderr=stderr.fileno()):
        pass
    assert (tmp_path / "stderr").read_bytes() == log_path(tmp_path / "home").read_bytes()
    assert {"server started", "request", "server stops"} <= {
        line["message"] for line in read(tmp_path / "home")
    }


def test_standard_error_is_left_alone_when_asked_to(tmp_path: Path) -> None:
    with (
        (tmp_path / "stderr").open("wb") as stderr,
        serve(tmp_path / "home", "--no-log-stderr", stderr=stderr.fileno()),
    ):
        pass
    assert (tmp_path / "stderr").read_bytes() == b""
    assert read(tmp_path / "home")


def test_a_terminal_gets_text(tmp_path: Path) -> None:
    reading, terminal = pty.openpty()
    with serve(tmp_path / "home", stderr=terminal):
        pass
    os.close(terminal)
    text = os.read(reading, 65536).decode()
    os.close(reading)
    assert "INFO     yunhe.entrypoints.api.serve: server started version=" in text
    assert not [line for line in text.splitlines() if line.startswith("{")]
