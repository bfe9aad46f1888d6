"""Every fault does what its name says, and no fault runs an allocation twice."""

import anyio
import msgspec
import pytest

from yunhe.conformance.caller import find
from yunhe.infrastructure.contract.model import Ending, LaunchOrder, Observed, Phase, Step
from yunhe.infrastructure.fake.engine import FakeEngine
from yunhe.infrastructure.fake.faults import Fault, Faults, deliver
from yunhe.infrastructure.fake.pool import FakePool
from yunhe.infrastructure.fake.timeline import ScriptedTime
from yunhe.kernel.errors import ConflictError, NotFoundError, PoolUnreachableError
from yunhe.kernel.ids import AllocationId, NodeId, ProjectId
from yunhe.kernel.resources import Resources

pytestmark = pytest.mark.anyio

ID = AllocationId("alloc_1")
NODE = NodeId("fake-1")


def order(*, script: str = "echo started\nsleep 10", token: int = 1) -> LaunchOrder:
    return LaunchOrder(
        allocation_id=ID,
        token=token,
        project_id=ProjectId("p"),
        node_id=NODE,
        resources=Resources(cpu_millis=1000, memory_mib=64),
        steps=(Step(name="run", script=script),),
    )


@pytest.fixture
def time() -> ScriptedTime:
    return ScriptedTime()


@pytest.fixture
def engine(time: ScriptedTime) -> FakeEngine:
    return FakeEngine(FakePool(time=time))


async def seen(engine: FakeEngine) -> Observed | None:
    return find(await engine.observe(), ID)


async def phase(engine: FakeEngine) -> Phase | None:
    observed = await seen(engine)
    return observed.phase if observed else None


async def test_an_unheard_launch_has_no_effect_and_may_be_repeated(engine: FakeEngine) -> None:
    engine.faults.inject("launch", Fault.UNHEARD)
    with pytest.raises(PoolUnreachableError):
        await engine.launch(order())
    assert await phase(engine) is None
    await engine.launch(order())
    assert engine.pool.executed == [ID]


async def test_an_unanswered_launch_has_its_effect_and_may_be_repeated(engine: FakeEngine) -> None:
    engine.faults.inject("launch", Fault.UNANSWERED)
    with pytest.raises(PoolUnreachableError):
        await engine.launch(order())
    assert await phase(engine) is Phase.RUNNING
    await engine.launch(order())
    assert engine.pool.executed == [ID]


async def test_a_launch_that_arrives_after_the_stop_starts_nothing(engine: FakeEngine) -> None:
    engine.faults.inject("launch", Fault.LATE)
    with pytest.raises(PoolUnreachableError):
        await engine.launch(order())
    await engine.stop(ID, 1)
    assert await phase(engine) is None
    assert engine.pool.executed == []


async def test_a_late_launch_starts_when_it_arrives(engine: FakeEngine) -> None:
    engine.faults.inject("launch", Fault.LATE)
    with pytest.raises(PoolUnreachableError):
        await engine.launch(order())
    assert await phase(engine) is None
    deliver(engine.faults.held())
    assert await phase(engine) is Phase.RUNNING


async def test_a_launch_delivered_twice_runs_once_even_after_the_release(engine: FakeEngine) -> None:
    engine.faults.inject("launch", Fault.DUPLICATED)
    await engine.launch(order(script="echo started"))
    await engine.release(ID, 1)
    assert await phase(engine) is None
    assert engine.pool.executed == [ID]


async def test_a_crash_between_claim_and_start_is_unknown_for_ever(engine: FakeEngine) -> None:
    engine.faults.inject("launch", Fault.CRASHED)
    with pytest.raises(PoolUnreachableError):
        await engine.launch(order())
    await engine.launch(order(token=2))
    await engine.stop(ID, 2)
    observed = await seen(engine)
    assert observed is not None
    assert (observed.phase, observed.exit_code, observed.ending) == (Phase.UNKNOWN, None, None)
    assert engine.pool.executed == []
    await engine.release(ID, 2)
    assert await phase(engine) is None


async def test_a_stale_observation_is_the_one_told_before(engine: FakeEngine) -> None:
    before = await engine.observe()
    await engine.launch(order())
    engine.faults.inject("observe", Fault.STALE)
    assert await engine.observe() == before
    assert await phase(engine) is Phase.RUNNING


