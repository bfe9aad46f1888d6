"""What holds for every decision, checked against a slow and obvious second opinion."""

import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from random import Random
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support import decision_oracle as oracle
from support.worlds import SEEDS, demand, demands, node, pool, random_demand, random_world, worlds
from yunhe.kernel.ids import JobId
from yunhe.kernel.resources import Accelerators, Resources
from yunhe.scheduling.decision.cycle import Cycle
from yunhe.scheduling.decision.decide import decide, decide_all, place_in
from yunhe.scheduling.decision.model import (
    Alternative,
    Assignment,
    Decision,
    Demand,
    Domain,
    Placed,
    Waiting,
)
from yunhe.scheduling.perception.model import Device, NodeFacts
from yunhe.scheduling.perception.snapshot import Snapshot, build_snapshot

SOME = settings(max_examples=int(os.environ.get("YUNHE_EXAMPLES", "100")), deadline=None)


@SOME
@given(demands(), worlds())
def test_a_demand_is_placed_exactly_when_brute_force_finds_room(wanted: Demand, here: Snapshot) -> None:
    assert isinstance(decide(wanted, here), Placed) == oracle.placeable(wanted, here)


@SOME
@given(demands(), worlds())
def test_no_decision_takes_more_than_a_node_a_device_or_a_link_has(wanted: Demand, here: Snapshot) -> None:
    decision = decide(wanted, here)
    if isinstance(decision, Placed):
        oracle.check_capacity(decision, here)


@SOME
@given(demands(), worlds())
def test_a_gang_is_placed_whole_or_not_at_all(wanted: Demand, here: Snapshot) -> None:
    decision = decide(wanted, here)
    if isinstance(decision, Placed):
        least = wanted.members if wanted.members_min is None else wanted.members_min
        assert least <= len(decision.assignments) <= wanted.members
        if wanted.one_pool:
            assert len({a.pool_id for a in decision.assignments}) == 1
        if wanted.spread is not None:
            domains = [domain_of(wanted.spread.over, a, here) for a in decision.assignments]
            assert all(domains.count(domain) <= wanted.spread.at_most for domain in domains)


def domain_of(over: Domain, assignment: Assignment, here: Snapshot) -> str:
    """Which node, pool or region (a pool of unknown region is one of its own) a member is in."""
    facts = here.pools[here.row_of_pool[assignment.pool_id]]
    if over is Domain.NODE:
        return assignment.node_id
    return facts.name if over is Domain.POOL else oracle.region_of(facts) or facts.name


@SOME
@given(demands(), worlds())
def test_neither_work_nor_data_ever_leaves_the_zone_it_must_stay_in(wanted: Demand, here: Snapshot) -> None:
    decision = decide(wanted, here)
    if not isinstance(decision, Placed):
        return
    region = {site: here.network.regions[row] for row, site in enumerate(here.network.sites)}
    for assignment in decision.assignments:
        facts = here.pools[here.row_of_pool[assignment.pool_id]]
        assert oracle.zone_holds(oracle.region_of(facts), wanted.residency)
    for transfer in decision.transfers:
        for zone in (wanted.residency, here.dataset[transfer.dataset].stay_in):
            assert all(oracle.zone_holds(region[site], zone) for site in transfer.sites)
    for route in decision.routes:
        assert all(oracle.zone_holds(region[site], wanted.residency) for site in route.sites)


@SOME
@given(demands(single=True), worlds(), SEEDS)
def test_more_room_never_turns_a_placement_into_waiting(wanted: Demand, here: Snapshot, seed: int) -> None:
    if isinstance(decide(wanted, here), Placed):
        assert isinstance(decide(wanted, roomier(here, Random(seed))), Placed)


