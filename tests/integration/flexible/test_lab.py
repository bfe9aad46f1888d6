"""The lab on real traces: what it prints, and that another program can recompute it."""

import csv
import gzip
import sys
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
from lab.oversubscription.__main__ import main
from lab.oversubscription.datasets import DataSet, load_folder
from lab.oversubscription.evaluation import Evaluation, evaluate
from lab.oversubscription.methods import DEFAULT, STATED
from lab.oversubscription.placements import COLUMNS, PlacementFile
from lab.oversubscription.printing import (
    baseline_table,
    calibration_table,
    fixed_hosts_table,
    method_table,
    misses,
    set_heading,
    verdicts,
)
from lab.oversubscription.tailoring import compare_pools, flavour_table, pools_table
from pyarrow import parquet

from yunhe.flexible.replay import Window
from yunhe.flexible.trace import Dimension, Ints

FOUR_SETS = ("google2011-vms", "opendc-traces", "azure-v1-sample")


@pytest.fixture(scope="module")
def placements(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("lab") / "placements.csv"


@pytest.fixture(scope="module")
def results(traces: Path, placements: Path) -> list[Evaluation]:
    """Four real sets, a few windows of each."""
    sets, _ = load_folder(traces, FOUR_SETS)
    assert len(sets) == 4
    with PlacementFile(placements) as file:

        def walk(data: DataSet) -> Evaluation:
            def write(name: str, stated: float | None, window: Window, placement: Ints, cores: float) -> None:
                file.write((data.name, name, stated), window, placement, cores)

            return evaluate(data, seed=1, most_windows=4, on_placement=write)

        return [walk(data) for data in sets]


@pytest.mark.feature("F60")
def test_the_what_if_prints_instances_vcpus_and_utilisation_for_each_policy_on_the_same_hosts(
    results: list[Evaluation],
):
    text = fixed_hosts_table(results, seed=1)
    for heading in ("instances", "vCPU placed", "utilisation", "violation"):
        assert heading in text.splitlines()[0]
    for result in results:
        for policy in ("fixed 1x", "fixed 2x", "fixed 3x", "**flexible 1 %**"):
            assert any(result.data.name in line and f"| {policy} " in line for line in text.splitlines())
        placed = {name: sum(one.requested for one in each) for name, each in result.on_fixed_hosts.items()}
        assert placed["fixed 1x"] <= placed["fixed 2x"] <= placed["fixed 3x"]
        assert all(one.hosts <= result.fixed_hosts for each in result.on_fixed_hosts.values() for one in each)


@pytest.mark.feature("N11")
def test_the_bank_s_gain_is_judged_on_four_traces_with_the_violation_beside_it(results: list[Evaluation]):
    text = fixed_hosts_table(results, seed=1)
    assert len({result.data.name for result in results}) >= 4
    assert "65,166/29,320 = 2.2226" in text
    assert "34.4/16.2 = 2.1235" in text
    assert "+122 %" in text
    lines = verdicts(results)
    assert len(lines) == len(results)
    for result, line in zip(results, lines, strict=True):
        flexible, fixed = result.on_fixed_hosts[DEFAULT], result.on_fixed_hosts["fixed 3x"]
        gain = sum(one.requested for one in flexible) / sum(one.requested for one in fixed) - 1
        rate = sum(one.overloaded for one in flexible) / sum(one.judged for one in flexible)
        assert f"{100 * gain:+.0f} % vCPU over 3×" in line
        assert ("reproduced" in line) == (gain >= 65_166 / 29_320 - 1 and rate <= 0.015)


@pytest.mark.feature("F68")
def test_every_comparison_has_the_tenant_s_cost_the_hosts_and_the_breaches_side_by_side(
    results: list[Evaluation],
):
    for text in (fixed_hosts_table(results, seed=1), *(method_table(result, seed=1) for result in results)):
        heading, _, *rows = text.splitlines()
        assert {"¥/vCPU-h", "hosts"} <= {cell.strip() for cell in heading.split("|")}
        assert "violation" in heading or "out of sample" in heading
        assert len(rows) > 3
    result = results[0]
    outcomes = result.on_fixed_hosts["fixed 2x"]
    cores = result.fixed_hosts * result.hosts.cores
    cost = 0.10 * cores / float(np.mean([one.requested for one in outcomes]))
    assert f"{cost:.4f}" in fixed_hosts_table([result], seed=1)


@pytest.mark.feature("N01")
def test_a_pool_sold_at_one_to_one_shows_the_published_gap_between_allocation_and_use(
    results: list[Evaluation],
):
    google = next(result for result in results if result.data.name == "google2011-vms")
    allocated, used = np.mean(google.baseline, axis=0)
    assert 0.80 <= allocated <= 0.85
    assert abs(used - 0.20) <= 0.05
    assert abs((allocated - used) - 0.60) <= 0.05
    assert "google2011-vms" in baseline_table(results)


@pytest.mark.feature("F06")
def test_a_fixed_ratio_leaves_some_hosts_idle_while_others_are_short(results: list[Evaluation]):
    opendc = next(result for result in results if result.data.name == "opendc-traces")
    idle, hot = np.mean(opendc.idle_and_hot["fixed 2x"], axis=0)
    assert idle > 0.1, "waste"
    assert hot > 0.1, "degradation, at the same time on the same pool"
    heading = baseline_table(results).splitlines()[0]
    assert "idle / hot" in heading


def test_the_tables_name_what_was_assumed_and_never_a_density_without_its_violation(
    results: list[Evaluation],
):
    for result in results:
        assert "sizes" in set_heading(result)
        assert "hosts of" in set_heading(result)
    text = calibration_table(results, seed=1)
    assert text.count("\n") == 1 + len(STATED) * len(results)
    outside = text.count("| NO ")
    assert misses(results).count("\n- ") + misses(results).startswith("- ") == outside


def test_another_program_recomputes_every_violation_from_the_raw_trace(
    results: list[Evaluation], placements: Path, traces: Path
):
    """Plain dictionaries over the raw percentages, nothing of ours but the file."""
    raw: dict[tuple[str, int, int], float] = {}
    table = parquet.read_table(traces / "google2011-vms" / "google2011_vms.parquet")
    for row in table.filter(table["day"].to_numpy() == 1).to_pylist():
        raw[row["job"], row["day"], row["step"]] = row["cpu_pct"]
    may_first_s = 1_304_208_000
    members: dict[tuple[str, str, int, int], dict[str, list[tuple[str, float]]]] = {}
    cores: set[float] = set()
    with placements.open() as file:
        for row in csv.DictReader(file):
            if row["dataset"] != "google2011-vms":
                continue
            key = (row["method"], row["stated"], int(row["window_start"]), int(row["window_end"]))
            host = members.setdefault(key, defaultdict(list))[row["host"]]
            host.append((row["instance"], float(row["instance_cores"])))
            cores.add(float(row["host_cores"]))
    (capacity,) = cores
    result = next(one for one in results if one.data.name == "google2011-vms")
    assert capacity == result.hosts.cores
    found: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0])
    for (method, stated, start, end), hosts in members.items():
        for instances in hosts.values():
            for step in range((start - may_first_s) // 300, (end - may_first_s) // 300):
                used = sum(np.float32(raw[job, 1, step] / 100 * size) for job, size in instances)
                found[method, stated][0] += bool(used > capacity * (1 + 1e-9))
                found[method, stated][1] += 1
    assert len(found) == len(result.records)
    for (name, stated), record in result.records.items():
        expected = [
            sum(one.overloaded for one in record.outcomes),
            sum(one.judged for one in record.outcomes),
        ]
        assert found[name, "" if stated is None else f"{stated:g}"] == expected


@pytest.mark.feature("F05")
def test_what_fixed_flavours_waste_on_a_real_trace_is_reported(business: DataSet):
    text = flavour_table([business])
    row = next(line for line in text.splitlines() if "| high " in line)
    assert "bitbrains-rnd" in row
    cells = [cell.strip() for cell in row.split("|")]
    given, flavours, tailored = (float(cell.removeprefix("¥").removesuffix("/h")) for cell in cells[3:6])
    waste = float(cells[6].removesuffix(" %")) / 100
    assert waste == pytest.approx(1 - tailored / flavours, abs=0.002)
    assert tailored < flavours
    assert tailored < given
    assert waste > 0.2


@pytest.mark.feature("F15")
def test_one_pool_of_all_tiers_and_generations_strands_less_than_a_pool_per_flavour(business: DataSet):
    separate, united = compare_pools(business.traces[0], seed=1)
    assert united.placed_cores == pytest.approx(separate.placed_cores), "the same instances, at 1×"
    assert united.stranded < separate.stranded
    assert united.hosts < separate.hosts
    assert "one pool, tiers mixed" in pools_table([business], seed=1)


@pytest.fixture(scope="module")
def business(traces: Path) -> DataSet:
    (data,) = load_folder(traces, ["bitbrains-rnd"])[0]
    return data


def test_the_loaders_read_sizes_and_clocks_as_documented(business: DataSet, traces: Path):
    trace = business.traces[0]
    assert trace.period_s == 300
    assert trace.start_s % 300 == 0
    row = trace.instances.index("1")
    assert trace.request[Dimension.CPU][row] == 2
    table = parquet.read_table(traces / "bitbrains-rnd" / "vms_2013-7.parquet").slice(0, 1).to_pylist()[0]
    slot = (table["ts"] - trace.start_s) // 300
    assert trace.usage[Dimension.CPU][row, slot] == pytest.approx(table["cpu_pct"] / 100 * 2, rel=1e-5)
    assert trace.usage[Dimension.MEMORY][row, slot] == table["mem_mb"]


def test_one_command_prints_the_whole_comparison(
    traces: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    file = tmp_path / "placements.csv.gz"
    arguments = ["--data", str(traces), "--sets", "google2011-vms", "--share", "0.3", "--quick"]
    monkeypatch.setattr(sys, "argv", ["lab", *arguments, "--placements", str(file)])
    assert main() == 0
    out, _ = capsys.readouterr()
    for part in (
        "## google2011-vms",
        "# Calibration",
        "# The published experiment",
        "# What is sold",
        "seed 1",
    ):
        assert part in out
    with gzip.open(file, "rt") as rows:
        assert next(rows).strip() == ",".join(COLUMNS)
    monkeypatch.setattr(sys, "argv", ["lab", "--data", str(tmp_path / "none")])
    assert main() == 1
    assert "✗" in capsys.readouterr().err
