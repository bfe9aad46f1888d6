"""Print the whole comparison: ``python -m lab.oversubscription --data DIR``."""

import argparse
import os
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TextIO

from lab.oversubscription.datasets import DataSet, Skipped, failure_text, load_folder, part_of
from lab.oversubscription.evaluation import Evaluation, evaluate
from lab.oversubscription.experiment import fixed_hosts_table
from lab.oversubscription.looked_at import without_looked_at
from lab.oversubscription.placements import PlacementFile
from lab.oversubscription.printing import (
    baseline_table,
    calibration_table,
    method_table,
    misses,
    ratio_table,
    set_heading,
)
from lab.oversubscription.tailoring import flavour_table, pools_table
from yunhe.flexible.replay import Window
from yunhe.flexible.trace import Ints

QUICK_WINDOWS = 12


def main() -> int:
    """Run the lab and return 0, or 1 where no set could be evaluated; one that cannot is named with the reason."""
    options = _options()
    folder: Path = options.data
    if not folder.is_dir():
        print(
            f"✗ There is no folder {folder}.\n  → Give the folder of traces with --data DIR.", file=sys.stderr
        )
        return 1
    began = time.perf_counter()
    sets, skipped = load_folder(folder, options.sets)
    sets = [part_of(data, options.share, options.seed) for data in without_looked_at(sets)]
    failed = [one for one in skipped if one.known_form]
    if not sets:
        print(
            f"✗ No set of a known form in {folder}.\n  → See docs/lab/oversubscription.md.", file=sys.stderr
        )
        _not_evaluated(failed, sys.stderr)
        return 1
    unused = ", ".join(one.name for one in skipped if not one.known_form)
    print(
        f"{len(sets)} sets read in {time.perf_counter() - began:.0f} s; no usage traces in: {unused or '–'}\n"
    )
    with ExitStack() as stack:
        file = stack.enter_context(PlacementFile(options.placements)) if options.placements else None
        results = [result for data in sets if (result := _tried(data, options, file, failed))]
    if results:
        _conclusions(results, [result.data for result in results], options.seed)
    _not_evaluated(failed, sys.stdout)
    print(f"\nseed {options.seed}; whole run {time.perf_counter() - began:.0f} s")
    return 0 if results else 1


def _tried(
    data: DataSet, options: argparse.Namespace, file: PlacementFile | None, failed: list[Skipped]
) -> Evaluation | None:
    try:
        return _one_set(data, options, file)
    except Exception as error:  # noqa: BLE001 - whatever is wrong with one set, the others are reported
        failed.append(Skipped(data.name, failure_text(error), known_form=True))
        return None


def _not_evaluated(failed: Sequence[Skipped], out: TextIO) -> None:
    """Say of every set that should have been in the tables why it is not."""
    if failed:
        print("\n# Not evaluated\n", file=out)
    for one in failed:
        print(f"- ✗ {one.name}: {one.reason}", file=out)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m lab.oversubscription", description=__doc__)
    default = Path(os.environ.get("YUNHE_DATA", "../shared/data"))
    parser.add_argument("--data", type=Path, default=default, help="folder with one folder per set")
    parser.add_argument("--sets", nargs="*", default=[], metavar="NAME", help="only these sets")
    parser.add_argument("--seed", type=int, default=1, help="order of arrival and resampling")
    parser.add_argument("--share", type=float, default=1.0, help="only a random share of the instances")
    parser.add_argument(
        "--quick", action="store_true", help=f"only the first {QUICK_WINDOWS} windows of each set"
    )
    parser.add_argument(
        "--placements", type=Path, metavar="FILE", help="write every placement (.csv or .csv.gz)"
    )
    return parser.parse_args()


def _one_set(data: DataSet, options: argparse.Namespace, file: PlacementFile | None) -> Evaluation:
    began = time.perf_counter()
    print(f"· walking through {data.name}", file=sys.stderr, flush=True)

    def on_placement(name: str, stated: float | None, window: Window, placement: Ints, cores: float) -> None:
        if file is not None:
            file.write((data.name, name, stated), window, placement, cores)

    most = QUICK_WINDOWS if options.quick else None
    result = evaluate(data, options.seed, most, on_placement)
    print(set_heading(result))
    print(method_table(result, options.seed))
    print(f"\n{time.perf_counter() - began:.0f} s\n", flush=True)
    return result


def _conclusions(results: list[Evaluation], sets: list[DataSet], seed: int) -> None:
    print("# Calibration of the default, out of sample\n")
    print(calibration_table(results, seed))
    print("\nOutside the band, and why:\n")
    print(misses(results))
    print("\n# The published experiment: the same hosts, 1×, 2×, 3× and flexible\n")
    print(fixed_hosts_table(results, seed))
    print("\n# What is sold and what is used, without oversubscription\n")
    print(baseline_table(results))
    print("\n# What fixed ratios do to hosts\n")
    print(ratio_table(results, seed))
    print("\n# Fixed flavours against tailored sizes (sized on the first half, judged on the second)\n")
    print(flavour_table(sets))
    print("\n# A pool per flavour against one pool (two hardware generations, no overcommitment)\n")
    print(pools_table(sets, seed))


if __name__ == "__main__":
    sys.exit(main())
