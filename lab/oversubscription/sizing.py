"""Right-sizing, judged on what came later: ``python -m lab.oversubscription.sizing --data DIR``.

Every week of the second half of a trace, each instance is sized on all that came before, as ``yunhe flex recommend``
would, and the size is judged on the week after. Beside it stand the sizes one would have chosen knowing that week, and
the fixed flavours that came off best: of many ways to scale the need before the cheapest flavour is looked for, the one
that, as it turned out, cost least while leaving no more short. Flavours are thus given every chance to win.
"""

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from lab.oversubscription.datasets import DataSet, load_folder
from lab.oversubscription.printing import grid, percent
from yunhe.flexible.placing.tiers import BEST_TO_WORST
from yunhe.flexible.sizing.rightsizing import (
    CPU_STEP_MILLIS,
    PRICE_BOOK,
    SPEC_QUANTILE,
    Guards,
    InstanceSize,
    Recommendation,
    cheapest_flavour,
    recommend,
)
from yunhe.flexible.trace import DAY_S, WEEK_S, Dimension, Floats, Ints, Trace
from yunhe.kernel.money import Tier

SCALES: Floats = np.round(np.arange(0.2, 1.0001, 0.05), 2)
"""By how much the CPU is scaled before a flavour is looked for; at 1 a flavour leaves no more short than the size."""


@dataclass(slots=True)
class Tally:
    """What sizes cost and how often they were too small, over all the weeks they stood."""

    cost_micros: int = 0
    """Of an hour in each of the weeks, for all instances."""
    samples: int = 0
    memory_samples: int = 0
    cpu_short: int = 0
    memory_short: int = 0

    def add(self, later: Trace, specs: Sequence[InstanceSize]) -> Floats:
        """Count one week, in which each instance had its size; return how often each was short of CPU."""
        usage = later.usage[Dimension.CPU]
        cores = np.array(
            [spec.cpu_millis / 1000 for spec in specs], dtype=usage.dtype
        )  # 1.1 is not above 1.1
        over = (usage > cores[:, None]).sum(axis=1)
        seen = (~np.isnan(usage)).sum(axis=1)
        self.cost_micros += sum(spec.cost_micros_per_hour(PRICE_BOOK) for spec in specs)
        self.samples += int(seen.sum())
        self.cpu_short += int(over.sum())
        if Dimension.MEMORY in later.usage:
            memory = later.usage[Dimension.MEMORY]
            self.memory_samples += int((~np.isnan(memory)).sum())
            self.memory_short += int((memory > np.array([spec.memory_mib for spec in specs])[:, None]).sum())
        return over / seen

    def no_shorter_than(self, other: "Tally") -> bool:
        """Return whether neither CPU nor memory was short more often than with *other*, in the same weeks."""
        return self.cpu_short <= other.cpu_short and self.memory_short <= other.memory_short


@dataclass(slots=True)
class Verdict:
    """How the sizes of one tier stood the test of time on one trace."""

    tier: Tier
    weeks: int = 0
    instances: int = 0
    given: Tally = field(default_factory=Tally)
    tailored: Tally = field(default_factory=Tally)
    with_hindsight: Tally = field(default_factory=Tally)
    by_scale: list[Tally] = field(default_factory=lambda: [Tally() for _ in SCALES])
    shares_short: list[Floats] = field(default_factory=list[Floats])
    sized_cores: list[Floats] = field(default_factory=list[Floats])
    later_cores: list[Floats] = field(default_factory=list[Floats])
    """The tier's quantile of what each instance then used, week by week as the two before."""

    @property
    def stated(self) -> float:
        """Return how much of the time CPU may be short."""
        return 1 - SPEC_QUANTILE[self.tier]

    @property
    def cpu_short(self) -> float:
        """Return how much of the time of all instances CPU was short."""
        return self.tailored.cpu_short / self.tailored.samples

    @property
    def memory_short(self) -> float:
        """Return how much of the time of all instances memory was short; 0 where the trace has none."""
        return self.tailored.memory_short / max(1, self.tailored.memory_samples)

    @property
    def instances_short(self) -> float:
        """Return the share of instances, each week anew, whose own CPU was short more often than stated."""
        return float((np.concatenate(self.shares_short) > self.stated + 1e-9).mean())

    @property
    def flavours(self) -> Tally:
        """Return the cheapest way with flavours that left no more short."""
        enough = [tally for tally in self.by_scale if tally.no_shorter_than(self.tailored)]
        return min(enough, key=lambda tally: tally.cost_micros)

    def cause(self) -> str:
        """Return who was short, for people: the fewest instances that hold half of the shortage."""
        share, sized, later = (
            np.concatenate(part) for part in (self.shares_short, self.sized_cores, self.later_cores)
        )
        worst = np.argsort(-share)
        half = int(np.searchsorted(np.cumsum(share[worst]), share.sum() / 2)) + 1
        few = worst[:half]
        return (
            f"{half} of {len(share)} instance-weeks hold half of it: sized {sized[few].sum():.1f} cores on their past, "
            f"they then used {later[few].sum():.1f} at the same quantile"
        )

    def cost_against(self, other: Tally) -> float:
        """Return what the tailored sizes cost for every unit of money the *other* sizes do."""
        return self.tailored.cost_micros / other.cost_micros


