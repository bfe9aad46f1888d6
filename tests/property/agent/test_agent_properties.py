"""Frames, journal, log and meters, against obvious versions of themselves."""

import os
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from yunhe.agent.files.archives import check_path
from yunhe.agent.protocol.frames import MAX_FRAME_BYTES, Decoder, Frame, encode
from yunhe.agent.protocol.refusals import Refusal
from yunhe.agent.protocol.shapes import SHAPES, check_body
from yunhe.agent.runs.journal import Journal
from yunhe.agent.runs.logs import STREAMS, LogWriter, end_of_log, read_log, read_marks, segments
from yunhe.agent.runs.meters import GAP_MS, Meter, UsageSample, band_of

few = settings(max_examples=60, deadline=None)
json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner, max_size=4),
    max_leaves=12,
)


@contextmanager
def directory() -> Generator[Path, None, None]:
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


@few
@given(
    frames=st.lists(
        st.tuples(st.dictionaries(st.text(max_size=5), st.integers()), st.binary(max_size=300)), max_size=8
    ),
    piece=st.integers(1, 200),
)
def test_frames_come_out_as_they_went_in_however_they_are_cut(
    frames: list[tuple[dict[str, Any], bytes]], piece: int
) -> None:
    data = b"".join(encode(header, payload) for header, payload in frames)
    decoder = Decoder()
    out: list[Frame] = []
    for start in range(0, len(data), piece):
        out += decoder.feed(data[start : start + piece])
    assert out == [Frame(*frame) for frame in frames]


@few
@given(data=st.binary(max_size=400))
def test_any_bytes_are_frames_or_refused(data: bytes) -> None:
    refused: list[str] = []
    frames: list[Frame] = []
    try:
        frames += Decoder().feed(data)
    except Refusal as refusal:
        refused.append(refusal.code)
    assert set(refused) <= {"too-large", "invalid-input"}
    assert all(isinstance(frame.header, dict) for frame in frames)


def test_a_frame_over_the_limit_is_not_made() -> None:
    encode({}, b"x" * (MAX_FRAME_BYTES - 2))
    with pytest.raises(Refusal, match="over the limit"):
        encode({}, b"x" * (MAX_FRAME_BYTES - 1))


@settings(max_examples=300, deadline=None)
@given(verb=st.sampled_from([*SHAPES, "nonsense"]), body=json_values)
def test_any_body_is_accepted_or_refused_with_its_fields(verb: str, body: Any) -> None:
    refused: list[Refusal] = []
    try:
        check_body(verb, body)
    except Refusal as refusal:
        refused.append(refusal)
    assert all(refusal.code == "invalid-input" and refusal.fields for refusal in refused)


@few
@example(entries=[{"\x04": "077c0"}], where=0.0, flip=98)  # its first byte becomes zero
@example(entries=[{}], where=1.0, flip=10)  # its last
@given(
    entries=st.lists(st.dictionaries(st.text(max_size=5), st.integers() | st.text(max_size=9)), max_size=12),
    where=st.floats(0, 1),
    flip=st.integers(1, 255),
)
def test_a_damaged_journal_yields_its_intact_beginning_and_loses_no_byte(
    entries: list[dict[str, Any]], where: float, flip: int
) -> None:
    with directory() as path:
        journal = Journal(str(path / "journal"), print)
        for entry in entries:
            journal.append(entry, sync=False)
        journal.close()
        data = bytearray((path / "journal").read_bytes())
        if not data:
            return
        at = min(len(data) - 1, int(where * len(data)))
        data[at] ^= flip
        (path / "journal").write_bytes(data)
        found: list[dict[str, Any]] = []
        again = Journal(str(path / "journal"), found.append)
        again.close()
        intact = bytes(data[:at]).count(b"\n")
        assert found == entries[:intact]
        aside = b"".join(file.read_bytes() for file in path.glob("journal.quarantine-*"))
        zeros_are_room = bytes(data).rstrip(b"\0")
        assert (path / "journal").read_bytes() + aside == zeros_are_room
        assert again.notice


