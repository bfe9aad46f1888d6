"""``python -m lab.joint_placement``: what deciding together is worth, on real prices and links and against the optimum."""

import argparse
import os
import statistics
import sys
import time
from pathlib import Path
from typing import NamedTuple

from lab.joint_placement.baselines import BASELINES, Result, together
from lab.joint_placement.checks import faults, placed_cost
from lab.joint_placement.clouds import SIZES_GB, clouds, jobs
from lab.joint_placement.exact import plan_exactly
from lab.joint_placement.instances import instance
from lab.joint_placement.plot import Line, svg, terminal
from yunhe.scheduling.decision.cycle import Cycle
from yunhe.scheduling.decision.joint import WAITING_COSTS, greedy_plan, plan_jointly
from yunhe.scheduling.decision.model import Waiting
from yunhe.scheduling.perception.snapshot import Snapshot

DATA = Path(os.environ.get("YUNHE_DATA", "../shared/data"))
TIE = 0.01
"""A difference of less than this share is a tie."""


class Row(NamedTuple):
    """All results for one size of input: ours, then each baseline's."""

    size_gb: int
    ours: list[Result]
    theirs: dict[str, list[Result]]


def compare(snapshot: Snapshot, count: int, seed: int) -> list[Row]:
    """Send the same jobs everyone's way."""
    cycle = Cycle(snapshot)
    table: list[Row] = []
    for size in SIZES_GB:
        wanted = jobs(snapshot, size, count, seed)
        table.append(
            Row(
                size,
                [together(one, cycle) for one in wanted],
                {name: [decide(one, cycle) for one in wanted] for name, decide in BASELINES.items()},
            )
        )
    return table


def print_comparison(table: list[Row]) -> None:
    """Print mean cost and completion by size, and how often each baseline is beaten."""
    for title, value in (
        ("cost, $", "cost"),
        ("completion, h", "hours"),
        ("cost + $1 per hour", "objective"),
    ):
        print(f"\nmean {title}")
        print(f"{'input':>8}{'together':>12}" + "".join(f"{name:>24}" for name in BASELINES))
        for row in table:
            means = [statistics.mean(getattr(r, value) for r in row.ours)]
            means += [statistics.mean(getattr(r, value) for r in row.theirs[name]) for name in BASELINES]
            print(f"{row.size_gb:>5} GB{means[0]:>12.2f}" + "".join(f"{mean:>24.2f}" for mean in means[1:]))
    print("\ntogether wins / ties / loses, by cost and by completion (a tie is within 1 %)")
    for row in table:
        cells = [
            f"{_tally(row.ours, row.theirs[name], 'cost')} · {_tally(row.ours, row.theirs[name], 'hours')}"
            for name in BASELINES
        ]
        print(f"{row.size_gb:>5} GB" + "".join(f"{cell:>28}" for cell in cells))


def _tally(ours: list[Result], theirs: list[Result], value: str) -> str:
    wins = ties = 0
    for mine, other in zip(ours, theirs, strict=True):
        a, b = getattr(mine, value), getattr(other, value)
        if abs(a - b) <= TIE * max(a, b):
            ties += 1
        elif a < b:
            wins += 1
    return f"{wins}/{ties}/{len(ours) - wins - ties}"


def run_clouds(given: argparse.Namespace) -> int:
    """Compare on real prices and links, and draw it."""
    snapshot = clouds(given.data / "skypilot-catalog", given.data / "skyplane-net")
    links = snapshot.network.bandwidth_mbps.size
    print(
        f"{len(snapshot.pools)} regions of three clouds, {links} measured lines, {given.jobs} jobs per size"
    )
    began = time.process_time()
    table = compare(snapshot, given.jobs, given.seed)
    spent_ms = (time.process_time() - began) * 1000 / (given.jobs * len(SIZES_GB) * (1 + len(BASELINES)))
    print_comparison(table)
    print(f"\n{spent_ms:.1f} ms of processor time per decision")
    lines = [Line("together", [statistics.mean(r.objective for r in row.ours) for row in table])]
    lines += [
        Line(name, [statistics.mean(r.objective for r in row.theirs[name]) for row in table])
        for name in BASELINES
    ]
    print()
    print(terminal(lines, [f"{size} GB" for size in SIZES_GB], "cost + $1 per hour of completion"))
    if given.plot:
        given.plot.write_text(
            svg(lines, [f"{size} GB" for size in SIZES_GB], "cost + $1 per hour of completion, $")
        )
        print(f"plot written to {given.plot}")
    return 0


