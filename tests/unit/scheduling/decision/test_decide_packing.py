"""Packing accelerators: what is stranded and what holes are worth, against the definitions, and what it gains."""

import os
from pathlib import Path
from random import Random

import highspy
import numpy as np
import pytest
from lab.gpu_packing.__main__ import allocated_at_full_demand, replay
from lab.gpu_packing.trace import Pod, arrivals, read_nodes, read_pods

from support import decision_oracle as oracle
from support.worlds import demand, node, pool, world
from yunhe.kernel.resources import Accelerators, Resources
from yunhe.scheduling.decision.cycle import Cycle
from yunhe.scheduling.decision.decide import place_in
from yunhe.scheduling.decision.model import Placed
from yunhe.scheduling.decision.nodes import packing_kernels
from yunhe.scheduling.decision.nodes.packing import typical_of
from yunhe.scheduling.perception.model import TypicalAsk

KINDS = ("t4", "v100")
TRACE = Path(os.environ.get("YUNHE_DATA", "../shared/data")) / "alibaba-gpu-v2023"
USUAL = (
    TypicalAsk(Resources(4000, 8192, 0, (Accelerators("*", 1000),)), 0.5),
    TypicalAsk(Resources(2000, 4096, 0, (Accelerators("t4", 500),)), 0.3),
    TypicalAsk(Resources(16000, 65536, 0, (Accelerators("v100", 2000),)), 0.2),
)


def fill(cpu: int, memory: int, free: list[int], kinds: list[str], sequence: list[TypicalAsk]) -> int:
    """What stays free after a sequence, the obvious way: each ask in turn, tightest device first."""
    left = list(free)
    for one in sequence:
        ask = one.resources.accelerators[0]
        able = [i for i, kind in enumerate(kinds) if ask.kind in {"*", kind}]
        whole, part = divmod(ask.milli, 1000)
        need = 1000 if whole else part
        able = [i for i in able if left[i] >= need]
        if cpu < one.resources.cpu_millis or memory < one.resources.memory_mib or len(able) < max(whole, 1):
            continue
        able.sort(key=lambda i: (left[i], i))
        for i in able[: max(whole, 1)]:
            left[i] -= need
        cpu -= one.resources.cpu_millis
        memory -= one.resources.memory_mib
    return sum(left)


@pytest.mark.parametrize("seed", range(20))
def test_what_is_stranded_is_what_the_definition_says(seed: int) -> None:
    rng = Random(seed)
    typical = typical_of(USUAL, KINDS, seed=seed)
    count = rng.randint(1, 4)
    free = [rng.choice((0, 300, 500, 1000)) for _ in range(count)]
    kinds = [rng.choice(KINDS) for _ in range(count)]
    cpu, memory = rng.choice((2000, 8000, 64_000)), rng.choice((4096, 32_768, 262_144))
    codes = np.array([KINDS.index(kind) for kind in kinds], dtype=np.int64)
    got = packing_kernels.stranded(cpu, memory, np.array(free, dtype=np.int64), codes, typical)
    expected = [
        fill(cpu, memory, free, kinds, [USUAL[i] for i in sequence])
        for sequence in typical.sequences.tolist()
    ]
    assert got == pytest.approx(sum(expected) / len(expected))


def best_filling(holes: list[float], come: list[float]) -> float:
    """How far holes can be filled, the obvious way: how many pieces of each size go in holes of each size."""
    h = highspy.Highs()
    h.silent()
    put = {
        (hole, piece): h.addVariable()
        for piece in range(1, len(come))
        for hole in range(piece, len(holes))
        if come[piece]
    }
    for size in range(1, len(holes)):
        out = [flow for (hole, _), flow in put.items() if hole == size]
        into = [flow for (hole, piece), flow in put.items() if hole - piece == size]
        used = [flow for (_, piece), flow in put.items() if piece == size]
        h.addConstr(h.qsum(out) - h.qsum(into) <= holes[size])
        h.addConstr(h.qsum(used) <= come[size])
    h.maximize(h.qsum([piece * flow for (_, piece), flow in put.items()]))
    return h.getObjectiveValue()


