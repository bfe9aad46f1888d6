"""From files to traces: every cell is used, repaired on request, or reported by row and column."""

import gzip
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support import usage_files
from support.usage_files import HEADER, START, fields_of, refused, two_vms
from yunhe.flexible.reading.columns import ColumnMeaning, ColumnRole, parse_override, understand
from yunhe.flexible.reading.rows import TraceReading, read_trace
from yunhe.flexible.reading.tables import Table, read_table
from yunhe.flexible.trace import Dimension
from yunhe.kernel.errors import InvalidInputError, NotFoundError, UnsupportedError

Write = Callable[[Sequence[str], Sequence[Sequence[object]]], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    return lambda header, rows: usage_files.write(tmp_path / "usage.csv", header, rows)


def test_a_plain_file_becomes_a_trace_and_says_what_it_understood(write: Write):
    reading = read_trace(read_table(write(HEADER, two_vms())))
    assert reading.trace.instances == ("a", "b")
    assert reading.trace.period_s == 300
    assert reading.trace.usage[Dimension.CPU].shape == (2, 12)
    assert np.allclose(reading.trace.usage[Dimension.CPU][1], 0.5)
    assert reading.trace.request[Dimension.CPU].tolist() == [2, 2]
    assert {one.column: one.role for one in reading.understood} == {
        "vm": ColumnRole.INSTANCE,
        "ts": ColumnRole.TIME,
        "cpu_used": ColumnRole.CPU_USED,
        "cores": ColumnRole.CPU_ALLOCATED,
    }


def test_missing_columns_are_all_named_with_the_nearest_that_is_there(write: Write):
    error = refused(write(("machine", "ts", "cpu_usedd"), [["a", START, 1]]))
    assert fields_of(error) == ["instance", "cpu_used"]
    assert error.fields[1].did_you_mean == "cpu_usedd"
    assert "machine, ts, cpu_usedd" in error.problem
    assert "--column instance=COLUMN" in error.remedy


def test_text_negative_and_infinite_cells_are_reported_by_row_and_column(write: Write):
    rows = two_vms()
    rows[3][2], rows[5][2], rows[7][2], rows[9][3] = "abc", -0.5, "inf", "-2"
    error = refused(write(HEADER, rows))
    assert fields_of(error) == ["row 5, cpu_used", "row 9, cpu_used", "row 7, cpu_used", "row 11, cores"]
    assert [field.value for field in error.fields] == ["abc", "inf", "-0.5", "-2"]
    assert "4 cells" in error.problem


def test_repair_leaves_bad_rows_out_and_lists_them(write: Write):
    rows = two_vms()
    rows[3][2] = "abc"
    rows[5][2] = -0.5
    reading = read_trace(read_table(write(HEADER, rows)), repair=True)
    assert [(one.row, one.column) for one in reading.repaired] == [(5, "cpu_used"), (7, "cpu_used")]
    assert reading.trace.usage[Dimension.CPU].shape == (2, 12)


def test_empty_cells_are_gaps_and_are_counted(write: Write):
    rows = two_vms(40)
    for row in rows[10:16]:
        row[2] = ""
    rows[20][2] = "NaN"
    reading = read_trace(read_table(write(HEADER, rows)))
    assert any("7 cells are empty, the first in row 12" in note for note in reading.notes)
    assert any("gaps" in note and "15 min" in note for note in reading.notes), reading.notes
    assert np.isnan(reading.trace.usage[Dimension.CPU][0, 14])
    assert not np.isnan(reading.trace.usage[Dimension.CPU][0, 11]), "a short gap holds the last value"


def test_two_values_for_one_moment_are_refused_and_exact_repeats_counted_once(write: Write):
    rows = two_vms()
    again = [list(rows[4]), list(rows[6])]
    again[0][2] = 1.5
    error = refused(write(HEADER, [*rows, *again]))
    assert fields_of(error) == ["row 26, ts"]
    assert "twice" in error.fields[0].problem
    reading = read_trace(read_table(write(HEADER, [*rows, again[1]])))
    assert any("1 rows repeat" in note for note in reading.notes)


def test_units_that_differ_between_rows_are_reported(write: Write):
    rows = [[name, ts, used, cores, 512, 2048] for name, ts, used, cores in two_vms()]
    rows[6][4] = 512 * 1024 * 1024
    error = refused(write((*HEADER, "mem_used_mb", "mem_alloc_mb"), rows))
    assert fields_of(error) == ["row 8, mem_used_mb"]
    assert "units" in error.fields[0].problem


def test_cells_may_carry_their_units_but_not_some_of_them(write: Write):
    rows = [[name, ts, "250m", cores, "512Mi", "2Gi"] for name, ts, _, cores in two_vms()]
    header = (*HEADER, "mem_used", "mem_alloc")
    trace = read_trace(read_table(write(header, rows))).trace
    assert np.allclose(trace.usage[Dimension.CPU], 0.25)
    assert np.allclose(trace.usage[Dimension.MEMORY], 512)
    assert trace.request[Dimension.MEMORY].tolist() == [2048, 2048]
    rows[4][4] = "512"
    error = refused(write(header, rows))
    assert fields_of(error) == ["row 6, mem_used"]
    assert "no unit" in error.fields[0].problem


@pytest.mark.parametrize(
    ("used", "given"), [(536_870_912, 2_147_483_648), (4_194_304, 16_777_216), (512, 2048), (0.5, 2)]
)
def test_memory_without_a_unit_is_guessed_from_its_size_and_the_guess_is_said(
    write: Write, used: float, given: float
):
    rows = [[name, ts, cpu, cores, used, given] for name, ts, cpu, cores in two_vms()]
    reading = read_trace(read_table(write((*HEADER, "mem_used", "mem_alloc"), rows)))
    assert np.allclose(
        reading.trace.usage[Dimension.MEMORY] * 4, reading.trace.request[Dimension.MEMORY][:, None]
    )
    assert reading.trace.request[Dimension.MEMORY][0] in {2048, 16384}
    assert any("mem_used: no unit in the name" in note for note in reading.notes)


def test_times_may_be_steps_seconds_milliseconds_or_iso(write: Write):
    steps = [[name, slot, 0.5, 2] for name in "ab" for slot in range(6)]
    trace = read_trace(read_table(write(("vm", "step", "cpu_used", "cores"), steps))).trace
    assert (trace.period_s, trace.slots) == (300, 6)
    kinds: list[Callable[[int], object]] = [
        lambda slot: 300 * slot,
        lambda slot: START + 300 * slot,
        lambda slot: (START + 300 * slot) * 1000,
        lambda slot: str(np.datetime64(START + 300 * slot, "s")) + "Z",
    ]
    for kind in kinds:
        rows = [[name, kind(slot), 0.5, 2] for name in "ab" for slot in range(6)]
        trace = read_trace(read_table(write(HEADER, rows))).trace
        assert (trace.period_s, trace.slots) == (300, 6)
    error = refused(write(HEADER, [["a", "yesterday", 1, 2], ["a", START, 1, 2], ["a", START + 300, 1, 2]]))
    assert fields_of(error) == ["row 2, ts"]


def test_one_sample_teaches_nothing_and_says_so(write: Write):
    error = refused(write(HEADER, [["a", START, 0.5, 2]]))
    assert "nothing can be learned" in error.problem
    rows = [*two_vms(), ["c", START, 0.1, 2]]
    reading = read_trace(read_table(write(HEADER, rows)))
    assert any("1 instances have a single sample" in note for note in reading.notes)


def test_a_file_of_a_million_rows_out_of_order_is_sorted_and_it_is_said(tmp_path: Path):
    random = np.random.default_rng(1)
    order = random.permutation(1_000_000)
    vm, slot = order // 2000, order % 2000
    path = tmp_path / "big.csv"
    with path.open("w") as file:
        file.write("vm,ts,cpu_used,cores\n")
        file.writelines(
            f"{a},{START + 300 * b},{(a % 7) / 7:.6f},2\n"
            for a, b in zip(vm.tolist(), slot.tolist(), strict=True)
        )
    reading = read_trace(read_table(path))
    assert reading.trace.usage[Dimension.CPU].shape == (500, 2000)
    row = reading.trace.instances.index("8")
    assert np.allclose(reading.trace.usage[Dimension.CPU][row], 1 / 7, atol=1e-6)
    assert any("not in order of time" in note and "sorted" in note for note in reading.notes)


@given(st.permutations(list(range(24))))
@settings(max_examples=20)
def test_the_order_of_rows_changes_nothing(order: list[int]):
    rows = two_vms()

    def read(rows: list[list[object]]) -> TraceReading:
        columns = {name: [str(row[i]) for row in rows] for i, name in enumerate(HEADER)}
        return read_trace(Table("t.csv", columns, len(rows), 2))

    straight, shuffled = read(rows), read([rows[i] for i in order])
    assert np.array_equal(straight.trace.usage[Dimension.CPU], shuffled.trace.usage[Dimension.CPU])


def test_a_row_with_too_few_cells_is_named(write: Write):
    path = write(HEADER, two_vms())
    path.write_text(path.read_text() + "a,1700009999\n")
    error = refused(path)
    assert "Row 26" in error.problem


def test_files_that_are_not_there_not_text_or_empty_are_refused(tmp_path: Path):
    with pytest.raises(NotFoundError):
        read_table(tmp_path / "none.csv")
    (tmp_path / "image.csv").write_bytes(bytes(range(256)))
    (tmp_path / "empty.csv").write_text("")
    (tmp_path / "bad.csv.gz").write_bytes(b"not gzip")
    (tmp_path / "bad.parquet").write_bytes(b"not parquet at all")
    for name in ("image.csv", "empty.csv", "bad.csv.gz", "bad.parquet"):
        with pytest.raises(InvalidInputError):
            read_table(tmp_path / name)


def test_a_compressed_file_and_other_separators_read_alike(tmp_path: Path, write: Write):
    text = write(HEADER, two_vms()).read_text()
    (tmp_path / "semi.csv").write_text(text.replace(",", ";"))
    (tmp_path / "packed.csv.gz").write_bytes(gzip.compress(text.encode()))
    for name in ("semi.csv", "packed.csv.gz"):
        assert read_trace(read_table(tmp_path / name)).trace.instances == ("a", "b")


def test_parquet_without_pyarrow_names_the_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "usage.parquet").write_bytes(b"PAR1")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(UnsupportedError) as caught:
        read_table(tmp_path / "usage.parquet")
    assert "yunhe[parquet]" in caught.value.remedy


