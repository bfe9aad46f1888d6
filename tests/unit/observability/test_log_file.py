"""The log's file: bounded, whole lines only, shared by processes, and read back for its errors."""

import errno
import json
import multiprocessing
import os
from pathlib import Path

import pytest

from yunhe.observability.log_file import OLDER_FILES, LogFile, last_errors, log_files, older_file


def test_the_files_never_take_more_than_their_bound_and_the_newest_lines_stay(tmp_path: Path) -> None:
    path = tmp_path / "server.log"
    file = LogFile(path, file_bytes=1000)
    for number in range(1000):
        file.append(b"%06d\n" % number)
        assert sum(part.stat().st_size for part in log_files(path)) <= 1000 * (OLDER_FILES + 1)
    kept = b"".join(part.read_bytes() for part in log_files(path)).split()
    assert kept == [b"%06d" % number for number in range(1000 - len(kept), 1000)]
    assert len(kept) > 1000 / 7 * OLDER_FILES
    assert sorted(part.name for part in tmp_path.iterdir()) == sorted(part.name for part in log_files(path))


def _append(path: Path, name: str, count: int) -> None:
    file = LogFile(path, file_bytes=20_000)
    for number in range(count):
        file.append(json.dumps({"by": name, "number": number, "fill": "x" * 50}).encode() + b"\n")


def test_processes_that_share_a_file_lose_and_tear_no_line(tmp_path: Path) -> None:
    path = tmp_path / "server.log"
    context = multiprocessing.get_context("spawn")
    writers = [context.Process(target=_append, args=(path, name, 250)) for name in "abc"]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(60)
        assert writer.exitcode == 0
    found = [json.loads(line) for part in log_files(path) for line in part.read_bytes().splitlines()]
    assert len(log_files(path)) > 1
    for name in "abc":
        assert [line["number"] for line in found if line["by"] == name] == list(range(250))


def test_a_line_for_which_there_is_no_room_leaves_no_half_of_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "server.log"
    file = LogFile(path)
    file.append(b"first\n")
    write = os.write

    def write_some(handle: int, data: bytes) -> int:
        return write(handle, data[:3])

    with monkeypatch.context() as full:
        full.setattr(os, "write", write_some)
        with pytest.raises(OSError) as caught:
            file.append(b"second\n")
    assert caught.value.errno == errno.ENOSPC
    file.append(b"third\n")
    assert path.read_bytes() == b"first\nthird\n"


def test_the_last_errors_are_found_across_files_and_among_lines_that_are_no_json(tmp_path: Path) -> None:
    path = tmp_path / "server.log"

    def line(number: int, level: str = "error", traceback: str = "") -> bytes:
        said = {"time": f"t{number}", "level": level, "logger": "yunhe", "message": f"m{number}"}
        text = json.dumps(said | ({"traceback": traceback} if traceback else {}), separators=(",", ":"))
        return text.encode() + b"\n"

    older_file(path, 1).write_bytes(line(1) + line(2, "info") + b'"level":"error" not json\n')
    path.write_bytes(line(3, traceback="Traceback\n  x\nValueError: boom\n") + line(4, "critical"))
    count, last = last_errors(path, 2)
    assert count == 3
    assert [(error.time, error.sentence) for error in last] == [("t3", "m3: ValueError: boom"), ("t4", "m4")]
    assert last_errors(tmp_path / "none.log", 2) == (0, ())
