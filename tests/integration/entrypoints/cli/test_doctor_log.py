"""``yunhe doctor`` says where the server logs, how much, and what went wrong last."""

import json
from pathlib import Path

from integration.entrypoints.cli.conftest import Shell
from support.repository import REPOSITORY
from yunhe.runtime.settings import log_path


def test_the_log_and_its_last_three_errors_are_shown(tmp_path: Path) -> None:
    lines = [
        {
            "time": f"2026-01-01T00:00:0{number}.000Z",
            "level": level,
            "logger": "yunhe",
            "message": f"event [{number}]",
        }
        for number, level in enumerate(["error", "info", "error", "error", "critical"])
    ]
    text = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)
    log_path(tmp_path).write_text(text)
    shown = Shell(tmp_path, REPOSITORY).inside("doctor").stdout
    assert f"log       {log_path(tmp_path)}, 0.0 MiB, 4 errors" in shown
    assert [line.split("Z")[1].strip() for line in shown.splitlines() if "00:00:0" in line] == [
        "event [2]",
        "event [3]",
        "event [4]",
    ]


def test_where_no_server_has_run_there_is_no_log_to_tell_of(tmp_path: Path) -> None:
    findings = json.loads(Shell(tmp_path, REPOSITORY).inside("doctor", "--output", "json").stdout)
    assert "log" not in {finding["check"] for finding in findings}
