"""The simulator against time worked out by hand, and against itself."""

from pathlib import Path
from random import Random

import msgspec
import pytest

from support.worlds import cores, node, pool, prices, world
from yunhe.entrypoints.cli.main import COMMANDS
from yunhe.entrypoints.cli.terminal.shell import run
from yunhe.kernel.errors import InvalidInputError
from yunhe.kernel.ids import PoolId
from yunhe.kernel.resources import Resources
from yunhe.scheduling.decision.model import Policy
from yunhe.scheduling.perception.snapshot import Snapshot
from yunhe.simulator import workloads
from yunhe.simulator.engine import SimulationEngine
from yunhe.simulator.model import Failure, SimulatedOutcome, SimulatedTask, Workload
from yunhe.simulator.run import failure_of, simulate
from yunhe.simulator.worlds import made_up


def task(at: float, run_s: float, amount: Resources = cores(1, 0), **more: object) -> SimulatedTask:  # noqa: B008 - frozen
    return SimulatedTask(submitted_at=at, resources=amount, run_s=run_s, **more)  # pyright: ignore[reportArgumentType]


def play(
    here: Snapshot, tasks: list[SimulatedTask], *failures: Failure, policy: Policy = Policy.BALANCED
) -> list[SimulatedOutcome]:
    engine = SimulationEngine(Workload("test", tasks), here, policy, failures=failures)
    engine.run()
    return engine.outcomes()


def times(outcomes: list[SimulatedOutcome]) -> list[tuple[float | None, float | None]]:
    return [(one.started_at, one.ended_at) for one in outcomes]


def one_core(**facts: object) -> Snapshot:
    return world([pool("p", **facts)], [node("n", "p", cores(1))])


def test_work_waits_for_its_turn_and_runs_at_the_speed_of_its_pool() -> None:
    got = times(play(one_core(speed=2.0, wait_s=5.0), [task(0, 100), task(10, 40)]))
    assert got == [(5.0, 55.0), (60.0, 80.0)]


def test_a_small_task_passes_a_large_one_that_has_no_room() -> None:
    here = world([pool("p")], [node("n", "p", cores(4, 4))])
    got = times(play(here, [task(0, 100, cores(3, 0)), task(1, 10, cores(4, 0)), task(2, 10, cores(1, 0))]))
    assert got == [(0.0, 100.0), (100.0, 110.0), (2.0, 12.0)]


def test_a_task_starts_only_after_those_it_follows() -> None:
    here = world([pool("p")], [node("n", "p", cores(8, 8))])
    tasks = [task(0, 10), task(0, 30), task(0, 5, after=(0, 1)), task(50, 5, after=(2,))]
    assert times(play(here, tasks)) == [(0.0, 10.0), (0.0, 30.0), (30.0, 35.0), (50.0, 55.0)]


def test_what_ran_on_a_failed_pool_starts_again_elsewhere_or_when_it_is_back() -> None:
    near = pool("a", prices=prices(0.01))
    far = pool("b", prices=prices(0.02))
    fails = Failure(pool_id=PoolId("a"), at=50.0, lasts_s=100.0)
    both = world([near, far], [node("n1", "a", cores(1)), node("n2", "b", cores(1))])
    moved = play(both, [task(0, 80)], fails)[0]
    assert (moved.pool, moved.started_at, moved.ended_at, moved.restarts) == ("b", 50.0, 130.0, 1)
    alone = play(world([near], [node("n1", "a", cores(1))]), [task(0, 80)], fails)[0]
    assert (alone.pool, alone.started_at, alone.ended_at, alone.restarts) == ("a", 150.0, 230.0, 1)


def test_a_gang_takes_all_its_members_at_once() -> None:
    here = world([pool("p")], [node("n1", "p", cores(2, 8)), node("n2", "p", cores(2, 8))])
    got = times(play(here, [task(0, 10), task(1, 5, members=4), task(2, 3)]))
    assert got == [(0.0, 10.0), (10.0, 15.0), (2.0, 5.0)]


