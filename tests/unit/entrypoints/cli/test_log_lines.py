"""Output as lines: with times and streams, and a line for what is missing."""

import re

import pytest

from yunhe.control.pools.model import LogMark
from yunhe.entrypoints.cli.terminal.log_lines import LineFilter, LogLine, cut_text, line_text, lines_of, raw
from yunhe.scheduling.orchestration.jobs.model import LogPiece, after


def piece(offset: int, data: bytes, *marks: tuple[int, int, str], attempt: int = 1) -> LogPiece:
    return LogPiece(attempt=attempt, offset=offset, data=data, marks=tuple(LogMark(*mark) for mark in marks))


def test_output_without_gaps_comes_byte_by_byte() -> None:
    pieces = [piece(0, b"a\xff\r\nb"), piece(5, b"c"), piece(0, b"again", attempt=2)]
    assert b"".join(raw(pieces)) == b"a\xff\r\nbcagain"


def test_what_is_missing_has_a_line_of_its_own_that_says_how_much() -> None:
    pieces = [piece(1_000_000, b"x"), piece(1_000_501, b"y\n"), piece(7, b"z\n", attempt=2)]
    assert b"".join(raw(pieces)).decode().splitlines() == [
        cut_text(1_000_000),
        "x",
        cut_text(500),
        "y",
        cut_text(7),
        "z",
    ]
    assert "1,000,000 bytes" in cut_text(1_000_000)
    assert [line.cut_bytes for line in lines_of(pieces) if line.cut_bytes] == [1_000_000, 500, 7]
    assert b"".join(raw([piece(40, b"rest")], offset=40)) == b"rest"


def test_lines_of_two_streams_are_whole_and_have_the_time_of_their_first_byte() -> None:
    pieces = [
        piece(0, b"half err\n", (0, 1000, "stdout"), (5, 2000, "stderr")),
        piece(9, b"of it\nlast", (9, 3000, "stdout")),
    ]
    assert list(lines_of(pieces)) == [
        LogLine(attempt=1, offset=5, at=2.0, stream="stderr", line="err"),
        LogLine(attempt=1, offset=0, at=1.0, stream="stdout", line="half of it"),
        LogLine(attempt=1, offset=15, at=3.0, stream="stdout", line="last"),
    ]


@pytest.mark.parametrize(
    ("wanted", "taken"),
    [
        (LineFilter(), True),
        (LineFilter(since=1.5), True),
        (LineFilter(since=2.5), False),
        (LineFilter(grep=re.compile("lo.s")), True),
        (LineFilter(grep=re.compile("^loss")), False),
        (LineFilter(stream="stderr"), True),
        (LineFilter(stream="stdout"), False),
    ],
)
def test_a_filter_takes_what_was_asked_for(wanted: LineFilter, taken: bool) -> None:
    line = LogLine(attempt=1, offset=0, at=2.0, stream="stderr", line="the loss")
    assert wanted.takes(line) is taken
    assert wanted.takes(LogLine(attempt=1, offset=0, cut_bytes=5))


def test_a_line_begins_with_its_time_where_that_is_known() -> None:
    line = LogLine(attempt=1, offset=0, at=1_794_910_981.25, line="x")
    assert line_text(line, timestamps=True) == "2026-11-17T10:23:01.250Z x"
    assert line_text(LogLine(attempt=1, offset=0, line="x"), timestamps=True) == "- x"


def test_the_rest_of_a_piece_keeps_its_marks() -> None:
    whole = piece(10, b"abcdef", (10, 1, "stdout"), (12, 2, "stderr"), (15, 3, "stdout"))
    assert after(whole, 13) == piece(13, b"def", (13, 2, "stderr"), (15, 3, "stdout"))
    assert after(whole, 0) == whole
