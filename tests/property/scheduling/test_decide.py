"""What holds for every decision, checked against a slow and obvious second opinion."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import decision_oracle as oracle
from worlds import amounts, demand, demands, node, pool, worlds
from yunhe.kernel.ids import JobId
from yunhe.kernel.resources import Accelerators, Resources
from yunhe.scheduling.orchestration.cycle import Cycle
from yunhe.scheduling.orchestration.decide import decide, decide_all, place_in
from yunhe.scheduling.orchestration.model import Alternative, Decision, Demand, Placed, Waiting
from yunhe.scheduling.perception.model import Device, NodeFacts
from yunhe.scheduling.perception.snapshot import Snapshot, build_snapshot

SOME = settings(max_examples=100, deadline=None)


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
            nodes = [a.node_id for a in decision.assignments]
            assert all(nodes.count(node) <= wanted.spread.at_most for node in nodes)


@pytest.mark.feature("S21")
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
@given(demands(single=True), worlds(), st.data())
def test_more_room_never_turns_a_placement_into_waiting(
    wanted: Demand, here: Snapshot, data: st.DataObject
) -> None:
    if isinstance(decide(wanted, here), Waiting):
        return
    row = data.draw(st.integers(0, len(here.node_ids) - 1))
    taken = data.draw(amounts())
    negative = Resources(-taken.cpu_millis, -taken.memory_mib, -taken.disk_mib)
    assert isinstance(decide(wanted, here.after(row, negative)), Placed)


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


@pytest.mark.feature("B03")
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
