"""``yunhe flex`` as a newcomer meets it."""

import csv
import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from yunhe.entrypoints.cli.main import main
from yunhe.flexible.synthetic import Cluster, synthetic_trace
from yunhe.flexible.trace import Dimension


class Screen:
    """Runs the command as a shell would and keeps what it printed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self._monkeypatch = monkeypatch
        self._capsys = capsys

    def run(self, *arguments: str) -> tuple[int, str, str]:
        self._monkeypatch.setattr(sys, "argv", ["yunhe", "flex", *arguments])
        with pytest.raises(SystemExit) as left:
            main()
        out, err = self._capsys.readouterr()
        return int(left.value.code or 0), out, err

    def answer(self, *arguments: str) -> Any:
        status, out, _ = self.run(*arguments, "--output", "json")
        assert status == 0
        return json.loads(out)

    def refusal(self, *arguments: str) -> str:
        status, out, err = self.run(*arguments)
        assert status == 1
        assert out == "", "nothing half done"
        assert err.startswith("✗ ")
        assert "→" in err
        return err


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Screen:
    monkeypatch.chdir(tmp_path)
    return Screen(monkeypatch, capsys)


@pytest.fixture(scope="module")
def usage(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Nine days of thirty made-up instances as a person would export them."""
    trace = synthetic_trace(Cluster(instances=30, days=9, period_s=1800))
    path = tmp_path_factory.mktemp("flex") / "usage.csv"
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("vm", "ts", "cpu_used", "cpu_alloc", "mem_used_mib", "mem_alloc_mib"))
        for row, name in enumerate(trace.instances):
            for slot in range(trace.slots):
                writer.writerow(
                    (
                        name,
                        trace.start_s + slot * trace.period_s,
                        f"{trace.usage[Dimension.CPU][row, slot]:.4f}",
                        trace.request[Dimension.CPU][row],
                        f"{trace.usage[Dimension.MEMORY][row, slot]:.0f}",
                        trace.request[Dimension.MEMORY][row],
                    )
                )
    return path


def test_an_assessment_shows_each_policy_with_its_violation_and_writes_a_report(screen: Screen, usage: Path):
    status, out, err = screen.run("assess", str(usage), "--hosts", "3x16")
    assert status == 0
    assert "understood vm = instance" in out
    for policy in ("fixed 1×", "fixed 2×", "fixed 3×", "flexible"):
        assert policy in out
    assert "overload stated/realised" in out
    assert "report written to flex-report.html" in err
    assert Path("flex-report.html").read_text().startswith("<!doctype html>")


def test_json_and_csv_say_the_same(screen: Screen, usage: Path):
    found = screen.answer("assess", str(usage), "--hosts", "3x16", "--no-report")["assessment"]
    assert not Path("flex-report.html").exists()
    status, out, _ = screen.run("assess", str(usage), "--hosts", "3x16", "--no-report", "-o", "csv")
    assert status == 0
    rows = list(csv.DictReader(io.StringIO(out)))
    assert [row["name"] for row in rows] == [policy["name"] for policy in found["policies"]]
    assert [float(row["violation"]) for row in rows] == [policy["violation"] for policy in found["policies"]]
    one, two = (next(p for p in found["policies"] if p["name"] == f"fixed {k}×") for k in (1, 2))
    assert one["vcpus"] <= 48
    assert one["vcpus"] < two["vcpus"] <= 96


def test_json_has_everything_the_tables_have(screen: Screen, usage: Path):
    found = screen.answer("assess", str(usage), "--hosts", "3x16", "--no-report")
    assert {one["column"]: (one["role"], one["unit"]) for one in found["understood"]} == {
        "vm": ("instance", ""),
        "ts": ("time", ""),
        "cpu_used": ("cpu_used", "cores"),
        "cpu_alloc": ("cpu_allocated", "cores"),
        "mem_used_mib": ("memory_used", "MiB"),
        "mem_alloc_mib": ("memory_allocated", "MiB"),
    }
    assert (found["ignored"], found["repaired"]) == ([], [])
    assert len(found["recommendations"]) == 30
    saved = sum(one["saving_micros_per_hour"] for one in found["recommendations"])
    assert found["savings"]["saving_micros_per_hour"] == saved
    alone = screen.answer("recommend", str(usage))
    assert alone["recommendations"] == found["recommendations"]
    assert alone["understood"] == found["understood"]
    assert alone["savings"] == found["savings"]


def test_what_was_left_out_is_in_json_and_on_the_screen(screen: Screen, usage: Path, tmp_path: Path):
    lines = [f"{line},x" for line in usage.read_text().splitlines()]
    lines[7] = lines[7].replace(lines[7].split(",")[2], "many")
    (tmp_path / "bad.csv").write_text("\n".join(lines) + "\n")
    found = screen.answer("recommend", str(tmp_path / "bad.csv"), "--repair")
    assert [(one["row"], one["column"], one["value"]) for one in found["repaired"]] == [
        (8, "cpu_used", "many")
    ]
    assert found["ignored"] == ["x"]
    _, out, _ = screen.run("recommend", str(tmp_path / "bad.csv"), "--repair")
    assert "row 8, cpu_used" in out
    assert "not used" in out


