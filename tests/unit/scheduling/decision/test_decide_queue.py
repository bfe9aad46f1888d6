"""A queue flows: what cannot run waits by itself, and what is fast is the same as what is slow."""

import subprocess
import sys
import time
from random import Random
from typing import Any

import pytest

from support.worlds import cores, demand, node, pool, prices, random_demand, random_world, world
from yunhe.kernel.ids import JobId
from yunhe.kernel.resources import Accelerators
from yunhe.scheduling.decision.compiling import compile_kernels
from yunhe.scheduling.decision.cycle import Cycle
from yunhe.scheduling.decision.decide import decide, decide_all, place_in
from yunhe.scheduling.decision.model import DataNeed, Placed, Traffic, Waiting
from yunhe.scheduling.decision.network import kernels as route_kernels
from yunhe.scheduling.decision.nodes import kernels
from yunhe.scheduling.decision.score import kernels as score_kernels
from yunhe.scheduling.perception.model import DatasetFacts, LinkFacts, SiteFacts


def test_an_impossible_gang_at_the_head_holds_nobody_up() -> None:
    here = world(
        [pool(f"p{i}", prices=prices(0.01 * (i + 1))) for i in range(4)],
        [node(f"n{i}", f"p{i % 4}", cores(64, 256)) for i in range(400)],
    )
    gang = demand(cores(64, 1, Accelerators("h200", 8000)), members=64, priority=9, job="job_gang")
    queue = [gang, *(demand(cores(2, 8), job=f"job_{i}") for i in range(10_000))]
    start = time.process_time()
    decisions, after = decide_all(queue, here)
    spent_s = time.process_time() - start
    assert isinstance(decisions[0], Waiting)
    assert all(isinstance(decision, Placed) for decision in decisions[1:])
    assert after.cpu_free_millis.sum() == (400 * 64 - 2 * 10_000) * 1000
    assert spent_s < 20


def test_ten_thousand_that_cannot_run_are_told_so_quickly() -> None:
    here = world([pool("p")], [node(f"n{i}", "p", cores(4, 8)) for i in range(300)])
    queue = [demand(cores(8), job=f"job_{i}") for i in range(10_000)]
    start = time.process_time()
    decisions, _ = decide_all(queue, here)
    assert all(isinstance(decision, Waiting) for decision in decisions)
    assert time.process_time() - start < 10


def test_priority_goes_first_and_order_decides_among_equals() -> None:
    here = world([pool("p")], [node("n", "p", cores(3, 8))])
    queue = [
        demand(cores(1), job="first"),
        demand(cores(1), job="second"),
        demand(cores(2), job="urgent", priority=1),
    ]
    decisions, _ = decide_all(queue, here)
    assert [isinstance(decision, Placed) for decision in decisions] == [True, False, True]


def test_what_is_released_can_be_had_again() -> None:
    here = world(
        [pool("p")],
        [node("n", "p", cores(2, 4))],
        sites=[SiteFacts("users")],
        links=[LinkFacts(source="users", target="p", bandwidth_mbps=100, latency_ms=1)],
        datasets=[DatasetFacts(name="d", size_mib=10, replicas=("users",))],
    )
    cycle = Cycle(here)
    flow = demand(cores(1), job="a", traffic=(Traffic(site="users", mbps=60),), groups=("web",))
    steady = demand(cores(1), job="b", data=(DataNeed(dataset="d", rate_mbps=50),))
    assert isinstance(place_in(flow, cycle), Placed)
    assert cycle.router.free_mbps.tolist() == [40.0]
    assert cycle.groups["web"].tolist() == [0]
    assert isinstance(place_in(steady, cycle), Waiting)  # 40 Mbit/s are left, 50 are asked for
    cycle.release(JobId("a"))
    assert isinstance(place_in(steady, cycle), Placed)
    cycle.release(JobId("b"))
    assert cycle.after().network.free_mbps.tolist() == [100.0]
    assert cycle.after().cpu_free_millis.tolist() == [2000]
    assert not cycle.groups["web"].size


def test_compiled_kernels_decide_as_the_plain_ones_do(monkeypatch: pytest.MonkeyPatch) -> None:
    modules: list[Any] = [kernels, score_kernels, route_kernels]
    for module in modules:
        compile_kernels(module)
    cases: list[tuple[Any, Any]] = []
    for seed in range(60):
        rng = Random(seed)
        cases.append((random_demand(rng), random_world(rng)))
    compiled = [decide(wanted, here) for wanted, here in cases]
    for module in modules:
        for name in module.KERNELS:
            monkeypatch.setattr(module, name, getattr(module, name).py_func)
    assert [decide(wanted, here) for wanted, here in cases] == compiled


def test_a_small_decision_needs_no_compiler() -> None:
    code = (
        "import sys; sys.path.insert(0, 'tests')\n"
        "from support.worlds import *\n"
        "from yunhe.scheduling.decision.decide import decide\n"
        "decide(demand(), world([pool('p')], [node('n', 'p', cores(2, 4))]))\n"
        "assert 'numba' not in sys.modules, 'numba was imported'"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env={"PYTHONPATH": ":".join(sys.path)})
