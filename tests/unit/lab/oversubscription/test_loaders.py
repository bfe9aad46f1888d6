"""The lab's loaders: a set is known by its columns, whatever its files are called and however large it is."""

import csv
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import pytest
from lab.oversubscription.__main__ import main
from lab.oversubscription.datasets import load_folder, part_of
from lab.oversubscription.statistics import matched, violation_rate

from yunhe.flexible.replay import ELASTIC, LONG_LIVED, ReplayOutcome
from yunhe.flexible.trace import Dimension


def write(path: Path, header: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([header, *rows])


def test_sized_vms_may_lie_in_several_files_below_the_folder(tmp_path: Path):
    header = ("vm", "ts", "cores", "cpu_pct", "mem_cap_mb", "mem_mb")
    for month, start in (("a", 1_000_000_200), ("b", 1_000_003_800)):
        rows = [(vm, start + 300 * k + vm, 4, 50, 8192, 1024) for vm in (3, 8) for k in range(12)]
        rows.append((9, start, 0, 0, 0, 0))
        write(tmp_path / "some-vms" / "part" / f"{month}.csv", header, rows)
    (data,), skipped = load_folder(tmp_path, ())
    (trace,) = data.traces
    assert data.name == "some-vms"
    assert trace.instances == ("3", "8"), "an instance that was never on has no size"
    assert trace.slots == 24
    assert np.allclose(trace.usage[Dimension.CPU], 2.0)
    assert trace.request[Dimension.MEMORY].tolist() == [8192, 8192]
    assert not skipped


def test_run_length_rows_cover_the_time_before_them(tmp_path: Path):
    folder = tmp_path / "runs"
    write(folder / "x_meta.csv", ("id", "cpu_count", "cpu_capacity"), [("v", 2, 5000.0)])
    rows = [("v", 1_000_000_500_000, 600_000, 2500.0), ("v", 1_000_000_800_000, 300_000, 5000.0)]
    write(folder / "x_trace.csv", ("id", "timestamp", "duration", "cpu_count", "cpu_usage"),
          [(i, t, d, 2, u) for i, t, d, u in rows])  # fmt: skip
    (data,), _ = load_folder(tmp_path, ())
    trace = data.traces[0]
    assert trace.start_s == 999_999_900
    assert trace.usage[Dimension.CPU].tolist() == [[1.0, 1.0, 2.0]]


def test_days_come_in_order_of_their_dates_and_sizes_are_assumed_aloud(tmp_path: Path):
    for day in ("20110412", "20110411"):
        write(tmp_path / "p" / f"{day}.csv", ("vm", "step", "cpu_pct"), [("v", k, 25) for k in range(288)])
    write(tmp_path / "g" / "jobs.csv", ("job", "day", "step", "cpu_pct"),
          [(7, day, k, 10) for day in (9, 8) for k in range(288)])  # fmt: skip
    write(
        tmp_path / "z" / "one.csv", ("vm", "step", "cpu_avg_pct"), [("v 24", k, 10) for k in range(8 * 288)]
    )
    write(tmp_path / "notes" / "other.csv", ("a", "b"), [(1, 2)])
    found, skipped = load_folder(tmp_path, ())
    by_name = {data.name: data for data in found}
    assert set(by_name) == {"p", "g", "z/one"}
    starts = [trace.start_s for trace in by_name["p"].traces]
    assert starts == [1_302_480_000, 1_302_566_400]
    assert by_name["p"].schedule is ELASTIC
    assert [trace.start_s for trace in by_name["g"].traces] == [1_304_812_800, 1_304_899_200]
    assert by_name["z/one"].schedule is LONG_LIVED
    assert "assumed" in by_name["p"].sizes
    assert [one.name for one in skipped] == ["notes"]


SIZED = ("vm", "ts", "cores", "cpu_pct")


def test_memory_and_numbers_for_names_are_not_needed(tmp_path: Path):
    rows = [(vm, 1_000_000_200 + 300 * k, 4, 50) for vm in ("vm-1", "vm-2") for k in range(80)]
    write(tmp_path / "plain" / "a.csv", SIZED, rows)
    write(tmp_path / "plain" / "b.csv", (*SIZED, "mem_cap_mb", "mem_mb"), [(*row, 9, 9) for row in rows])
    (data,), _ = load_folder(tmp_path, ())
    assert data.traces[0].instances == ("vm-1", "vm-2")
    assert set(data.traces[0].usage) == {Dimension.CPU}, "a file has no memory, so the set has none"


def test_a_few_days_are_walked_through_by_the_hour(tmp_path: Path):
    rows = [(vm, 1_000_000_200 + 300 * k, 4, 50) for vm in (1, 2) for k in range(4 * 288)]
    write(tmp_path / "short" / "a.csv", SIZED, rows)
    (data,), _ = load_folder(tmp_path, ())
    assert data.schedule is ELASTIC


@pytest.mark.parametrize("separator", [";", "\t"])
def test_the_separator_is_found_and_a_missing_value_is_a_gap(tmp_path: Path, separator: str):
    path = tmp_path / "s" / "a.csv"
    write(path, SIZED, [(1, 1_000_000_200 + 300 * k, 4, "" if k == 50 else 50) for k in range(100)])
    path.write_text(path.read_text().replace(",", separator))
    (data,), _ = load_folder(tmp_path, ())
    assert data.traces[0].slots == 100


def test_days_go_on_after_the_end_of_a_month(tmp_path: Path):
    write(tmp_path / "g" / "jobs.csv", ("job", "day", "step", "cpu_pct"),
          [(7, day, k, 10) for day in (1, 31, 32, 40) for k in range(288)])  # fmt: skip
    (data,), _ = load_folder(tmp_path, ())
    first = 1_304_208_000
    assert [trace.start_s for trace in data.traces] == [first + 86400 * (day - 1) for day in (1, 31, 32, 40)]


def test_sizes_lie_beside_a_trace_under_any_name_or_the_set_says_what_it_lacks(tmp_path: Path):
    header = ("id", "timestamp", "duration", "cpu_usage")
    rows = [(vm, 1_000_000_500_000 + 300_000 * k, 300_000, 2500.0) for vm in ("v", "w") for k in range(80)]
    write(tmp_path / "runs" / "trace.csv", header, rows)
    write(tmp_path / "runs" / "sizes.csv", ("id", "cpu_count", "cpu_capacity"), [("v", 2, 5000.0)])
    write(tmp_path / "lost" / "trace.csv", header, rows)
    (data,), (skipped,) = load_folder(tmp_path, ())
    assert data.traces[0].instances == ("v",)
    assert data.sizes == "from the trace (1 without one left out)"
    assert skipped.name == "lost"
    assert "trace.csv needs one file of sizes" in skipped.reason


@pytest.mark.parametrize(
    ("row", "named"),
    [
        ((1, 1_000_000_200, 4, "many"), "Row 3 of a.csv, column cpu_pct: “many” is no number"),
        ((1, "", 4, 5), "Row 3 of a.csv, column ts: no number is given"),
        (("", 1_000_000_200, 4, 5), "Row 3 of a.csv, column vm: no instance is named"),
        ((1, 1_000_000_200_000, 4, 5), "slots of 300 s"),
    ],
)
def test_a_cell_that_cannot_be_read_is_named_and_the_other_sets_are_read(
    tmp_path: Path, row: Sequence[object], named: str
):
    good = [(vm, 1_000_000_200 + 300 * k, 4, 50) for vm in (1, 2) for k in range(80)]
    write(tmp_path / "bad" / "a.csv", SIZED, [good[0], row])
    write(tmp_path / "good" / "a.csv", SIZED, good)
    (data,), (skipped,) = load_folder(tmp_path, ())
    assert data.name == "good"
    assert named in skipped.reason


def test_a_set_that_fails_is_printed_with_its_reason_and_the_others_are_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    random = np.random.default_rng(1)
    good = [
        (vm, 1_000_000_200 + 300 * k, 4, 100 * random.random() ** 3) for vm in range(12) for k in range(120)
    ]
    write(tmp_path / "bad" / "a.csv", SIZED, [*good, (1, "x", 4, 5)])
    write(tmp_path / "good" / "a.csv", SIZED, good)
    write(tmp_path / "lonely" / "a.csv", SIZED, good[:120])
    write(tmp_path / "notes" / "a.csv", ("a",), [("b",)])
    monkeypatch.setattr("sys.argv", ["lab", "--data", str(tmp_path)])
    assert main() == 0
    out, _ = capsys.readouterr()
    assert "no usage traces in: notes\n" in out
    assert "- ✗ bad: Row 1442 of a.csv, column ts: “x” is no number." in out
    assert "- ✗ lonely: No window is left to judge" in out
    assert "## good" in out
    assert "nan" not in out
    monkeypatch.setattr("sys.argv", ["lab", "--data", str(tmp_path), "--sets", "bad"])
    assert main() == 1
    assert "✗ bad: Row 1442" in capsys.readouterr().err


def test_a_share_of_the_instances_is_a_smaller_set(tmp_path: Path):
    write(tmp_path / "z" / "one.csv", ("vm", "step", "cpu_avg_pct"), [(f"v{n}", 0, 10) for n in range(200)])
    (data,), _ = load_folder(tmp_path, ["z"])
    kept = part_of(data, 0.3, seed=1)
    assert 30 < len(kept.traces[0].instances) < 90
    assert part_of(data, 1.0, seed=1) is data


def outcome(overloaded: int, judged: int) -> ReplayOutcome:
    return ReplayOutcome(1, 1, 1.0, overloaded, judged, 0.0, 0.0, 1.0, 0.0)


def test_a_rate_lies_in_its_interval_and_the_interval_in_what_was_seen():
    rate = violation_rate([outcome(k, 100) for k in (0, 1, 0, 5, 2, 0, 1)], seed=1)
    assert rate.value == pytest.approx(9 / 700)
    assert rate.low <= rate.value <= rate.high
    assert rate.low >= 0
    assert rate.high <= 0.05


def test_hosts_and_loss_at_a_rate_are_interpolated_and_none_where_it_is_never_reached():
    sweep = [np.array([[10.0, 20, 100, 6, 60], [20.0, 0, 100, 0, 60]])]
    half = matched(0.1, sweep)
    assert half is not None
    assert (half.hosts, half.lost) == (pytest.approx(15), pytest.approx(0.05))
    least = matched(0.3, sweep)
    assert least is not None
    assert (least.hosts, least.lost) == (pytest.approx(10), pytest.approx(0.1))
    assert matched(0.1, [np.array([[10.0, 20, 100, 6, 60]])]) is None