def roomier(here: Snapshot, rng: Random) -> Snapshot:
    """The same world with more of everything that can be free, here and there: nodes, devices and links."""

    def more(column: Any, steps: tuple[int, ...], most: int | None = None) -> Any:
        grown = column + np.array([rng.choice(steps) for _ in column], dtype=column.dtype)
        return grown if most is None else np.maximum(column, np.minimum(grown, most))

    return replace(
        here,
        cpu_free_millis=more(here.cpu_free_millis, (0, 500, 3000)),
        memory_free_mib=more(here.memory_free_mib, (0, 512, 4096)),
        disk_free_mib=more(here.disk_free_mib, (0, 1000)),
        device_free_milli=more(here.device_free_milli, (0, 200, 1000), 1000),
        device_memory_free_mib=more(here.device_memory_free_mib, (0, 4000)),
        network=here.network.with_free(more(here.network.free_mbps, (0, 1, 50, 500))),
    )


@SOME
@given(demands(), worlds())
def test_the_same_question_gets_the_same_answer(wanted: Demand, here: Snapshot) -> None:
    assert msgspec.json.encode(decide(wanted, here)) == msgspec.json.encode(decide(wanted, here))


@SOME
@given(demands(), worlds())
def test_every_preset_chooses_what_brute_force_finds_least(wanted: Demand, here: Snapshot) -> None:
    decision = decide(wanted, here)
    if not isinstance(decision, Placed) or not wanted.one_pool:
        return
    best = float("inf")
    least = wanted.members if wanted.members_min is None else wanted.members_min
    for alternative in range(len(wanted.alternatives)):
        scores = oracle.scores(wanted, here, alternative)
        for row in oracle.able_pools(wanted, here, alternative):
            if oracle.members_that_fit(wanted, here, alternative, [row]) >= least:
                best = min(best, scores[row])
        if wanted.ordered and best < float("inf"):
            break
    assert decision.score == pytest.approx(best, rel=1e-3, abs=1e-6)


@SOME
@given(demands(), worlds())
def test_the_candidates_are_ranked_and_the_first_is_taken(wanted: Demand, here: Snapshot) -> None:
    decision = decide(wanted, here)
    if isinstance(decision, Placed) and wanted.one_pool and not wanted.ordered:
        scores = [candidate.score for candidate in decision.candidates]
        assert scores == sorted(scores)
        assert decision.assignments[0].node_id == decision.candidates[0].node_id


@SOME
@given(st.lists(demands(), min_size=1, max_size=6), worlds())
def test_a_queue_never_promises_anything_twice(queue: list[Demand], here: Snapshot) -> None:
    queue = [msgspec.structs.replace(one, job_id=JobId(f"job_{i}")) for i, one in enumerate(queue)]
    decisions, after = decide_all(queue, here)
    holdings = oracle.Holdings(here)
    for decision in decisions:
        for assignment in decision.assignments if isinstance(decision, Placed) else ():
            holdings.take(assignment)
    assert [row[0] for row in holdings.free] == after.cpu_free_millis.tolist()
    assert [device.milli for device in holdings.devices] == after.device_free_milli.tolist()


@SOME
@given(demands(), worlds())
def test_the_short_decision_agrees_with_the_explained_one(wanted: Demand, here: Snapshot) -> None:
    cycle = Cycle(here)
    explained, short = decide(wanted, here), place_in(wanted, cycle)
    assert type(explained) is type(short)
    if isinstance(explained, Placed) and isinstance(short, Placed):
        assert explained.assignments == short.assignments
        assert explained.score == short.score
        cycle.release(wanted.job_id)
        assert cycle.after().cpu_free_millis.tolist() == here.cpu_free_millis.tolist()
        assert cycle.after().device_free_milli.tolist() == here.device_free_milli.tolist()


@SOME
@given(demands(), worlds())
def test_whoever_waits_is_told_why_by_every_pool_and_by_name(wanted: Demand, here: Snapshot) -> None:
    decision = decide(wanted, here)
    if isinstance(decision, Waiting) and wanted.one_pool:
        assert [r.pool_name for r in decision.rejected] == [facts.name for facts in here.pools]
        assert all(r.rule and r.detail for r in decision.rejected)


@SOME
@given(demands(), worlds())
def test_decisions_and_demands_survive_encoding(wanted: Demand, here: Snapshot) -> None:
    decision = decide(wanted, here)
    assert msgspec.json.decode(msgspec.json.encode(wanted), type=Demand) == wanted
    assert msgspec.json.decode(msgspec.json.encode(decision), type=Decision) == decision


