"""``python -m lab.gpu_packing``: GPU allocated when demand reaches what there is, by variant and seed.

The scheduler sees pods as they arrive and learns what is typical from those it has seen; it is never told what will come.
"""

import argparse
import csv
import os
import statistics
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from lab.gpu_packing.trace import Pod, arrivals, read_nodes, read_pods, variants
from yunhe.kernel.ids import JobId, PoolId, ProjectId
from yunhe.scheduling.decision.cycle import Cycle
from yunhe.scheduling.decision.decide import place_in
from yunhe.scheduling.decision.model import Alternative, Demand, Placed
from yunhe.scheduling.perception.model import NodeFacts, PoolFacts, TypicalAsk
from yunhe.scheduling.perception.snapshot import build_snapshot

DATA = Path(os.environ.get("YUNHE_DATA", "../shared/data")) / "alibaba-gpu-v2023"
LEARN_AT = (32, 64, 128, 256, 512, 1024, 2048, 4096, 8192)
PUBLISHED = "expected_analysis_allo_discrete.parquet"
PROJECT = ProjectId("lab")


class Arrival(NamedTuple):
    """A pod and where it went; no node: skipped."""

    pod: Pod
    node: str
    gpus: tuple[int, ...]


def replay(nodes: list[NodeFacts], order: list[Pod], *, packing: bool = True) -> Iterator[Arrival]:
    """Yield each arrival with its place; without *packing*, best fit alone decides."""
    snapshot = build_snapshot([PoolFacts(id=PoolId("openb"), name="openb")], nodes, version=1, taken_at=0.0)
    cycle = Cycle(snapshot)
    seen: Counter[tuple[int, int, int, int, str]] = Counter()
    for number, pod in enumerate(order):
        if packing and number in LEARN_AT:
            cycle.learn(typical_of(seen))
        wanted = Demand(
            job_id=JobId(f"job_{number}"), project_id=PROJECT, alternatives=(Alternative(pod.resources),)
        )
        decision = place_in(wanted, cycle)
        seen[pod[1:]] += 1
        if isinstance(decision, Placed):
            goes = decision.assignments[0]
            yield Arrival(pod, goes.node_id, goes.devices)
        else:
            yield Arrival(pod, "", ())


def typical_of(seen: Counter[tuple[int, int, int, int, str]]) -> tuple[TypicalAsk, ...]:
    """Return the asks seen so far with their shares."""
    total = seen.total()
    return tuple(TypicalAsk(Pod("", *shape).resources, count / total) for shape, count in seen.items())


def allocated_at_full_demand(
    arrived: Iterator[Arrival], gpus: int, *, to_the_end: bool
) -> tuple[float, list[Arrival]]:
    """Return the share of GPU allocated when cumulative demand first reaches all there is, and who came."""
    demand, allocated, share = 0, 0, -1.0
    kept: list[Arrival] = []
    for arrival in arrived:
        milli = arrival.pod.num_gpu * arrival.pod.gpu_milli
        kept.append(arrival)
        demand += milli
        allocated += milli if arrival.node else 0
        if share < 0 and demand >= gpus * 1000:
            share = allocated / (gpus * 1000)
            if not to_the_end:
                break
    return share, kept


def published(folder: Path, variant: str) -> dict[str, float]:
    """Return the published shares by policy, where the folder has them."""
    path = folder / PUBLISHED
    if not path.exists():
        return {}
    import pyarrow.parquet as pq  # noqa: PLC0415 - only where the file is there

    table = pq.read_table(path, columns=["workload", "sc_policy", "100"]).to_pydict()
    found: dict[str, list[float]] = {}
    for workload, policy, share in zip(table["workload"], table["sc_policy"], table["100"], strict=True):
        if workload == f"openb_pod_list_{variant}":
            found.setdefault(str(policy).partition("-")[2], []).append(float(share))
    return {policy: statistics.mean(shares) for policy, shares in found.items()}


def write_placements(path: Path, kept: list[Arrival]) -> None:
    """Write one row per arrival, in order, placed or not."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("seq", "pod", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli", "node", "gpus"))
        for number, (pod, node, gpus) in enumerate(kept):
            writer.writerow((number, *pod[:5], node, ";".join(map(str, gpus))))


def print_bounds(folder: Path, chosen: list[str], seeds: int) -> None:
    """Print for each variant what no rule can exceed, even with full knowledge."""
    from lab.gpu_packing.bound import most_allocated  # noqa: PLC0415 - needs the extra ``exact``

    nodes = read_nodes(folder)
    gpus = sum(node.total.accelerators[0].milli for node in nodes) // 1000
    print(f"{len(nodes)} nodes, {gpus} GPUs, {seeds} seeds; GPU allocated at 100 % demand, in percent")
    print(f"{'variant':<12}{'at most':>10}")
    for variant in chosen:
        pods = read_pods(folder, variant)
        bounds = [100 * most_allocated(nodes, arrivals(pods, gpus, seed)) for seed in range(seeds)]
        print(f"{variant:<12}{statistics.mean(bounds):>10.2f}", flush=True)


def main() -> int:
    """Print a line for each variant."""
    parser = argparse.ArgumentParser(prog="python -m lab.gpu_packing", description=__doc__)
    parser.add_argument("--data", type=Path, default=DATA, help="folder with the node list and pod lists")
    parser.add_argument(
        "--variant", action="append", help="only this one; may be repeated (default: all found)"
    )
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--best-fit", action="store_true", help="best fit alone, for comparison")
    parser.add_argument("--bound", action="store_true", help="what no rule can exceed, in place of a replay")
    parser.add_argument("--placements", type=Path, help="write the arrivals of the last run as CSV")
    given = parser.parse_args()
    if not given.data.is_dir():
        print(f"✗ {given.data} is no folder; give one with --data", file=sys.stderr)
        return 1
    if given.bound:
        print_bounds(given.data, given.variant or variants(given.data), given.seeds)
        return 0
    nodes = read_nodes(given.data)
    gpus = sum(node.total.accelerators[0].milli for node in nodes) // 1000
    print(f"{len(nodes)} nodes, {gpus} GPUs, {given.seeds} seeds; GPU allocated at 100 % demand, in percent")
    print(f"{'variant':<12}{'allocated':>10}{'sd':>7}{'FGD':>8}{'BestFit':>9}{'ms/pod':>8}")
    for variant in given.variant or variants(given.data):
        pods = read_pods(given.data, variant)
        shares: list[float] = []
        kept: list[Arrival] = []
        began, count = time.process_time(), 0
        for seed in range(given.seeds):
            order = arrivals(pods, gpus, seed)
            arrived = replay(nodes, order, packing=not given.best_fit)
            share, kept = allocated_at_full_demand(arrived, gpus, to_the_end=bool(given.placements))
            shares.append(100 * share)
            count += len(kept)
        spent_ms = (time.process_time() - began) * 1000 / count
        known = published(given.data, variant)
        others = "".join(
            f"{known[policy]:>{width}.2f}" if policy in known else f"{'–':>{width}}"
            for policy, width in (("FGD", 8), ("BestFit", 9))
        )
        spread = statistics.stdev(shares) if len(shares) > 1 else 0.0
        print(
            f"{variant:<12}{statistics.mean(shares):>10.2f}{spread:>7.2f}{others}{spent_ms:>8.2f}", flush=True
        )
        if given.placements:
            write_placements(given.placements, kept)
    return 0


if __name__ == "__main__":
    sys.exit(main())