def judge_sizes(trace: Trace, tier: Tier, guards: Guards) -> Verdict | None:
    """Return how the sizes of *tier* would have done; None where no instance has a week of past and a day of future."""
    verdict = Verdict(tier)
    for past, later in _weeks(trace):
        sized = _in_order(later, recommend(past, tier, guards, PRICE_BOOK))
        specs = [one.recommended for one in sized]
        knowing = recommend(later, tier, replace(guards, least_history_s=0), PRICE_BOOK)
        verdict.weeks += 1
        verdict.instances = max(verdict.instances, len(specs))
        verdict.given.add(later, [one.given for one in sized])
        verdict.shares_short.append(verdict.tailored.add(later, specs))
        verdict.sized_cores.append(np.array([spec.cpu_millis / 1000 for spec in specs]))
        verdict.later_cores.append(
            np.nanquantile(later.usage[Dimension.CPU].astype(np.float64), SPEC_QUANTILE[tier], axis=1)
        )
        verdict.with_hindsight.add(later, [one.recommended for one in _in_order(later, knowing)])
        for scale, tally in zip(SCALES, verdict.by_scale, strict=True):
            tally.add(later, [cheapest_flavour(_scaled(spec, float(scale)), PRICE_BOOK) for spec in specs])
    return verdict if verdict.weeks else None


def sizing_table(sets: Sequence[DataSet]) -> str:
    """Return a row for each set and tier, then the cause of each miss and the sets with too little history."""
    header = (
        "set",
        "tier",
        "instances × weeks",
        "CPU short: stated",
        "later",
        "within",
        "instances short",
        "memory short later",
        "cost: tailored",
        "against given",
        "against hindsight",
        "against flavours",
    )
    rows: list[Sequence[str]] = []
    notes: list[str] = []
    for data in sets:
        verdicts = [judge_sizes(data.traces[0], tier, Guards()) for tier in BEST_TO_WORST]
        for verdict in verdicts:
            if verdict is None:
                continue
            rows.append(_row(data.name, verdict))
            if verdict.cpu_short > verdict.stated:
                notes.append(f"- {data.name}, {verdict.tier}: {verdict.cause()}.")
        if None in verdicts:
            notes.append(
                f"- {data.name}: no instance has a week before and a day after the middle; not sized."
            )
    return "\n".join([grid(header, rows) if rows else "Nothing here can be sized.", "", *notes])


def _row(name: str, verdict: Verdict) -> Sequence[str]:
    cost = verdict.tailored.cost_micros / verdict.weeks / 1e6
    return (
        name,
        verdict.tier,
        f"{verdict.instances} × {verdict.weeks}",
        percent(verdict.stated, 0),
        percent(verdict.cpu_short),
        "yes" if verdict.cpu_short <= verdict.stated else "NO",
        percent(verdict.instances_short, 1),
        percent(verdict.memory_short, 3) if verdict.tailored.memory_samples else "–",
        f"¥{cost:.2f}/h",
        *(
            f"{100 * verdict.cost_against(other) - 100:+.0f} %"
            for other in (verdict.given, verdict.with_hindsight, verdict.flavours)
        ),
    )


def _weeks(trace: Trace) -> Iterator[tuple[Trace, Trace]]:
    """Yield what came before each week of the second half, and the week; of instances known in both."""
    day, week = DAY_S // trace.period_s, WEEK_S // trace.period_s
    for slot in range(trace.slots // 2 // day * day, trace.slots - day + 1, week):
        past, later = trace.between(0, slot), trace.between(slot, min(slot + week, trace.slots))
        known = (_samples(past) >= week) & (_samples(later) >= day)
        if known.any():
            yield past.only(known), later.only(known)


def _samples(trace: Trace) -> Ints:
    return (~np.isnan(trace.usage[Dimension.CPU])).sum(axis=1)


def _in_order(trace: Trace, advice: Sequence[Recommendation]) -> list[Recommendation]:
    of = {one.instance: one for one in advice}
    return [of[name] for name in trace.instances]


def _scaled(spec: InstanceSize, scale: float) -> InstanceSize:
    return InstanceSize(max(CPU_STEP_MILLIS, round(spec.cpu_millis * scale)), spec.memory_mib)


def main() -> int:
    """Print the table and return 0, or 1 where there was nothing to size."""
    parser = argparse.ArgumentParser(prog="python -m lab.oversubscription.sizing", description=__doc__)
    default = Path(os.environ.get("YUNHE_DATA", "../shared/data"))
    parser.add_argument("--data", type=Path, default=default, help="folder with one folder per set")
    parser.add_argument("--sets", nargs="*", default=[], metavar="NAME", help="only these sets")
    options = parser.parse_args()
    if not options.data.is_dir():
        print(f"✗ There is no folder {options.data}.\n  → Give it with --data DIR.", file=sys.stderr)
        return 1
    sets, _ = load_folder(options.data, options.sets)
    if not sets:
        print(
            f"✗ No set of a known form in {options.data}.\n  → See docs/lab/oversubscription.md.",
            file=sys.stderr,
        )
        return 1
    print(sizing_table(sets))
    return 0


if __name__ == "__main__":
    sys.exit(main())