async def test_a_stream_breaks_after_its_first_piece(engine: FakeEngine, time: ScriptedTime) -> None:
    await engine.launch(order(script="echo one\nsleep 1\necho two"))
    engine.faults.inject("logs", Fault.UNANSWERED)
    read: list[bytes] = []
    with pytest.raises(PoolUnreachableError):
        async for chunk in engine.logs(ID, follow=True):
            read.append(chunk.data)  # noqa: PERF401 - what came before the break counts
    time.advance(1)
    read += [chunk.data async for chunk in engine.logs(ID, offset=4)]
    assert read == [b"one\n", b"two\n"]


async def test_a_lost_node_leaves_its_allocations_unknown(engine: FakeEngine, time: ScriptedTime) -> None:
    await engine.launch(order())
    engine.pool.lose_node(NODE)
    observed = await seen(engine)
    assert observed is not None
    assert (observed.phase, observed.exit_code) == (Phase.UNKNOWN, None)
    assert not (await engine.inventory()).nodes[0].ready
    time.advance(100)
    engine.pool.restore_node(NODE)
    assert await phase(engine) is Phase.UNKNOWN
    assert (await engine.inventory()).nodes[0].ready


async def test_nothing_is_claimed_on_a_lost_node(engine: FakeEngine) -> None:
    engine.pool.lose_node(NODE)
    with pytest.raises(PoolUnreachableError):
        await engine.launch(order())
    assert await phase(engine) is None
    engine.pool.restore_node(NODE)
    await engine.launch(order())
    assert await phase(engine) is Phase.RUNNING


@pytest.mark.parametrize("ending", [Ending.PREEMPTED, Ending.OUT_OF_MEMORY])
async def test_an_engine_can_end_an_allocation_by_itself(engine: FakeEngine, ending: Ending) -> None:
    await engine.launch(order())
    engine.pool.end(ID, ending)
    observed = await seen(engine)
    assert observed is not None
    assert (observed.phase, observed.ending) == (Phase.EXITED, ending)


async def test_latency_delays_the_effect(engine: FakeEngine, time: ScriptedTime) -> None:
    engine.faults.latency_s = 2.0
    async with anyio.create_task_group() as group:
        group.start_soon(engine.launch, order())
        await anyio.wait_all_tasks_blocked()
        assert engine.pool.executed == []
        time.advance(2)
    assert engine.pool.executed == [ID]


async def test_a_call_slower_than_the_timeout_raises_and_arrives_later(time: ScriptedTime) -> None:
    engine = FakeEngine(FakePool(time=time), timeout_s=5)
    engine.faults.latency_s = 60
    raised: list[float] = []

    async def launch() -> None:
        with pytest.raises(PoolUnreachableError):
            await engine.launch(order())
        raised.append(time.now())

    began_at = time.now()
    async with anyio.create_task_group() as group:
        group.start_soon(launch)
        await anyio.wait_all_tasks_blocked()
        time.advance(5)
    assert raised == [began_at + 5]
    engine.faults.latency_s = 0
    assert await phase(engine) is None
    deliver(engine.faults.held())
    assert await phase(engine) is Phase.RUNNING


async def test_two_connections_share_what_is_in_flight() -> None:
    pool, faults = FakePool(time=ScriptedTime()), Faults()
    first, second = FakeEngine(pool, faults), FakeEngine(pool, faults)
    faults.inject("launch", Fault.LATE)
    with pytest.raises(PoolUnreachableError):
        await first.launch(order(token=1))
    await first.close()
    await second.stop(ID, 2)
    assert pool.executed == []


async def test_a_closed_connection_answers_nothing(engine: FakeEngine) -> None:
    await engine.launch(order())
    await engine.close()
    with pytest.raises(PoolUnreachableError):
        await engine.observe()
    assert engine.pool.running(ID).live


def test_a_fault_is_refused_where_it_cannot_happen() -> None:
    with pytest.raises(ValueError, match="launch only"):
        Faults().inject("stop", Fault.CRASHED)


async def test_there_is_no_launch_on_a_node_that_is_not_there(engine: FakeEngine) -> None:
    with pytest.raises(NotFoundError):
        await engine.launch(msgspec.structs.replace(order(), node_id=NodeId("elsewhere")))
    assert (await engine.observe()).allocations == ()


async def test_nothing_can_be_resized_after_its_end(engine: FakeEngine) -> None:
    await engine.launch(order(script="true"))
    with pytest.raises(ConflictError):
        await engine.resize(ID, 1, Resources(cpu_millis=1))
