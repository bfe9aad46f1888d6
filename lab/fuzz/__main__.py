"""Fuzz what comes from outside: ``python -m lab.fuzz --executions 1000000``.

An input that raises anything but a refusal, takes more than a second of CPU or 64 MiB is printed with its seed, and ends
the run with status 1.
"""

import argparse
import collections
import resource
import sys
import time
from random import Random

from lab.fuzz.targets import TARGETS

MOST_S = 1.0
MOST_MIB = 64


def run(name: str, executions: int, seed: int) -> bool:
    """Feed one target; print what came of it, and return whether every input was handled."""
    came: collections.Counter[str] = collections.Counter()
    slowest = 0.0
    before_mib, began = _peak_mib(), time.process_time()
    for number in range(executions):
        start = time.process_time()
        try:
            came[TARGETS[name](Random(f"{seed}/{number}"))] += 1
        except Exception as fault:  # noqa: BLE001 - that is what is looked for
            print(f"{name}: input {seed}/{number} raised {type(fault).__name__}: {fault}")
            return False
        slowest = max(slowest, time.process_time() - start)
    grown_mib = _peak_mib() - before_mib
    told = ", ".join(f"{count} {word}" for word, count in came.most_common())
    cpu_s = time.process_time() - began
    print(
        f"{name}: {executions} executions, {told}; slowest {slowest * 1000:.0f} ms, +{grown_mib} MiB, {cpu_s:.0f} s of CPU"
    )
    return slowest < MOST_S and grown_mib < MOST_MIB


def _peak_mib() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def main() -> int:
    """Fuzz every target, or the named ones."""
    parser = argparse.ArgumentParser(prog="python -m lab.fuzz", description=__doc__)
    parser.add_argument("targets", nargs="*", default=sorted(TARGETS), help=", ".join(sorted(TARGETS)))
    parser.add_argument("--executions", type=int, default=1_000_000, help="inputs for each target")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    good = [run(name, arguments.executions, arguments.seed) for name in arguments.targets]
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
