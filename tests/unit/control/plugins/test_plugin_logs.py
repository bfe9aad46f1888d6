"""What a plugin's process writes is kept within bounds, and only its end is read."""

from pathlib import Path

import pytest

from yunhe.control.plugins import supervisor
from yunhe.control.plugins.supervisor import cut_log, tail_of


def test_a_log_that_has_grown_too_long_keeps_its_end_and_its_process_goes_on_writing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "MOST_LOG_BYTES", 1000)
    monkeypatch.setattr(supervisor, "KEPT_LOG_BYTES", 100)
    path = tmp_path / "one.log"
    with path.open("ab", buffering=0) as process:
        for number in range(90):
            process.write(b"line %04d\n" % number)
            cut_log(path)
        assert path.stat().st_size == 900, "not before it is too long"
        for number in range(90, 1000):
            process.write(b"line %04d\n" % number)
            cut_log(path)
            assert path.stat().st_size <= 1000
    lines = path.read_text().splitlines()
    assert lines[-1] == "line 0999"
    assert all(len(line) == len("line 0000") for line in lines), "no half lines, no holes"
    assert tail_of(path, 10) == b"line 0999\n"


def test_a_log_that_is_not_there_has_no_end(tmp_path: Path) -> None:
    cut_log(tmp_path / "none.log")
    assert tail_of(tmp_path / "none.log", 10) == b""