@few
@given(
    pieces=st.lists(st.binary(min_size=1, max_size=30_000), max_size=20),
    limit=st.integers(16 * 1024, 200_000),
    offset=st.integers(0, 400_000),
    compress=st.booleans(),
)
def test_a_log_is_the_end_of_what_was_written_at_its_own_offsets(
    pieces: list[bytes], limit: int, offset: int, *, compress: bool
) -> None:
    with directory() as path:
        log = LogWriter(str(path), limit, compress=compress)
        for number, piece in enumerate(pieces):
            log.write(piece, STREAMS[number % 3])
        log.close()
        whole = b"".join(pieces)
        assert end_of_log(str(path)) == len(whole) == log.offset
        kept = sum(file.stat().st_size for file in path.iterdir() if file.suffix != ".marks")
        assert kept <= max(limit, 16 * 1024)
        start = max(offset, (segments(str(path)) or [0])[0])
        if not compress:
            assert kept >= min(len(whole), limit // 2), "more was dropped than had to be"
        at, out = offset, b""
        streams = b""
        while True:
            begin, data = read_log(str(path), at, 7000)
            if not data:
                break
            assert begin == (start if not out else at)
            out += data
            at = begin + len(data)
            marks = read_marks(str(path), begin, at)
            assert marks[0].offset == begin
            ends = [mark.offset for mark in marks[1:]] + [at]
            for mark, end in zip(marks, ends, strict=True):
                streams += bytes([STREAMS.index(mark.stream)]) * (end - mark.offset)
        assert out == whole[start:]
        came = b"".join(bytes([number % 3]) * len(piece) for number, piece in enumerate(pieces))
        assert streams == came[start:]


steps = st.lists(
    st.tuples(
        st.integers(1, 9000), st.integers(0, 5_000_000), st.integers(0, 1 << 22), st.integers(0, 1 << 20)
    ),
    min_size=1,
    max_size=150,
)


@few
@given(steps=steps, reopen_at=st.integers(0, 150), began_ms=st.integers(0, 120_000))
def test_meters_and_minutes_lose_nothing_whatever_the_gaps_and_restarts(
    steps: list[tuple[int, int, int, int]], reopen_at: int, began_ms: int
) -> None:
    samples = [UsageSample(1_000_000, began_ms, 0, 0, 0, 0)]
    for between_ms, cpu_us, memory_kib, written in steps:
        last = samples[-1]
        samples.append(
            UsageSample(
                last.clock_ms + between_ms,
                last.wall_ms + between_ms,
                last.cpu_us + cpu_us,
                memory_kib,
                last.read_bytes,
                last.written_bytes + written,
            )
        )
    minutes: list[dict[str, Any]] = []
    with directory() as path:
        meter = Meter(str(path / "samples"))
        for number, sample in enumerate(samples):
            if number == reopen_at:
                meter.close()
                meter = Meter(str(path / "samples"))
            meter.add(sample)
            for minute in meter.fold(everything=number == len(samples) - 1):
                minutes.append(minute)
                meter.mark(minute["until_ms"])
        totals = meter.totals()
        meter.close()
    held = sum(held_kib_ms(before, after) for before, after in pairwise(samples))
    assert totals["cpu_us"] == samples[-1].cpu_us
    assert totals["wall_ms"] == samples[-1].clock_ms - samples[0].clock_ms
    assert totals["memory_mib_ms"] == held // 1024
    assert (
        totals["written_bytes"] == samples[-1].written_bytes == sum(one["written_bytes"] for one in minutes)
    )
    assert sum(minute["samples"] for minute in minutes) == len(samples) - 1
    assert len({minute["minute"] for minute in minutes}) == len(minutes)
    assert all(0 <= minute["cpu_mean_millis"] <= minute["cpu_max_millis"] + 1e-6 for minute in minutes)


def held_kib_ms(before: UsageSample, after: UsageSample) -> int:
    """Return the memory held between two samples, by the rule the docs state."""
    between_ms = after.clock_ms - before.clock_ms
    if between_ms > GAP_MS:
        return min(before.memory_kib, after.memory_kib) * between_ms
    return (before.memory_kib + after.memory_kib) * between_ms // 2


@few
@given(st.floats(0, 1e7), st.floats(0, 1e7))
def test_bands_grow_with_use_and_are_thirty_two(one: float, other: float) -> None:
    low, high = sorted((one, other))
    assert 0 <= band_of(low) <= band_of(high) <= 31


def test_a_band_is_half_a_doubling() -> None:
    assert [band_of(2.0**exponent) for exponent in range(17)] == [*range(0, 32, 2), 31]


@few
@given(st.text(alphabet="ab./\\\0", max_size=12))
def test_a_path_that_is_accepted_stays_inside(path: str) -> None:
    try:
        parts = check_path(path, "path")
    except Refusal:
        return
    assert os.path.normpath("/top/" + "/".join(parts)).startswith("/top")
    assert os.path.normpath("/top/" + path) == os.path.normpath("/top/" + "/".join(parts))