def run_optimum(given: argparse.Namespace) -> int:
    """Judge greedy and the joint search by the optimum; a plan that cannot be true makes the study fail."""
    wrong: list[str] = []
    gaps: dict[str, list[float]] = {"greedy": [], "joint": []}
    waits_more = dict.fromkeys(gaps, 0)
    spent_s = {"greedy": 0.0, "joint": 0.0, "exact": 0.0}
    missed = 0
    for number in range(given.instances):
        demands, snapshot = instance(given.seed * 1_000_000 + number)
        began = time.process_time()
        optimum = plan_exactly(demands, snapshot)
        spent_s["exact"] += time.process_time() - began
        best = optimum.cost - WAITING_COSTS * optimum.waiting
        for name, plan in (("greedy", greedy_plan), ("joint", plan_jointly)):
            began = time.process_time()
            found = plan(demands, snapshot).decisions
            spent_s[name] += time.process_time() - began
            wrong += [f"instance {number}, {name}: {fault}" for fault in faults(found, snapshot, optimum)]
            waiting, cost = sum(isinstance(one, Waiting) for one in found), placed_cost(found)
            waits_more[name] += waiting > optimum.waiting
            if waiting == optimum.waiting:
                gaps[name].append(100 * (cost - best) / best)
            if name == "greedy":
                missed += waiting > optimum.waiting or cost > best * (1 + 1e-6)
    print(
        f"{given.instances} joint instances; plain greedy misses the optimum on {100 * missed / given.instances:.1f} %"
    )
    print(f"{'':<8}{'gap p50 %':>10}{'p95 %':>9}{'max %':>9}{'waits more':>12}{'ms each':>9}")
    for name, values in gaps.items():
        p95 = statistics.quantiles(values, n=20)[-1]
        each = 1000 * spent_s[name] / given.instances
        print(
            f"{name:<8}{statistics.median(values):>10.3f}{p95:>9.3f}{max(values):>9.3f}{waits_more[name]:>12}{each:>9.0f}"
        )
    print(f"{'exact':<8}{'':>40}{1000 * spent_s['exact'] / given.instances:>9.0f}")
    print(f"plans over capacity or better than the optimum: {len(wrong)} of {2 * given.instances}")
    for line in wrong:
        print(f"✗ {line}", file=sys.stderr)
    return 1 if wrong else 0


def main() -> int:
    """Run one of the two studies."""
    parser = argparse.ArgumentParser(prog="python -m lab.joint_placement", description=__doc__)
    studies = parser.add_subparsers(required=True, metavar="STUDY")
    real = studies.add_parser("clouds", help="jobs with 0 to 5 TB of input over three clouds")
    real.add_argument("--data", type=Path, default=DATA, help="folder with skypilot-catalog and skyplane-net")
    real.add_argument("--jobs", type=int, default=200, help="jobs per size of input")
    real.add_argument("--plot", type=Path, help="write the plot as SVG")
    real.set_defaults(run=run_clouds)
    against = studies.add_parser("optimum", help="random joint instances against the exact model")
    against.add_argument("--instances", type=int, default=200)
    against.set_defaults(run=run_optimum)
    for study in (real, against):
        study.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    try:
        return given.run(given)
    except FileNotFoundError as error:
        print(f"✗ {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
