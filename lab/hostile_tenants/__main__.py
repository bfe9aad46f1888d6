"""``python -m lab.hostile_tenants``: a stream of jobs beside tenants that attack their host, against tenants that behave.

Interleaved runs on one host pool; status 1 where the stream keeps less than 90 % of its rate. Run as root.
"""

import argparse
import statistics
import sys
from pathlib import Path

import anyio

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))

from lab.hostile_tenants.crowds import CROWDS, rate_beside
from support.agent_roots import agent_root
from yunhe.infrastructure.host.engine import HostEngine
from yunhe.infrastructure.host.target import LocalHost

ENOUGH = 0.9


async def measure(runs: int, window_s: float) -> float:
    """Print each run; return the share of the rate that is kept, by the medians."""
    rates: dict[str, list[float]] = {crowd: [] for crowd in CROWDS}
    with agent_root() as root:
        async with HostEngine(LocalHost(root=str(root))) as engine:
            for number in range(runs):
                for crowd, seen in rates.items():
                    seen.append(await rate_beside(engine, crowd, window_s))
                    print(f"run {number + 1}, beside {crowd:8} tenants: {seen[-1]:.2f} jobs/s", flush=True)
    kept = statistics.median(rates["hostile"]) / statistics.median(rates["behaving"])
    print(f"kept {100 * kept:.0f} % of the rate, by the medians of {runs} runs")
    return kept


def main() -> int:
    """Measure, and judge."""
    parser = argparse.ArgumentParser(prog="python -m lab.hostile_tenants", description=__doc__)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--window", type=float, default=20.0, help="seconds of each run")
    arguments = parser.parse_args()
    return 0 if anyio.run(measure, arguments.runs, arguments.window) >= ENOUGH else 1


if __name__ == "__main__":
    sys.exit(main())
