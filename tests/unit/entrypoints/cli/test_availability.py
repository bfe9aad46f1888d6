import json
import sys
from pathlib import Path
from typing import Any

import pytest

from yunhe.entrypoints.cli.commands.analysis.availability import platform_modules
from yunhe.entrypoints.cli.main import main
from yunhe.entrypoints.cli.views.availability_plot import HEIGHT, plot_frontier


class Screen:
    """Runs the command as a shell would and keeps what it printed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self._monkeypatch = monkeypatch
        self._capsys = capsys

    def run(self, *arguments: str) -> tuple[int, str, str]:
        self._monkeypatch.setattr(sys, "argv", ["yunhe", "availability", *arguments])
        with pytest.raises(SystemExit) as left:
            main()
        out, err = self._capsys.readouterr()
        return int(left.value.code or 0), out, err

    def answer(self, *arguments: str, code: int = 0) -> Any:
        status, out, err = self.run(*arguments, "--output", "json")
        assert (status, err) == (code, "")
        return json.loads(out)

    def refusal(self, *arguments: str) -> str:
        status, out, err = self.run(*arguments)
        assert status == 1
        assert out == "", "nothing half done"
        assert err.startswith("✗ ")
        return err


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Screen:
    return Screen(monkeypatch, capsys)


def test_a_plan_for_the_platform_itself_counts_the_database(screen: Screen):
    status, out, _ = screen.run("plan", "--target", "99.99")
    assert status == 0
    assert "14 services, 42 instances" in out
    assert "99.99162 %" in out
    assert "database 99.9 % × 2 in series" in out
    assert "proven minimal" in out
    assert "orchestration + traffic  |  data" in out


def test_without_the_database_the_figures_are_the_paper_s(screen: Screen):
    plan = screen.answer("plan", "-t", "99.99", "--shared", "none")
    assert plan["outcome"] == "planned"
    assert f"{plan['point']['availability_percent']:.5f}" == "99.99172"
    assert plan["model"]["shared"] == []
    assert sum(len(service["submodules"]) for service in plan["services"]) == 24


def test_a_target_out_of_reach_leaves_with_3_and_names_the_nearest_and_the_way(screen: Screen):
    status, out, _ = screen.run("plan", "-t", "99.999", "--shared", "none")
    assert status == 3
    assert "infeasible" in out
    assert "99.99760 % with 24 services" in out
    assert "--replicas 4" in out
    assert "--mixed" in out
    assert "-a 0.995" in out
    plan = screen.answer("plan", "-t", "99.999", "--shared", "none", code=3)
    assert plan["outcome"] == "infeasible"
    assert plan["proven"]
    for change in (["--replicas", "4"], ["--mixed"], ["-a", "0.995"]):
        assert screen.answer("plan", "-t", "99.999", "--shared", "none", *change)["outcome"] == "planned"


def test_what_flags_say_wins_over_the_file_and_the_file_over_the_default(screen: Screen, tmp_path: Path):
    file = tmp_path / "model.yaml"
    file.write_text("{availability: 0.9, target: 99, replicas: 2, modules: {web: [login, shop], store: 3}}")
    plan = screen.answer("plan", "--model", str(file), code=3)
    assert (plan["target_percent"], plan["model"]["replicas"], plan["model"]["sub_modules"]) == (99.0, 2, 5)
    plan = screen.answer(
        "plan", "-f", str(file), "-k", "4", "-t", "0.98", "-a", "0.95", "-a", "store=0.99", "-a", "web.shop=0.97",
        "--zones", "bj=0.999,tj=0.998", "--common-cause", "1%", "--failover", "0.99", "--switchover", "10s",
        "--repair", "20m", "--shared", "database=0.999x2", "--shared", "disk=0.9999",
    )  # fmt: skip
    assert plan["target_percent"] == 98
    assert plan["model"] == {
        "modules": 2,
        "sub_modules": 5,
        "sub_module_percent": {"lowest": 95.0, "highest": 99.0},
        "replicas": 4,
        "shared": [
            {"name": "database", "availability_percent": 99.9, "instances": 2},
            {"name": "disk", "availability_percent": 99.99, "instances": 1},
        ],
        "zones_percent": {"bj": 99.9, "tj": 99.8},
        "common_cause_percent": 1.0,
        "failover_percent": 99.0,
        "switchover_s": 10.0,
        "repair_s": 1200.0,
    }


def test_the_frontier_is_a_table_a_plot_and_json(screen: Screen):
    status, out, _ = screen.run("frontier", "-a", "0.99", "-t", "99.99", "--shared", "none")
    assert status == 0
    assert out.count("●") == 15
    assert "99.99172 %" in out
    points = screen.answer("frontier", "-a", "0.99", "--shared", "none")["points"]
    assert [point["services"] for point in points] == list(range(10, 25))
    assert f"{points[3]['availability_percent']:.5f}" == "99.98999"
    assert all(point["bound_percent"] == pytest.approx(point["availability_percent"]) for point in points)
    assert len(screen.answer("frontier", "--points", "4")["points"]) == 4


def test_the_frontier_over_both_costs_shows_services_against_instances(screen: Screen):
    arguments = ("frontier", "-a", "0.8", "--mixed", "--max-replicas", "6", "-t", "99", "--shared", "none")
    both = screen.answer(*arguments)["trade_off"]
    assert [(point["services"], point["instances"]) for point in both] == [(20, 119), (21, 117), (22, 115)]
    _, out, _ = screen.run(*arguments)
    assert "services against instances" in out


def test_the_table_shows_38_of_40_and_explains_the_other_two(screen: Screen):
    status, out, _ = screen.run("table")
    assert status == 0
    assert "38 of 40 cells agree" in out
    assert out.count("✗ ") >= 2
    assert "feasible but not the best" in out
    assert "cut off and not rounded" in out
    assert "[7, 4, 2, 2, 2, 2, 2, 1, 1, 1]" in out
    assert "fewer instances in 15 of 15 cells" in out
    assert (
        max(len(line) for line in out.splitlines() if line.startswith(("none", "full", "FCA", "≥", "99")))
        <= 80
    )


def test_every_figure_of_the_table_is_in_percent_as_json(screen: Screen):
    content = screen.answer("table")
    assert set(content) == {"table1", "figure8", "figure9", "figure10", "mixed", "fca_clusters"}
    cells = [cell for row in content["table1"] for cell in row["cells"]]
    assert len(cells) == 40
    assert sum(cell["matches"] for cell in cells) == 38
    assert all(50 < float(cell["computed_percent"]) <= 100 for cell in cells)
    assert {cell["submodule_percent"] for cell in cells} == {90.0, 95.0, 99.0, 99.5, 99.9}
    assert len(content["figure9"]) == len(content["figure10"]) == len(content["mixed"]) == 25
    assert {cell["requirement_percent"] for cell in content["figure9"]} == {99.0, 99.9, 99.95, 99.99, 99.999}
    assert [split["computed_percent"] for split in content["figure8"]] == [65.61, 96.06, 92.91, 88.17]
    assert set(screen.answer("table", "--only", "figure8")) == {"figure8"}


def test_a_simulation_is_printed_beside_its_prediction(screen: Screen):
    arguments = ("simulate", "-t", "99", "-a", "0.95", "--years", "20", "--seed", "4")
    status, out, _ = screen.run(*arguments)
    assert status == 0
    assert "inside that interval" in out
    assert "predicted  99.027 %" in out
    result = screen.answer(*arguments)
    assert result["agrees"]
    assert result["interval_percent"][0] < result["predicted_percent"] < result["interval_percent"][1]


def test_an_explanation_says_why_where_and_what_if(screen: Screen):
    status, out, _ = screen.run("explain", "-t", "99.99")
    assert status == 0
    for part in ("why not less", "where downtime comes from", "what more would buy", "what it rests on"):
        assert part in out
    told = screen.answer("explain", "-t", "99.99")
    assert told["outcome"] == "planned"
    assert told["one_less"]["services"] == 13
    assert told["downtime"][0]["share_percent"] > 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["plan"], ["No target", "--target 99.99"]),
        (["plan", "-t", "100"], ["--target", "'100'"]),
        (["plan", "-t", "99", "-a", "1"], ["--availability", "between 0 and 1", "got 1"]),
        (["plan", "-t", "99", "-a", "0"], ["--availability", "got 0"]),
        (["plan", "-t", "99", "-a", "99"], ["did you mean '99%'"]),
        (["plan", "-t", "99", "-a", "high"], ["'high'"]),
        (["plan", "-t", "99", "-a", "tade=0.9"], ["tade", "did you mean 'trade'"]),
        (["plan", "-t", "99", "-k", "0"], ["replicas", "got 0"]),
        (["plan", "-t", "99", "--shared", "db"], ["--shared", "database=0.999x2"]),
        (["plan", "-t", "99", "--shared", "db=0.9xtwo"], ["--shared"]),
        (["plan", "-t", "99", "--shared", "db=1.2"], ["shared.db.availability"]),
        (["plan", "-t", "99", "--zones", "0.99x9"], ["zones", "at most 8"]),
        (["plan", "-t", "99", "--failover", "2"], ["failover", "got 2"]),
        (["plan", "-t", "99", "--switchover", "soon"], ["--switchover", "'soon'"]),
        (["plan", "-t", "99", "--mixed", "--max-replicas", "0"], ["max_replicas"]),
        (["plan", "-t", "99", "-f", "nowhere.yaml"], ["nowhere.yaml"]),
        (["simulate", "-t", "99", "--years", "0"], ["years"]),
    ],
)  # fmt: skip
def test_bad_input_is_refused_by_name_with_a_remedy(screen: Screen, arguments: list[str], words: list[str]):
    err = screen.refusal(*arguments)
    assert all(word in err for word in words), err
    assert "→ " in err


def test_a_bad_file_is_refused_with_every_field_at_once(screen: Screen, tmp_path: Path):
    file = tmp_path / "bad.yaml"
    file.write_text(
        "{modules: {a: {x: 1.2}, b: []}, replicas: 0,"
        " shared: {db: {availability: 0.9, needs: [disk]}, disk: {availability: 0.9, needs: [db]}}}"
    )
    err = screen.refusal("plan", "-t", "99", "-f", str(file))
    for words in ("modules.a.x", "modules.b", "replicas", "db → disk → db"):
        assert words in err


def test_a_name_in_two_modules_must_be_told_apart(screen: Screen, tmp_path: Path):
    file = tmp_path / "model.yaml"
    file.write_text("{availability: 0.9, modules: {web: [cache, shop], store: [cache]}}")
    assert "web.cache, store.cache" in screen.refusal("plan", "-t", "99", "-f", str(file), "-a", "cache=0.99")
    plan = screen.answer("plan", "-t", "90", "-f", str(file), "-a", "web.cache=0.99")
    assert plan["model"]["sub_module_percent"]["highest"] == 99.0


def test_the_default_model_is_the_platform_s_24_submodules():
    assert sum(len(submodules) for submodules in platform_modules().values()) == 24


def test_the_plot_draws_every_point_and_the_target():
    text = plot_frontier([(10, 1e-2), (11, 1e-3), (12, 1e-4)], "services", 0.999)
    lines = text.splitlines()
    assert text.count("●") == 3
    assert "·" in lines[HEIGHT // 2] or any(line.count("·") > 10 for line in lines)
    assert lines[0].index("●") > lines[HEIGHT - 1].index("●")
    assert plot_frontier([(5, 1e-3)], "services", None).count("●") == 1