@pytest.mark.parametrize("seed", range(20))
def test_the_values_of_holes_are_dual_to_the_best_filling(seed: int) -> None:
    """At the best values, holes and the surplus of what comes are together worth exactly the best filling, else more."""
    rng = Random(seed)
    sizes = rng.choice((8, 20))
    holes = [0.0, *(float(rng.choice((0, 0, 5, 40))) for _ in range(sizes - 1)), 200.0]
    pieces = [0.0, *(rng.choice((0.0, 0.0, 0.1, 0.5)) for _ in range(sizes - 1)), 0.4]
    value = packing_kernels.hole_values(np.array(holes), np.array(pieces)).tolist()
    room, asked = (sum(size * count for size, count in enumerate(each)) for each in (holes, pieces))
    come = [each * room / asked for each in pieces]
    best = best_filling(holes, come)
    surplus = [
        max(0.0, *(piece + value[hole - piece] - value[hole] for hole in range(piece, sizes + 1)))
        for piece in range(sizes + 1)
    ]
    worth = sum(count * each for count, each in zip(holes + come, value + surplus, strict=True))
    assert best - 1e-6 <= worth <= 1.07 * best  # found in few rounds


def test_packing_never_takes_more_than_there_is_and_gives_all_of_it_back() -> None:
    rng = Random(5)
    machines = [
        node(
            f"n{i}",
            "p",
            Resources(16_000, 65_536, 0, (Accelerators(kind, 1000 * rng.randint(1, 4)),)),
        )
        for i in range(12)
        for kind in [rng.choice(KINDS)]
    ]
    here = world([pool("p")], machines, typical=USUAL)
    cycle = Cycle(here)
    holdings = oracle.Holdings(here)
    placed: list[str] = []
    for i in range(80):
        kind, milli = rng.choice(("*", "t4", "v100", "t4|v100")), rng.choice((0, 250, 500, 1000, 2000))
        wanted = (Accelerators(kind, milli),) if milli else ()
        decision = place_in(demand(Resources(1000, 2048, 0, wanted), job=f"job_{i}"), cycle)
        if isinstance(decision, Placed):
            placed.append(f"job_{i}")
            for assignment in decision.assignments:
                holdings.take(assignment)
    assert 10 < len(placed) < 80
    assert [d.milli for d in holdings.devices] == cycle.room.device_free.tolist()
    for job in placed:
        cycle.release(job)  # pyright: ignore[reportArgumentType]
    assert cycle.room.device_free.tolist() == here.device_free_milli.tolist()


def test_work_without_an_accelerator_keeps_off_the_nodes_that_have_one() -> None:
    machines = [
        node("gpu", "p", Resources(4000, 4096, 0, (Accelerators("t4", 1000),))),
        node("cpu", "p", Resources(64_000, 65_536)),
    ]
    decision = place_in(demand(Resources(1000, 1024)), Cycle(world([pool("p")], machines)))
    assert isinstance(decision, Placed)
    assert decision.assignments[0].node_id == "cpu"


@pytest.mark.skipif(not TRACE.is_dir(), reason=f"the OpenB trace is not at {TRACE}")
def test_packing_fills_a_real_cluster_further_than_best_fit() -> None:
    """A tenth of the nodes and of the pods, one seed: the whole study is ``python -m lab.gpu_packing``."""
    nodes = read_nodes(TRACE)[::10]
    gpus = sum(one.total.accelerators[0].milli for one in nodes) // 1000
    pods: list[Pod] = read_pods(TRACE, "default")[::10]
    order = arrivals(pods, gpus, seed=3)
    shares = [
        allocated_at_full_demand(replay(nodes, order, packing=packing), gpus, to_the_end=False)[0]
        for packing in (False, True)
    ]
    assert shares[1] > shares[0] + 0.01
    assert shares[1] > 0.94
