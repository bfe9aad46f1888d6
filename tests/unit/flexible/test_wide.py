"""A column for each instance, as dashboards export it, reads as the same trace as a row for each sample."""

from pathlib import Path

import numpy as np
import pytest

from yunhe.flexible.reading.columns import parse_override
from yunhe.flexible.reading.rows import TraceReading, read_trace
from yunhe.flexible.reading.tables import read_table
from yunhe.flexible.trace import Dimension
from yunhe.kernel.errors import InvalidInputError

USED = {"vm-a": (0.5, 0.25, 1.0), "vm-b": (1.5, 2.0, 0.5)}


def written(tmp_path: Path, *lines: str) -> Path:
    path = tmp_path / "usage.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


def wide(tmp_path: Path, unit: str = "", time: str = "Time") -> Path:
    rows = (
        ",".join([f'"2026-11-01 00:0{5 * i}:00"', *(f"{USED[name][i]}{unit}" for name in USED)])
        for i in range(2)
    )
    return written(tmp_path, ",".join([f'"{time}"', *USED]), *rows)


def tall(tmp_path: Path) -> Path:
    rows = (f"2026-11-01 00:0{5 * i}:00,{name},{USED[name][i]}" for i in range(2) for name in USED)
    return written(tmp_path, "time,instance,cpu_used", *rows)


def read(path: Path, *said: str, cores: float | None = None) -> TraceReading:
    return read_trace(read_table(path), [parse_override(text) for text in said], assume_cores=cores)


def test_it_reads_as_a_table_with_a_row_for_each_sample_does(tmp_path: Path) -> None:
    turned, straight = read(wide(tmp_path)), read(tall(tmp_path))
    assert turned.trace.instances == straight.trace.instances
    assert np.array_equal(turned.trace.usage[Dimension.CPU], straight.trace.usage[Dimension.CPU])
    assert any("each of 2 instances" in note for note in turned.notes)


@pytest.mark.parametrize("unit", ["%", ""])
def test_the_unit_of_all_columns_can_be_said_or_stand_in_the_cells(tmp_path: Path, unit: str) -> None:
    said = () if unit else ("cpu_used=*:percent",)
    trace = read(wide(tmp_path, unit), *said, cores=4.0).trace
    assert np.nanmax(trace.usage[Dimension.CPU]) == pytest.approx(2.0 * 4 / 100)


def test_a_time_of_another_name_can_be_said(tmp_path: Path) -> None:
    path = wide(tmp_path, time="when")
    with pytest.raises(InvalidInputError, match="columns needed are not there"):
        read(path)
    assert len(read(path, "time=when").trace.instances) == 2


def test_a_bad_cell_is_named_by_the_row_it_stands_in(tmp_path: Path) -> None:
    path = written(tmp_path, "Time,a,b", "2026-11-01 00:00:00,0.5,1", "2026-11-01 00:05:00,0.5,-1")
    with pytest.raises(InvalidInputError) as refused:
        read(path)
    assert any("row 3" in field.field for field in refused.value.fields)


def test_a_column_of_words_is_no_instance(tmp_path: Path) -> None:
    path = written(tmp_path, "Time,zone,load", "2026-11-01 00:00:00,north,1", "2026-11-01 00:05:00,south,2")
    with pytest.raises(InvalidInputError, match="columns needed are not there"):
        read(path)