def test_a_cap_holds_on_every_host_and_a_loose_one_changes_nothing(screen: Screen, usage: Path):
    def flexible(*options: str) -> dict[str, float]:
        found = screen.answer("assess", str(usage), "--hosts", "3x16", "--no-report", *options)["assessment"]
        return next(one for one in found["policies"] if one["name"] == "flexible")

    free, tight, loose = flexible(), flexible("--cap", "1.25"), flexible("--cap", "50")
    assert free["vcpu_per_core"] > 1.25
    assert 1 < tight["vcpu_per_core"] <= 1.25
    assert tight["hosts_needed"] > free["hosts_needed"]
    assert loose == free
    _, out, _ = screen.run("assess", str(usage), "--hosts", "3x16", "--no-report", "--cap", "1.25")
    assert "held to 1.25 vCPU for each core" in out


def test_how_far_back_to_look_can_be_said(screen: Screen, usage: Path):
    options = ("assess", str(usage), "--hosts", "2x8", "--no-report")
    week, said, short = (
        screen.answer(*options, *more)["assessment"] for more in ((), ("--window", "7d"), ("--window", "2d"))
    )
    assert week == said
    assert short["profile"].startswith("looking back 2 days")
    assert short["calibration"] != week["calibration"], "another past, other placements"
    assert "--window" in screen.refusal(*options, "--window", "6h"), "half-hour samples are too coarse"
    screen.refusal(*options, "--window", "soon")


def test_hosts_too_small_by_memory_are_refused_or_leave_instances_out(screen: Screen, usage: Path):
    error = screen.refusal("assess", str(usage), "--hosts", "3x16x1GB", "--no-report")
    assert "No instance fits a host of 16 cores and 1 GiB" in error
    assert "--hosts" in error
    with usage.open() as file:
        sizes = {row["vm"]: float(row["mem_alloc_mib"]) for row in csv.DictReader(file)}
    middle = sorted(sizes.values())[len(sizes) // 2]
    larger = sorted(name for name, size in sizes.items() if size > middle)
    assert larger
    found = screen.answer("assess", str(usage), "--hosts", f"3x16x{middle:.0f}MB", "--no-report")
    assert f"{len(larger)} instances ({larger[0]}" in found["assessment"]["notes"][0]


def test_memory_is_never_overcommitted_when_the_hosts_have_a_limit(screen: Screen, usage: Path):
    tight = screen.answer("assess", str(usage), "--hosts", "3x16x64GB", "--no-report")["assessment"]
    free = screen.answer("assess", str(usage), "--hosts", "3x16", "--no-report")["assessment"]
    placed = [
        next(p for p in found["policies"] if p["name"] == "flexible")["placed"] for found in (tight, free)
    ]
    assert placed[0] < placed[1]


def test_recommendations_come_as_table_json_and_csv(screen: Screen, usage: Path):
    advice = screen.answer("recommend", str(usage), "--tier", "medium")["recommendations"]
    assert len(advice) == 30
    assert all(one["evidence"] for one in advice)
    _, out, _ = screen.run("recommend", str(usage), "--tier", "medium", "-o", "csv")
    rows = list(csv.DictReader(io.StringIO(out)))
    assert {row["instance"]: int(row["cpu_millis"]) for row in rows} == {
        one["instance"]: one["recommended"]["cpu_millis"] for one in advice
    }
    status, out, _ = screen.run("recommend", str(usage), "--top", "3")
    assert status == 0
    assert "27 more" in out


def test_one_instance_is_explained(screen: Screen, usage: Path):
    name = usage.read_text().splitlines()[1].split(",")[0]
    status, out, _ = screen.run("explain", name, str(usage))
    assert status == 0
    assert name in out
    assert "by hour (UTC)" in out
    assert "should be" in out
    answer = screen.answer("explain", name, str(usage))
    assert answer["instance"] == name
    _, out, _ = screen.run("explain", name, str(usage), "-o", "csv")
    (row,) = csv.DictReader(io.StringIO(out))
    assert row["instance"] == name
    assert float(row["p95_cores"]) == answer["p95_cores"]
    assert int(row["cpu_millis"]) == answer["recommendation"]["recommended"]["cpu_millis"]
    assert [float(row[f"hour_{hour:02}_cores"]) for hour in range(24)] == answer["by_hour_cores"]
    assert "Did you mean" in screen.refusal("explain", name + "x", str(usage))


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("--demo", "usage.csv"),
        ("--demo", "--recorded"),
        ("--demo", "--window", "5m"),
        ("missing.csv",),
        ("--demo", "--hosts", "forty"),
        ("--demo", "--hosts", "0x64"),
        ("--demo", "--hosts", "4x64xlots"),
        ("--demo", "--stated", "120%"),
        ("--demo", "--stated", "often"),
        ("--demo", "--report", "no/such/folder/r.html"),
        ("--demo", "--price", "cpu=free"),
    ],
)
def test_what_cannot_be_answered_is_refused_with_a_remedy(screen: Screen, arguments: tuple[str, ...]):
    screen.refusal("assess", *arguments)


def test_a_trace_too_short_to_judge_says_how_much_is_needed(screen: Screen, usage: Path, tmp_path: Path):
    lines = usage.read_text().splitlines()
    short = [lines[0], *(line for line in lines[1:] if int(line.split(",")[1]) < 1_767_571_200 + 7200)]
    (tmp_path / "short.csv").write_text("\n".join(short) + "\n")
    assert "at least 5 hours" in screen.refusal("assess", str(tmp_path / "short.csv"))


def test_every_command_has_help_with_an_example(screen: Screen):
    for command in ("assess", "recommend", "explain"):
        status, out, _ = screen.run(command, "--help")
        assert status == 0
        assert f"yunhe flex {command}" in out
