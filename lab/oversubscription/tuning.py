"""Choose the numbers of the default method on the first half of each set's windows, and write down which those were.

Run with ``python -m lab.oversubscription.tuning --data DIR``. Every combination is walked through the windows as the method
itself would be, each window placed with what was known before it. The best is the one whose realised rates are nearest to the
stated ones, in ratios, plus the hosts it needs over those of the densest: a rate that is met with many hosts is no merit.
The second halves are never read, and they alone are what ``python -m lab.oversubscription`` reports on these sets.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product, takewhile
from pathlib import Path

import numpy as np

from lab.oversubscription.datasets import DataSet, load_folder, part_of
from lab.oversubscription.evaluation import scaled_hosts
from lab.oversubscription.looked_at import LookedAt, Part, write
from lab.oversubscription.methods import STATED
from lab.oversubscription.printing import grid
from yunhe.flexible.overload.margin import MARGINS, Budget, Trial, Tuning, choose, default_pool, try_rules
from yunhe.flexible.replay import windows
from yunhe.flexible.trace import Floats

DRAWS = ((2, 1.0), (3, 0.6), (4, 0.6), (5, 0.3))
"""Seeds (not the one the lab reports with) and shares of the instances: a number that suits one order of arrival, or only a
pool of one size, is luck."""
GRID = tuple(
    Tuning(half_life, caution, gain, least, most)
    for half_life, caution, gain, least, most in product(
        (5, 10, 20, 40), (0.0, 0.5, 1.0), (0.25, 0.5, 1.0), (0.25, 0.5), (1.5, 2.0, 3.0)
    )
)
LEAST_RATIO = 0.05
"""A rate of nothing at all counts as this share of the stated one."""
BROKEN_PROMISE = 3.0
"""A rate above the stated one counts so many times one below it: 1.5 × is about as bad as 0.3 ×."""
SHOWN = 8


@dataclass(frozen=True, slots=True)
class Practice:
    """The first half of one set: what every rule would have done in each of its windows."""

    windows: int
    """Those that only teach."""
    trials: list[Trial]


def main() -> int:
    """Choose, print the table, write the record."""
    parser = argparse.ArgumentParser(prog="python -m lab.oversubscription.tuning", description=__doc__)
    default = Path(os.environ.get("YUNHE_DATA", "../shared/data"))
    parser.add_argument("--data", type=Path, default=default, help="folder with one folder per set")
    sets, _ = load_folder(parser.parse_args().data, [])
    if not sets:
        print(
            "✗ No set of a known form there.\n  → Give the folder of traces with --data DIR.", file=sys.stderr
        )
        return 1
    halves = {data.name: _first_half_until_s(data) for data in sets}
    draws = [_walk_all([_practise(data, halves[data.name], *draw) for data in sets]) for draw in DRAWS]
    loss = np.mean([_loss(ratios, hosts) for ratios, hosts in draws], axis=0)
    best = GRID[int(np.argmin(loss.mean(axis=1)))]
    _print(list(halves), draws[0][0], loss)
    write(LookedAt(best, {data.name: Part(data.fingerprint(), halves[data.name]) for data in sets}))
    print(f"\nchosen: {best}")
    return 0


def _first_half_until_s(data: DataSet) -> int:
    ends = [window.end_s for window in windows(data.traces, data.schedule, 0)]
    return ends[len(ends) // 2 - 1]


def _practise(data: DataSet, until_s: int, seed: int, share: float) -> Practice:
    print(f"· the first half of {data.name}, {share:.0%} of its instances", file=sys.stderr, flush=True)
    part = part_of(data, share, seed)
    hosts, traces = scaled_hosts(part, seed)
    pool = default_pool(data.schedule)
    known = takewhile(lambda window: window.end_s <= until_s, windows(traces, data.schedule, seed))
    return Practice(data.schedule.practice, [try_rules(window, pool, hosts.cores) for window in known])


def _walk_all(practices: Sequence[Practice]) -> tuple[Floats, Floats]:
    """Return, for each combination, set and stated rate, realised over stated, and the hosts needed per core sold."""
    cells = [[[_walk(one, tuning, rate) for rate in STATED] for one in practices] for tuning in GRID]
    both = np.array(cells)
    return both[..., 0], both[..., 1]


def _walk(practice: Practice, tuning: Tuning, stated: float) -> tuple[float, float]:
    budget = Budget(stated, tuning)
    hosts = requested = 0.0
    for number in range(practice.windows, len(practice.trials)):
        choice = choose(practice.trials[:number], budget.target(), tuning)
        trial = practice.trials[number]
        at = choice.rule, int(np.searchsorted(MARGINS, choice.margin))
        budget = budget.after(float(trial.overloaded[at]), float(trial.judged[at]))
        hosts, requested = hosts + trial.hosts[at], requested + trial.requested[at]
    return budget.overloaded / budget.judged / stated, hosts / requested


def _loss(ratios: Floats, hosts: Floats) -> Floats:
    """Return combinations × sets: how far rates are off, and how many more hosts are needed than by the densest."""
    off = np.log(np.maximum(ratios, LEAST_RATIO))
    return (np.maximum(BROKEN_PROMISE * off, -off) + np.log(hosts / hosts.min(axis=0))).mean(axis=2)


def _print(names: Sequence[str], ratios: Floats, loss: Floats) -> None:
    order = np.argsort(loss.mean(axis=1))[:SHOWN]
    rows = [
        (
            *(f"{value:g}" for value in (t.half_life, t.caution, t.gain, t.least_target, t.most_target)),
            f"{loss[number].mean():.3f}",
            *(" ".join(f"{ratio:.2f}" for ratio in ratios[number, column]) for column in range(len(names))),
        )
        for number, t in ((int(number), GRID[number]) for number in order)
    ]
    header = ("half-life", "caution", "gain", "least", "most", "loss", *names)
    print(
        "Realised over stated at 0.5, 1, 2 and 5 %, on the first half of each set (first draw; the loss is of all):\n"
    )
    print(grid(header, rows))
    print("\nChosen where a set has no say:\n")
    for column, name in enumerate(names):
        others = np.delete(loss, column, axis=1).mean(axis=1)
        print(f"- without {name}: {GRID[int(np.argmin(others))]}")


if __name__ == "__main__":
    sys.exit(main())