def test_columns_are_recognised_by_name_and_unit_and_overridden_by_hand():
    found = understand(
        ("VM ID", "Timestamp", "cpu-usage_millis", "mem_mb", "net_rx_kbs", "net_tx_kbs", "colour")
    )
    assert {one.column: (one.role, one.unit) for one in found.meanings} == {
        "VM ID": (ColumnRole.INSTANCE, ""),
        "Timestamp": (ColumnRole.TIME, ""),
        "cpu-usage_millis": (ColumnRole.CPU_USED, "millicores"),
        "mem_mb": (ColumnRole.MEMORY_USED, "MiB"),
        "net_rx_kbs": (ColumnRole.NETWORK, "KiB/s"),
        "net_tx_kbs": (ColumnRole.NETWORK, "KiB/s"),
    }
    assert found.ignored == ("colour",)
    by_hand = understand(("who", "when", "load"), [parse_override(f"{a}={b}") for a, b in (
        ("instance", "who"), ("time", "when"), ("cpu_used", "load:percent"))])  # fmt: skip
    assert ColumnMeaning("load", ColumnRole.CPU_USED, "percent") in by_hand.meanings
    for text in (
        "instance",
        "nothing=x",
        "cpu_used=",
        "cpu_used=load:furlongs",
        "cpu_used=load:gb",
        "instance=x:s",
    ):
        with pytest.raises(InvalidInputError):
            parse_override(text)
    with pytest.raises(InvalidInputError, match="not in the file"):
        understand(("vm", "ts", "cpu"), [parse_override("instance=guest")])