def test_what_is_drawn_has_what_the_properties_speak_of() -> None:
    """A property that nothing drawn could break proves nothing: each is met by so many placements of 2,500 draws."""
    met: Counter[str] = Counter()
    for seed in range(2500):
        wanted, here = random_demand(Random(seed)), random_world(Random(seed + 10**6))
        decision = decide(wanted, here)
        if isinstance(decision, Placed):
            met.update(_met(wanted, decision, here))
    wanting = {name: met[name] for name in MET if met[name] < 3}
    assert not wanting, met


MET = (
    "a route",
    "a route in a zone",
    "a reserved transfer",
    "a transfer in a zone",
    "a transfer that may not leave",
    "two that share a link",
    "affinity",
    "a range",
    "a budget",
    "a latency",
    "spread over nodes",
    "spread over pools",
    "spread over regions",
    "two kinds",
    "spot",
    "several pools",
    "a lower number",
)


def _met(wanted: Demand, placed: Placed, here: Snapshot) -> Iterator[str]:
    taken = [a.resources for a in placed.assignments]
    moving = [transfer for transfer in placed.transfers if transfer.links]
    routes = [route for route in placed.routes if route.links]
    links = [link for links, _ in oracle.reserved(placed) for link in links]
    over = None if wanted.spread is None else wanted.spread.over
    found = {
        "a route": bool(routes),
        "a route in a zone": bool(routes and wanted.residency),
        "a reserved transfer": any(transfer.rate_mbps for transfer in moving),
        "a transfer in a zone": bool(moving and wanted.residency),
        "a transfer that may not leave": any(here.dataset[one.dataset].stay_in for one in moving),
        "two that share a link": len(set(links)) < len(links),
        "affinity": bool(wanted.affinity),
        "a range": any(
            alternative.up_to and alternative.up_to in taken for alternative in wanted.alternatives
        ),
        "a budget": wanted.budget_micros is not None,
        "a latency": wanted.max_latency_ms is not None,
        "spread over nodes": over is Domain.NODE,
        "spread over pools": over is Domain.POOL,
        "spread over regions": over is Domain.REGION,
        "two kinds": any(len(amount.accelerators) > 1 for amount in taken),
        "spot": wanted.interruptible,
        "several pools": len({a.pool_id for a in placed.assignments}) > 1,
        "a lower number": len(taken) < wanted.members,
    }
    yield from (name for name, there in found.items() if there)


@SOME
@given(
    st.lists(
        st.tuples(
            st.sampled_from(("amd64", "arm64", "riscv64")), st.sampled_from(("", "a100", "ascend910", "fpga"))
        ),
        min_size=1,
        max_size=6,
    ),
    st.sampled_from(((), ("amd64",), ("arm64",), ("riscv64", "arm64"))),
    st.sampled_from(("", "a100", "ascend910", "fpga", "a100|ascend910")),
)
def test_work_lands_only_on_the_instruction_set_and_device_it_asked_for(
    machines: list[tuple[str, str]], isa: tuple[str, ...], kind: str
) -> None:
    amount = (Accelerators(kind, 1000),) if kind else ()
    nodes: list[NodeFacts] = [
        node(
            f"n{i}",
            "mixed",
            Resources(4000, 4096, 0, (Accelerators(device, 1000),) if device else ()),
            isa=arch,
            devices=(Device(device, 1000),) if device else (),
        )
        for i, (arch, device) in enumerate(machines)
    ]
    here = build_snapshot([pool("mixed")], nodes, version=1, taken_at=0.0)
    decision = decide(demand(alternatives=(Alternative(Resources(1000, 512, 0, amount)),), isa=isa), here)
    able = [
        f"n{i}"
        for i, (arch, device) in enumerate(machines)
        if (not isa or arch in isa) and (not kind or device in kind.split("|"))
    ]
    if isinstance(decision, Placed):
        assert decision.assignments[0].node_id in able
    else:
        assert not able
        assert decision.rejected[0].rule in {"architecture", "roomy"}
