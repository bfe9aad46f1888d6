"""``python -m lab.simulator_agreement``: 200 jobs on three real pools of which one dies, and the same simulated.

Takes about a minute; run as root. Agents are started below a directory of their own and ended afterwards.
"""

import argparse
import statistics
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

import anyio

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))

from lab.simulator_agreement.comparison import Agreement, compare
from lab.simulator_agreement.reality import POOLS, really
from support.agent_roots import agent_root


def show(found: Agreement) -> str:
    """Return the figures in a few lines."""
    error_p50, error_p95 = statistics.median(found.errors_s), statistics.quantiles(found.errors_s, n=20)[-1]
    count, platform = len(found.errors_s), found.platform
    lines = [
        f"{found.placements} placements of {count} jobs: {found.waited} waited, {found.lost} lost their pool",
        f"room held beside the run       {platform.handling_s:.2f} s",
        f"from news to decisions         {platform.reaction_s:.2f} s",
        f"decided again on the log       {found.same} of {found.placements} the same",
        f"simulated freely               {found.same_freely} of {count} end on the same pool",
        f"{'':31}{'real':>8}{'simulated':>11}{'error':>8}",
        _line("all done after, s", found.makespan_s),
        _line("mean turnaround, s", found.turnaround_s),
        f"a job's end is off by          {error_p50:.2f} s (median), {error_p95:.2f} s (p95)",
    ]
    return "\n".join(lines)


def _line(name: str, pair: tuple[float, float]) -> str:
    real, simulated = pair
    return f"{name:<31}{real:>8.2f}{simulated:>11.2f}{100 * (simulated - real) / real:>+7.1f}%"


def main() -> None:
    """Run and print it."""
    parser = argparse.ArgumentParser(prog="python -m lab.simulator_agreement", description=__doc__)
    parser.add_argument("--jobs", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    with ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="yunhe-lab-")))
        roots = {name: stack.enter_context(agent_root()) for name in POOLS}

        async def run() -> Agreement:
            return compare(await really(home, roots, count=given.jobs, seed=given.seed))

        print(show(anyio.run(run)))


if __name__ == "__main__":
    main()
