"""The file of placements: another program gets every printed violation from it and the raw trace, gaps or none."""

import csv
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
from lab.oversubscription.__main__ import main
from lab.oversubscription.datasets import load_folder
from lab.oversubscription.evaluation import Evaluation, evaluate
from lab.oversubscription.experiment import fixed_hosts_table, verdicts
from lab.oversubscription.methods import DEFAULT
from lab.oversubscription.placements import PlacementFile

from yunhe.flexible.replay import Window
from yunhe.flexible.trace import Ints

START_S = 1_000_000_800
SLOTS = 150
GAP = range(98, 107)
"""The collector was down within a window; the first three slots hold what came before, the others are not judged."""


@pytest.fixture(scope="module")
def raw(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Thirty busy instances with a gap of all of them and holes of their own."""
    folder = tmp_path_factory.mktemp("sets")
    random = np.random.default_rng(4)
    shared = random.random(SLOTS) ** 2
    (folder / "some").mkdir()
    with (folder / "some" / "usage.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(("vm", "ts", "cores", "cpu_pct"))
        for vm in range(30):
            used = 100 * np.clip(0.6 * shared + 0.5 * random.random(SLOTS) ** 3, 0, 1)
            for slot in range(SLOTS):
                if slot not in GAP and random.random() < 0.93:
                    rows.writerow(
                        (f"vm-{vm}", START_S + 300 * slot + vm, 2 + 2 * (vm % 2), f"{used[slot]:.3f}")
                    )
    return folder


@pytest.fixture(scope="module")
def walked(raw: Path) -> tuple[Evaluation, Path]:
    (data,), _ = load_folder(raw, ())
    path = raw / "placements.csv"
    with PlacementFile(path) as file:

        def write(name: str, stated: float | None, window: Window, placement: Ints, cores: float) -> None:
            file.write((data.name, name, stated), window, placement, cores)

        return evaluate(data, 1, None, write), path


def held(path: Path) -> dict[tuple[str, int], float]:
    """Plain reading of the raw trace: the share used in each slot, held for up to 15 minutes."""
    known: dict[tuple[str, int], float] = {}
    with path.open() as file:
        for row in csv.DictReader(file):
            known[row["vm"], int(row["ts"]) // 300 * 300] = float(row["cpu_pct"]) / 100
    filled = dict(known)
    for (vm, at), value in known.items():
        for later in (at + 300, at + 600, at + 900):
            if (vm, later) in known:
                break
            filled[vm, later] = value
    return filled


def test_overloaded_over_all_host_slots_of_the_file_is_the_printed_rate(
    walked: tuple[Evaluation, Path], raw: Path
):
    result, path = walked
    share = held(raw / "some" / "usage.csv")
    hosts: dict[tuple[str, str, int, int, str], list[tuple[str, float]]] = defaultdict(list)
    cores: dict[tuple[str, str], float] = {}
    with path.open() as file:
        for row in csv.DictReader(file):
            method = row["method"], row["stated"]
            cores[method] = float(row["host_cores"])
            window = int(row["window_start"]), int(row["window_end"])
            hosts[*method, *window, row["host"]].append((row["instance"], float(row["instance_cores"])))
    found: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0])
    for (name, stated, start, end, _), members in hosts.items():
        for at in range(start, end, 300):
            used = sum(np.float32(share.get((vm, at), 0.0) * size) for vm, size in members)
            found[name, stated][0] += bool(used > cores[name, stated] * (1 + 1e-9))
            found[name, stated][1] += 1
    printed = {(name, stated): record.outcomes for (name, stated), record in result.records.items()}
    given = result.experiment
    for name, outcomes in given.outcomes.items():
        printed[f"{name} on {given.hosts} hosts", 0.01 if name == DEFAULT else None] = outcomes
    assert len(found) == len(printed)
    for (name, stated), outcomes in printed.items():
        expected = [sum(one.overloaded for one in outcomes), sum(one.judged for one in outcomes)]
        assert found[name, "" if stated is None else f"{stated:g}"] == expected, name
    assert found["fixed 3x", ""][0] > 0


def test_the_time_without_a_collector_is_in_no_written_window(walked: tuple[Evaluation, Path]):
    _, path = walked
    with path.open() as file:
        windows = {(int(row["window_start"]), int(row["window_end"])) for row in csv.DictReader(file)}
    down = START_S + 300 * (GAP.start + 3), START_S + 300 * GAP.stop
    assert not any(start < down[1] and end > down[0] for start, end in windows)
    assert any(end == down[0] for _, end in windows)


def test_a_gain_bounded_by_the_instances_there_are_is_not_refuted(walked: tuple[Evaluation, Path]):
    result, _ = walked
    given = result.experiment
    assert verdicts([result])[0].count("**refuted**") == 2, "though one window had a place for everybody"
    offered = list(given.offered)
    given.offered[:] = [one.placed for one in given.outcomes[DEFAULT]]
    (line,) = verdicts([result])
    given.offered[:] = offered
    assert "refuted" not in line
    assert (
        line.count(f"**not decidable**: no instance was left to place in {len(offered)} of {len(offered)}")
        == 2
    )


def test_where_all_are_alike_a_given_host_holds_a_whole_number_of_them(tmp_path: Path):
    random = np.random.default_rng(2)
    (tmp_path / "z").mkdir()
    with (tmp_path / "z" / "one.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(("vm", "step", "cpu_avg_pct"))
        rows.writerows(
            (vm, step, f"{40 * random.random() ** 4:.2f}") for vm in range(40) for step in range(120)
        )
    (data,), _ = load_folder(tmp_path, ())

    def forget(*_: object) -> None:
        """Nobody asks where they went."""

    result = evaluate(data, 1, 2, forget)
    given = result.experiment
    assert given.cores % 4 == 0
    for ratio in (1, 2, 3):
        for outcome in given.outcomes[f"fixed {ratio}x"]:
            assert outcome.requested == min(ratio * given.hosts * given.cores, 4 * 40), (
                "the ratio is what it says"
            )
    assert f"| {given.hosts} × {given.cores:g}" in fixed_hosts_table([result], 1)


def test_the_command_writes_the_experiment_too(raw: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "p.csv"
    monkeypatch.setattr("sys.argv", ["lab", "--data", str(raw), "--quick", "--placements", str(path)])
    assert main() == 0
    with path.open() as file:
        methods = {row["method"] for row in csv.DictReader(file)}
    assert {name.partition(" on ")[0] for name in methods if " on " in name} == {
        "fixed 1x",
        "fixed 2x",
        "fixed 3x",
        DEFAULT,
    }
