"""What a simulation is given: bad files are named, not called our fault; costs are of what was used and known."""

import gzip
import json
import subprocess
import sys
from pathlib import Path

import pytest

from support.worlds import cores, node, pool, prices, world
from yunhe.kernel.errors import InvalidInputError
from yunhe.kernel.ids import PoolId
from yunhe.scheduling.decision.model import Policy
from yunhe.simulator import workloads
from yunhe.simulator.engine import SimulationEngine
from yunhe.simulator.graphs import replay
from yunhe.simulator.model import Failure, SimulatedTask, Workload
from yunhe.simulator.run import failure_of, simulate
from yunhe.simulator.streams import read_stream
from yunhe.simulator.worlds import made_up

TASK = {"submitted_at": 0, "run_s": 60, "resources": {"cpu_millis": 1000}}


@pytest.mark.parametrize(
    ("kind", "text", "words"),
    [
        ("swf", "1 2 3\n", "form swf"),
        ("swf", "1 0 0 ten 1 0 0 1\n", "form swf"),
        ("openb", "name,cpu_milli\na,1\n", "form openb"),
        ("wfcommons", "{", "form wfcommons"),
        ("wfcommons", '{"name": "x"}', "form wfcommons"),
        ("log", "no json\n", "Line 1"),
        ("log", json.dumps(TASK | {"run_s": -60}), "cannot be"),
        ("log", json.dumps(TASK | {"after": [99]}), "cannot be"),
        ("log", json.dumps(TASK | {"after": [0]}), "cannot be"),
        ("log", json.dumps(TASK | {"members": 0}), "cannot be"),
        ("log", "", "no task"),
    ],
)
def test_a_workload_that_cannot_be_is_refused(tmp_path: Path, kind: str, text: str, words: str) -> None:
    path = tmp_path / "jobs.txt"
    path.write_text(text)
    with pytest.raises(InvalidInputError, match=words):
        workloads.read(path, kind)


def test_a_packed_file_that_is_cut_short_and_one_in_another_encoding_are_refused(tmp_path: Path) -> None:
    cut = tmp_path / "jobs.gz"
    cut.write_bytes(gzip.compress(json.dumps(TASK).encode() * 100)[:-20])
    latin = tmp_path / "jobs.jsonl"
    latin.write_bytes("ä".encode("latin-1"))
    for path in (cut, latin):
        with pytest.raises(InvalidInputError, match="form log"):
            workloads.read(path, "log")


@pytest.mark.parametrize(
    "text", ["pool-000@-5+9", "pool-000@5+-9", "pool-000@5+0", "pool-000@nan+9", "pool-000"]
)
def test_a_failure_in_the_past_or_without_a_length_is_refused(text: str) -> None:
    with pytest.raises(InvalidInputError, match="cannot be read"):
        failure_of(text, made_up(1, 1, 0))


def test_an_attempt_cut_off_by_a_failure_costs_what_it_ran() -> None:
    here = world([pool("a", prices=prices(3600.0))], [node("n", "a", cores(1))])
    fails = Failure(pool_id=PoolId("a"), at=50.0, lasts_s=100.0)
    engine = SimulationEngine(
        Workload("w", [SimulatedTask(submitted_at=0, resources=cores(1, 0), run_s=80)]),
        here,
        Policy.BALANCED,
        failures=[fails],
    )
    engine.run()
    (outcome,) = engine.outcomes()
    assert outcome.cost == pytest.approx(50 + 80), "a unit a second: 50 lost, then all 80"


def test_an_unknown_price_is_not_told_as_nothing() -> None:
    tasks = [SimulatedTask(submitted_at=0, resources=cores(1, 0), run_s=80)]
    nobody_said = world([pool("a", prices=None)], [node("n", "a", cores(1))])
    assert simulate(Workload("w", tasks), nobody_said, Policy.BALANCED).cost is None
    said = world([pool("a", prices=prices(3600.0))], [node("n", "a", cores(1))])
    assert simulate(Workload("w", tasks), said, Policy.BALANCED).cost == pytest.approx(80)


def stream_in(folder: Path) -> Path:
    """Write a stream: two nodes of 10 on a link of 5, and three graphs of which two fit at a time."""
    (folder / "p_net").mkdir(parents=True)
    (folder / "v_nets" / "v_nets").mkdir(parents=True)
    (folder / "p_net" / "p_net.gml").write_text(
        "graph [ node [ id 0 cpu 10 ] node [ id 1 cpu 10 ] edge [ source 0 target 1 bw 5 ] ]"
    )
    for number in range(3):
        (folder / "v_nets" / "v_nets" / f"{number}.gml").write_text(
            f"graph [ id {number} lifetime 10 node [ id 0 cpu 4 ] node [ id 1 cpu 4 ]"
            " edge [ source 0 target 1 bw 2 ] ]"
        )
    events = [(0, 0, 1), (1, 1, 1), (2, 2, 1), (3, 10, 0)]  # request, time, arrives
    told = [
        {"id": i, "time": at, "type": kind, "v_net_id": min(request, 2) if kind else 0}
        for i, (request, at, kind) in enumerate(events)
    ]
    (folder / "v_nets" / "events.yaml").write_text(json.dumps(told))
    return folder


def test_a_stream_of_component_graphs_is_played_on_its_network(tmp_path: Path) -> None:
    report = replay(read_stream(stream_in(tmp_path / "small")))
    assert (report.requests, report.accepted) == (3, 2)
    assert report.accepted_share == pytest.approx(2 / 3)


def test_a_stream_that_is_none_is_refused(tmp_path: Path) -> None:
    nothing = tmp_path / "nothing.tar.gz"
    nothing.write_bytes(b"no archive")
    with pytest.raises(InvalidInputError, match="no stream"):
        read_stream(nothing)
    folder = stream_in(tmp_path / "small")
    (folder / "v_nets" / "v_nets" / "2.gml").unlink()
    with pytest.raises(InvalidInputError, match="not there: 2"):
        read_stream(folder)


def test_the_command_plays_a_stream_and_fits_a_narrow_terminal_without_unicode(tmp_path: Path) -> None:
    def run(*words: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "yunhe.entrypoints.cli", "simulate", *words],
            env={
                "PATH": "",
                "PYTHONIOENCODING": "ascii",
                "HOME": str(tmp_path),
                "PYTHONPATH": ":".join(sys.path),
            },
            capture_output=True,
            check=True,
        )
        return done.stdout.decode()

    assert "66.7 %" in run(str(stream_in(tmp_path / "small")), "--kind", "virne")
    plot = run("--tasks", "50", "--nodes", "5", "--pools", "1").splitlines()[-1]
    assert "?" not in plot
    assert plot.endswith("cores in use")
