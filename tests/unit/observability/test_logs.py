"""The log of a process: what a line holds, where it goes, and that it never harms who logs."""

import json
import logging
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from yunhe.observability import logs
from yunhe.observability.context import log_ids
from yunhe.observability.logs import MOST_CHARACTERS, as_json, as_text, line_of, logging_to

log = logging.getLogger("yunhe.test")


def record(message: str, *arguments: object, error: BaseException | None = None, **facts: object) -> Any:
    raised = None if error is None else (type(error), error, error.__traceback__)
    return log.makeRecord(log.name, logging.ERROR, "f", 1, message, arguments, raised, extra=facts or None)


def told(
    message: str, *arguments: object, error: BaseException | None = None, **facts: object
) -> dict[str, Any]:
    return json.loads(as_json(line_of(record(message, *arguments, error=error, **facts))))


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_bytes().splitlines()]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "home" / "server.log"


def test_a_line_of_json_has_its_time_level_sentence_facts_and_ids() -> None:
    with log_ids(request_id="req_1", job_id="job_1"):
        line = told("step %s", "failed", pool="lab", count=3)
    assert line.pop("time").endswith("Z")
    assert line == {
        "level": "error",
        "logger": "yunhe.test",
        "message": "step failed",
        "request_id": "req_1",
        "job_id": "job_1",
        "pool": "lab",
        "count": 3,
        "pid": os.getpid(),
    }


def test_a_traceback_is_one_field_of_its_line() -> None:
    try:
        raise ValueError("boom")  # noqa: TRY301 - the traceback is the point
    except ValueError as error:
        written = as_json(line_of(record("step failed", error=error)))
    assert written.count(b"\n") == 1
    assert json.loads(written)["traceback"].endswith("ValueError: boom\n")


def test_text_for_people_cannot_move_their_cursor_or_forge_a_line() -> None:
    text = as_text(line_of(record("a\nERROR forged \x1b[2J", name_given="b\rc"))).decode()
    assert text.count("\n") == 1
    assert "\\nERROR forged \\x1b[2J name_given=b\\rc" in text


def test_an_event_that_cannot_be_told_as_asked_is_told_as_far_as_possible() -> None:
    class Broken:
        def __str__(self) -> str:
            raise RuntimeError("no text")

    assert told("%d jobs", "many")["message"] == "%d jobs ('many',)"
    assert "cannot be shown" in told("x", thing=Broken())["thing"]
    assert told("\udcff", number=1 << 80)["number"] == str(1 << 80)


def test_a_long_text_is_cut_to_its_end() -> None:
    message = told("x" * 10 * MOST_CHARACTERS + "the cause")["message"]
    assert len(message) == MOST_CHARACTERS
    assert message.endswith("the cause")


def test_ids_are_those_of_the_innermost_block() -> None:
    with log_ids(request_id="req_1"), log_ids(job_id="job_1"):
        line = told("x")
    assert line["job_id"] == "job_1"
    assert "request_id" not in line


def test_only_what_is_loud_enough_is_written_and_libraries_from_warnings_on(file: Path) -> None:
    with logging_to(file, level="warning", stderr=False):
        log.info("quiet")
        log.warning("loud")
        logging.getLogger("some.library").info("quiet")
        logging.getLogger("some.library").warning("loud too")
        logging.getLogger("uvicorn.error").info("quiet")
    assert [line["message"] for line in lines(file)] == ["loud", "loud too"]
    assert file.stat().st_mode & 0o777 == 0o600


def test_a_destination_that_is_full_costs_lines_and_says_so_afterwards(file: Path) -> None:
    before = logs.lines_dropped["file"]
    with logging_to(file, stderr=False):
        file.parent.rmdir()
        for _ in range(3):
            log.error("lost")
        wait_until(lambda: logs.lines_dropped["file"] == before + 3)
        file.parent.mkdir()
        log.error("kept")
    assert [(line["message"], line.get("lines")) for line in lines(file)] == [
        ("lines of the log were dropped", 3),
        ("kept", None),
    ]


def test_who_logs_and_the_file_do_not_wait_for_a_reader_that_stalls(file: Path) -> None:
    program = f"""
import logging, time
from pathlib import Path
from yunhe.observability import logs
logs.MOST_WAITING = 50
with logs.logging_to(Path({str(file)!r})):
    for number in range(400):
        logging.getLogger("yunhe").error("x" * 1000)
        time.sleep(0.001)
print(logs.lines_dropped["stderr"] > 0, logs.lines_dropped["file"])
"""
    logs_into_a_pipe = subprocess.Popen(
        [sys.executable, "-c", program],
        env={"PYTHONPATH": ":".join(sys.path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert logs_into_a_pipe.wait(30) == 0  # nobody has read of standard error by now
    assert logs_into_a_pipe.communicate()[0] == b"True 0\n"
    assert len(lines(file)) == 400


def wait_until(true: Any) -> None:
    for _ in range(1000):
        if true():
            return
        threading.Event().wait(0.005)
    raise AssertionError("it did not come true")