def test_what_fits_nowhere_is_counted_and_holds_nobody_up() -> None:
    report = simulate(Workload("w", [task(0, 10, cores(9, 0)), task(1, 10)]), one_core(), Policy.BALANCED)
    assert (report.ended, report.never_placed) == (1, 1)


@pytest.mark.parametrize("seed", range(3))
def test_no_moment_uses_more_cores_than_there_are_and_every_run_is_alike(seed: int) -> None:
    rng = Random(seed)
    here = made_up(3, 6, seed)
    tasks = [task(rng.uniform(0, 500), rng.uniform(1, 300), cores(rng.randint(1, 30), 0)) for _ in range(300)]
    outcomes = play(here, tasks, Failure(pool_id=here.pools[1].id, at=200.0, lasts_s=100.0))
    assert outcomes == play(here, tasks, Failure(pool_id=here.pools[1].id, at=200.0, lasts_s=100.0))
    for name in here.node_ids:
        held = [
            (when, amount)
            for one, work in zip(outcomes, tasks, strict=True)
            if one.node == name and one.started_at is not None and one.ended_at is not None
            for when, amount in (
                (one.started_at, work.resources.cpu_millis),
                (one.ended_at, -work.resources.cpu_millis),
            )
        ]
        level = 0
        for _, change in sorted(held):
            level += change
            assert level <= here.cpu_total_millis[here.row_of_node[name]]


def test_policies_differ_in_what_they_are_named_after() -> None:
    here, work = made_up(6, 60, 1), workloads.generated(400, 1.0, 1)
    reports = {policy: simulate(work, here, policy) for policy in (Policy.CHEAPEST, Policy.FASTEST)}
    cost = {policy: report.cost or 0.0 for policy, report in reports.items()}
    assert 0 < cost[Policy.CHEAPEST] < cost[Policy.FASTEST]
    assert reports[Policy.FASTEST].turnaround_mean_s < reports[Policy.CHEAPEST].turnaround_mean_s


def test_a_log_of_tasks_is_replayed_as_written(tmp_path: Path) -> None:
    log = tmp_path / "jobs.jsonl"
    tasks = [task(0, 10), task(5, 20, after=(0,))]
    log.write_bytes(b"\n".join(msgspec.json.encode(one) for one in tasks))
    assert list(workloads.read(log, "log").tasks) == tasks
    log.write_text('{"submitted_at": 0}')
    with pytest.raises(InvalidInputError, match="Line 1"):
        workloads.read(log, "log")


def test_a_swf_log_is_read_with_comments_and_cancelled_jobs_left_out(tmp_path: Path) -> None:
    log = tmp_path / "trace.swf"
    log.write_text(
        "; Version: 2\n1 10 0 60 4 -1 -1 4 90 -1 1 1 1 1 1 -1 -1 -1\n2 20 0 -1 -1 -1 -1 2 90 -1 5 1 1 1 1 -1 -1 -1\n"
    )
    read = workloads.read(log, "swf").tasks
    assert [(one.submitted_at, one.run_s, one.members) for one in read] == [(10.0, 60.0, 4)]


def test_a_failure_is_read_or_refused_with_its_remedy() -> None:
    here = made_up(2, 2, 0)
    assert failure_of("pool-001@600+300", here) == Failure(
        pool_id=PoolId("pool-001"), at=600.0, lasts_s=300.0
    )
    for wrong in ("nobody@1+1", "pool-001", "pool-001@soon+1"):
        with pytest.raises(InvalidInputError):
            failure_of(wrong, here)


def test_the_command_prints_a_table_and_json(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [
        "simulate",
        "--tasks",
        "50",
        "--nodes",
        "8",
        "--pools",
        "2",
        "-p",
        "cheapest",
        "-p",
        "fastest",
    ]
    assert run(COMMANDS, arguments) == 0
    shown = capsys.readouterr().out
    assert "50 made-up tasks, 8 nodes in 2 made-up pools" in shown
    assert "cheapest" in shown
    assert run(COMMANDS, [*arguments, "--output", "json"]) == 0
    reports = msgspec.json.decode(capsys.readouterr().out)
    assert [report["policy"] for report in reports] == ["cheapest", "fastest"]
    assert reports[0]["ended"] == 50
