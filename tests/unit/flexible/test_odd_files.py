"""Files as monitoring really exports them: read rightly, or refused by row and column; never misread in silence."""

import gzip
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.usage_files import HEADER, START, Rows, fields_of, noted, read, refused, two_vms, write
from yunhe.flexible.reading.columns import ColumnRole, parse_override, understand
from yunhe.flexible.reading.rows import read_trace
from yunhe.flexible.reading.tables import read_table
from yunhe.flexible.trace import Dimension
from yunhe.kernel.errors import InvalidInputError

GWA = (
    "Timestamp [ms]",
    "vm",
    "CPU cores",
    "CPU capacity provisioned [MHZ]",
    "CPU usage [MHZ]",
    "CPU usage [%]",
    "Memory capacity provisioned [KB]",
    "Memory usage [KB]",
    "Disk read throughput [KB/s]",
    "Network received throughput [KB/s]",
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "usage.csv"


def with_column(rows: Rows, *cells: object) -> Rows:
    return [[*row, *cells] for row in rows]


def gwa_rows() -> Rows:
    """Four cores of 2.5 GHz, a tenth of them used; the time is in seconds although its name says ms."""
    return [
        [START + 300 * slot, name, 4, 10_000, 1000, 10, 8 * 1024**2, 1024**2, 5, 7]
        for name in "ab"
        for slot in range(12)
    ]


def test_the_columns_of_gwa_t_12_are_understood(path: Path):
    write(path, GWA, gwa_rows(), ";")
    path.write_text(path.read_text().replace(";", ";\t"))
    reading = read(path)
    assert reading.trace.period_s == 300
    assert np.allclose(reading.trace.usage[Dimension.CPU], 0.4)
    assert reading.trace.request[Dimension.CPU].tolist() == [4, 4]
    assert reading.trace.request[Dimension.MEMORY].tolist() == [8192, 8192]
    assert np.allclose(reading.trace.usage[Dimension.MEMORY], 1024)
    assert np.allclose(reading.trace.usage[Dimension.DISK], 5)
    assert noted(reading, "Timestamp [ms]: read as s since 1970")
    assert reading.ignored == ("CPU capacity provisioned [MHZ]", "CPU usage [MHZ]")


def test_usage_in_mhz_is_a_share_of_the_clock_and_needs_it(path: Path):
    rows = [[row[0], row[1], row[2], row[3], row[4]] for row in gwa_rows()]
    reading = read(write(path, GWA[:5], rows))
    assert np.allclose(reading.trace.usage[Dimension.CPU], 0.4)
    error = refused(write(path, (*GWA[:3], "CPU usage [MHZ]"), [[*row[:3], row[4]] for row in rows]))
    assert fields_of(error) == ["cpu_clock"]
    assert "--column cpu_clock" in error.remedy
    rows[5][3] = 0
    assert fields_of(refused(write(path, GWA[:5], rows))) == ["row 7, CPU usage [MHZ]"]


@pytest.mark.parametrize("name", ["cpu_pct", "CPU usage [%]", "CPU %", "cpu_util", "CPUUtilization"])
def test_percent_is_refused_without_sizes_and_read_with_them(path: Path, name: str):
    rows: Rows = [[row[0], row[1], 50] for row in two_vms()]
    write(path, ("vm", "ts", name), rows)
    error = refused(path)
    assert "--assume-cores" in error.remedy
    assert fields_of(error) == ["cpu_allocated"]
    reading = read_trace(read_table(path), assume_cores=8)
    assert np.allclose(reading.trace.usage[Dimension.CPU], 4)
    assert noted(reading, "8 assumed, as asked")
    write(path, ("vm", "ts", name, "cores"), with_column(rows, 2))
    assert np.allclose(read(path).trace.usage[Dimension.CPU], 1)


def test_numbers_that_may_be_percent_are_not_taken_for_cores(path: Path):
    rows: Rows = [[row[0], row[1], 0.5] for row in two_vms()]
    rows[7][2] = 87
    write(path, ("vm", "ts", "cpu"), rows)
    error = refused(path)
    assert fields_of(error) == ["row 9, cpu"]
    assert "percent" in error.problem
    as_said = read_trace(read_table(path), [parse_override("cpu_used=cpu:cores")])
    assert as_said.trace.request[Dimension.CPU].tolist() == [128, 0.5]


@pytest.mark.parametrize(
    ("columns", "used", "given"),
    [
        (("vm", "ts", "cpu_cores", "cpu_used"), "cpu_used", "cpu_cores"),
        (("vm", "ts", "CPU cores", "CPU usage"), "CPU usage", "CPU cores"),
        (("vm", "ts", "cpu", "cpu_used", "cpu_capacity"), "cpu_used", "cpu_capacity"),
        (("vm", "ts", "cpu_usage_mhz", "cpu_usage_pct", "vcpus"), "cpu_usage_pct", "vcpus"),
        (("vm", "ts", "cpu_limit", "cpu_request", "cpu_used_m"), "cpu_used_m", "cpu_request"),
    ],
)
def test_cores_given_are_not_cores_used(columns: tuple[str, ...], used: str, given: str):
    found = understand(columns)
    by_role = {one.role: one.column for one in found.meanings}
    assert (by_role[ColumnRole.CPU_USED], by_role[ColumnRole.CPU_ALLOCATED]) == (used, given)
    assert {*found.ignored, *(one.column for one in found.meanings)} == set(columns)


def test_a_unit_of_another_kind_is_no_unit():
    assert understand(("vm", "ts", "cpu", "cpu_mb", "memory_ms")).ignored == ("cpu_mb", "memory_ms")


def test_columns_that_are_not_used_are_named_and_guesses_too(path: Path):
    write(path, ("vm", "ts", "cpu_used", "cpu_alloc", "colour"), with_column(two_vms(), "red"))
    reading = read(path)
    assert reading.ignored == ("colour",)
    assert noted(reading, "cpu_used: no unit in the name; read as cores", "--column cpu_used=cpu_used:UNIT")
    assert noted(reading, "cpu_alloc: no unit in the name; read as cores")


def test_percent_of_one_core_is_pointed_out_and_can_be_said(path: Path):
    rows: Rows = [[row[0], row[1], 300, 4] for row in two_vms()]
    write(path, ("vm", "ts", "cpu_pct", "cores"), rows)
    assert noted(read(path), "24 cells are above all that was given", "300 %", "row 2", ":core_pct")
    reading = read_trace(read_table(path), [parse_override("cpu_used=cpu_pct:core_pct")])
    assert np.allclose(reading.trace.usage[Dimension.CPU], 3)


@pytest.mark.parametrize("cut", [0.5, 0.99])
def test_a_packed_file_that_is_cut_short_or_damaged_says_so(tmp_path: Path, cut: float):
    whole = gzip.compress(write(tmp_path / "t.csv", HEADER, two_vms()).read_bytes())
    (tmp_path / "t.csv.gz").write_bytes(whole[: int(cut * len(whole))])
    assert "cut short" in refused(tmp_path / "t.csv.gz").problem
    (tmp_path / "t.csv.gz").write_bytes(whole[:12] + bytes(20) + whole[32:])
    assert "t.csv.gz" in refused(tmp_path / "t.csv.gz").problem


def test_a_line_that_is_no_csv_is_named(path: Path):
    write(path, HEADER, two_vms())
    path.write_text(path.read_text() + 'c,"' + "x" * 200_000)
    assert "beyond line 26" in refused(path).problem


@pytest.mark.parametrize("when", [0, "1970-01-01T00:00:00Z", (START + 300) * 1000, 12_345, 99_999_999_999])
def test_a_time_that_cannot_belong_to_the_others_is_reported_by_row(path: Path, when: object):
    rows = two_vms()
    rows[6][1] = when
    assert fields_of(refused(write(path, HEADER, rows))) == ["row 8, ts"]
    kept = read_trace(read_table(path), repair=True)
    assert kept.trace.slots == 12
    assert [(one.row, one.column) for one in kept.repaired] == [(8, "ts")]


@given(
    st.sets(st.integers(0, 39), min_size=1, max_size=12), st.sampled_from([1000, 1_000_000, 1_000_000_000])
)
def test_times_in_mixed_units_are_reported_whichever_rows_they_are(
    tmp_path_factory: pytest.TempPathFactory, odd: set[int], factor: int
):
    rows = two_vms(20)
    for row in odd:
        rows[row][1] = (START + 300 * (row % 20)) * factor
    path = write(tmp_path_factory.mktemp("mixed") / "t.csv", HEADER, rows)
    assert fields_of(refused(path)) == [f"row {row + 2}, ts" for row in sorted(odd)]


def test_a_part_of_a_trace_long_before_the_rest_is_no_stray(path: Path):
    early: Rows = [[row[0], int(str(row[1])) - 40 * 86400, *row[2:]] for row in two_vms()]
    assert read(write(path, HEADER, [*early, *two_vms()])).trace.slots == 40 * 288 + 12


def test_milliseconds_from_an_unknown_beginning_are_read_as_the_name_says(path: Path):
    rows: Rows = [[name, 300_000 * slot, 0.5, 2] for name in "ab" for slot in range(2016)]
    reading = read(write(path, ("vm", "time_ms", "cpu_used", "cores"), rows))
    assert (reading.trace.period_s, reading.trace.slots) == (300, 2016)
    assert noted(reading, "time_ms: read as ms from an unknown beginning")


def test_rows_are_numbered_as_in_the_file_though_lines_are_blank(path: Path):
    rows = two_vms()
    rows[20][2] = "abc"
    lines = write(path, HEADER, rows).read_text().splitlines()
    path.write_text("\n".join([*lines[:4], "", "  ", *lines[4:10], "", *lines[10:]]) + "\n")
    assert fields_of(refused(path)) == ["row 25, cpu_used"]
    assert path.read_text().splitlines()[24].split(",")[2] == "abc"
    path.write_text("\n".join([*lines[:4], "", *lines[4:], "a,1"]) + "\n")
    assert "Row 27" in refused(path).problem


def test_memory_without_a_size_is_said_not_to_be_used(path: Path):
    reading = read(write(path, (*HEADER, "mem_used_mb"), with_column(two_vms(), 100)))
    assert noted(reading, "mem_used_mb: not used", "--column memory_allocated")
    assert reading.ignored == ("mem_used_mb",)
    assert ColumnRole.MEMORY_USED not in {one.role for one in reading.understood}


def test_one_moment_with_two_amounts_of_memory_is_refused(path: Path):
    rows = with_column(two_vms(), 100, 2048)
    again = list(rows[4])
    again[4] = 700
    error = refused(write(path, (*HEADER, "mem_used_mb", "mem_alloc_mb"), [*rows, again]))
    assert fields_of(error) == ["row 26, ts"]


def test_repeated_rows_count_once_and_halves_of_a_row_are_joined(path: Path):
    header = (*HEADER, "mem_used_mb", "mem_alloc_mb")
    minute: Rows = [
        ["a", START + second, used, 2, 100, 2048] for second, used in ((0, 1.0), (30, 0.4), (60, 1.0))
    ]
    more: Rows = [["a", START + 60 * slot, 1.0, 2, 100, 2048] for slot in range(2, 8)]
    reading = read(write(path, header, [*minute, minute[0], minute[0], *more]))
    assert reading.trace.usage[Dimension.CPU][0, 0] == pytest.approx(0.7), "not (3 × 1.0 + 0.4) / 4"
    assert noted(reading, "2 rows repeat another row: counted once")
    halves: Rows = [["a", START, "", 2, 100, 2048], ["a", START, 1.0, 2, "", 2048]]
    reading = read(write(path, header, [*halves, *more]))
    assert reading.trace.usage[Dimension.CPU][0, 0] == 1.0
    assert reading.trace.usage[Dimension.MEMORY][0, 0] == 100


def test_three_values_of_one_moment_are_compared_though_one_is_empty(path: Path):
    rows: Rows = [*two_vms(), ["a", START, "", 2], ["a", START, 1.75, 2]]
    assert fields_of(refused(write(path, HEADER, rows))) == ["row 27, ts"]


@pytest.mark.parametrize("size", [4000, 0.004])
def test_sizes_in_mixed_units_are_reported(path: Path, size: float):
    rows: Rows = [[*row[:3], 4] for row in two_vms(30)]
    for row in rows[::3]:
        row[3] = size
    error = refused(write(path, HEADER, rows))
    assert error.problem.startswith("20 cells")
    assert fields_of(error) == [f"row {2 + 3 * n}, cores" for n in range(20)]


def test_a_resize_is_said_and_sizes_in_millicores_throughout_are_refused(path: Path):
    rows = two_vms()
    for row in rows[8:12]:
        row[3] = 8
    reading = read(write(path, HEADER, rows))
    assert noted(reading, "cores: 1 instances change size, first in row 10")
    assert reading.trace.request[Dimension.CPU].tolist() == [2, 2]
    error = refused(write(path, HEADER, [[*row[:3], 4000] for row in rows]))
    assert len(error.fields) == 20
    assert "cpu_allocated=cores:millicores" in error.fields[0].problem


@pytest.mark.parametrize("cell", ["", 0])
def test_an_instance_without_a_size_is_named_once_or_assumed(path: Path, cell: object):
    rows: Rows = [*two_vms(), *([*row[:3], cell] for row in [["c", *row[1:]] for row in two_vms()[:12]])]
    write(path, HEADER, rows)
    error = refused(path)
    assert fields_of(error) == ["row 26, cores"]
    assert "--assume-cores" in error.fields[0].problem
    assert read_trace(read_table(path), repair=True).trace.instances == ("a", "b")
    reading = read_trace(read_table(path), assume_cores=3)
    assert reading.trace.request[Dimension.CPU].tolist() == [2, 2, 3]
    assert noted(reading, "1 instances have no cores in any row: 3 assumed")


def test_an_instance_without_a_memory_size_has_its_memory_not_judged(path: Path):
    rows = with_column(two_vms(), 100, 2048)
    for row in rows[12:]:
        row[5] = ""
    reading = read(write(path, (*HEADER, "mem_used_mb", "mem_alloc_mb"), rows))
    assert noted(reading, "mem_alloc_mb", "1 instances (b)", "not judged")
    assert np.isnan(reading.trace.usage[Dimension.MEMORY][1]).all()


def test_an_instance_without_a_single_sample_is_left_out_and_named(path: Path):
    rows = two_vms()
    for row in rows[12:]:
        row[2] = ""
    reading = read(write(path, HEADER, rows))
    assert reading.trace.instances == ("a",)
    assert noted(reading, "left out", "1 instances (b)")


def test_two_columns_of_one_name_are_refused_and_nameless_ones_are_not(path: Path):
    write(path, (*HEADER, "cpu_used"), with_column(two_vms(), 9))
    error = refused(path)
    assert fields_of(error) == ["cpu_used"]
    assert "3 and 5" in error.fields[0].problem
    write(path, (*HEADER, "", ""), with_column(two_vms(), "", ""))
    assert read(path).ignored == ("column 5", "column 6")


def test_two_columns_of_one_name_in_parquet_are_refused_too(tmp_path: Path):
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet  # noqa: PLC0415 - an optional extra

    table = pa.table([["a", "b"], [1.0, 2.0], [3.0, 4.0]], names=["vm", "cpu", "cpu"])
    parquet.write_table(table, tmp_path / "t.parquet")
    assert fields_of(refused(tmp_path / "t.parquet")) == ["cpu"]


def test_an_autoscaled_cell_is_true_or_false(path: Path):
    rows = [[*row, row[0] == "a"] for row in two_vms()]
    header = (*HEADER, "autoscaled")
    assert read(write(path, header, rows)).autoscaled == {"a"}
    rows[3][4] = "perhaps"
    assert fields_of(refused(write(path, header, rows))) == ["row 5, autoscaled"]


@pytest.mark.parametrize("scale", [1, 100])
def test_memory_utilisation_is_a_share_of_what_was_given(path: Path, scale: int):
    rows = with_column(two_vms(), 0.25 * scale, 8)
    reading = read(write(path, (*HEADER, "mem_util", "mem_alloc_gb"), rows))
    assert np.allclose(reading.trace.usage[Dimension.MEMORY], 2048)
    assert noted(reading, "mem_util: no unit in the name", "from its size")


def test_repair_does_not_make_a_trace_of_what_is_left_of_a_misread_column(path: Path):
    rows: Rows = [[*row[:2], 1900 if n % 3 else 0.5, row[3]] for n, row in enumerate(two_vms())]
    write(path, ("vm", "ts", "cpu_usage", "cores"), rows)
    with pytest.raises(InvalidInputError) as caught:
        read_trace(read_table(path), repair=True)
    assert "16 cells" in caught.value.problem
    assert "--column ROLE=COLUMN:UNIT" in caught.value.remedy
