"""A fake pool in scripted time: what happens, when, and what it costs."""

import msgspec
import pytest

from yunhe.infrastructure.contract.model import Ending, LaunchOrder, Phase, Step
from yunhe.infrastructure.fake.engine import FakeEngine
from yunhe.infrastructure.fake.pool import FakePool
from yunhe.infrastructure.fake.timeline import ScriptedTime
from yunhe.kernel.errors import InvalidInputError
from yunhe.kernel.ids import AllocationId, NodeId, ProjectId
from yunhe.kernel.resources import Resources

pytestmark = pytest.mark.anyio

MINUTE_START_S = 1_700_000_040.0  # divisible by 60

ORDER = LaunchOrder(
    allocation_id=AllocationId("alloc_1"),
    token=1,
    project_id=ProjectId("p"),
    node_id=NodeId("fake-1"),
    resources=Resources(cpu_millis=1000, memory_mib=100),
    steps=(Step(name="run", script="sleep 90\nexit 3"),),
)


@pytest.fixture
def time() -> ScriptedTime:
    return ScriptedTime(MINUTE_START_S)


@pytest.fixture
def engine(time: ScriptedTime) -> FakeEngine:
    return FakeEngine(FakePool(time=time))


async def test_what_was_due_long_ago_is_dated_when_it_was_due(engine: FakeEngine, time: ScriptedTime) -> None:
    await engine.launch(ORDER)
    time.advance(100_000)
    (seen,) = (await engine.observe()).allocations
    assert (seen.phase, seen.exit_code, seen.ended_at) == (Phase.EXITED, 3, MINUTE_START_S + 90)
    assert seen.meters.wall_ms == 90_000
    assert seen.meters.cpu_us == 90_000_000
    assert seen.meters.memory_mib_ms == 90_000 * 100


async def test_a_minute_is_handed_out_when_it_is_over_or_the_allocation_is(
    engine: FakeEngine, time: ScriptedTime
) -> None:
    await engine.launch(ORDER)
    time.advance(59)
    assert [minute async for minute in engine.usage()] == []
    time.advance(1)
    (first,) = [minute async for minute in engine.usage()]
    assert (first.seq, first.minute, first.samples) == (0, MINUTE_START_S // 60, 60)
    assert (first.cpu_mean_millis, sum(first.cpu_sketch)) == (1000, 60)
    time.advance(60)
    (second,) = [minute async for minute in engine.usage(beyond=0)]
    assert (second.seq, second.minute, second.samples) == (1, MINUTE_START_S // 60 + 1, 30)


async def test_use_follows_the_limits_and_stops_while_paused(engine: FakeEngine, time: ScriptedTime) -> None:
    await engine.launch(ORDER)
    time.advance(10)
    await engine.resize(ORDER.allocation_id, 1, Resources(cpu_millis=3000, memory_mib=100))
    time.advance(10)
    await engine.pause(ORDER.allocation_id, 1)
    time.advance(1000)
    await engine.resume(ORDER.allocation_id, 1)
    time.advance(69)
    (seen,) = (await engine.observe()).allocations
    assert seen.phase is Phase.RUNNING
    time.advance(1)
    (seen,) = (await engine.observe()).allocations
    assert seen.phase is Phase.EXITED
    assert seen.meters.cpu_us == (10 + 3 * 80) * 1_000_000


async def test_a_timeout_ends_it_on_the_second(engine: FakeEngine, time: ScriptedTime) -> None:
    await engine.launch(msgspec.structs.replace(ORDER, timeout_s=30))
    time.advance(500)
    (seen,) = (await engine.observe()).allocations
    assert (seen.ending, seen.ended_at) == (Ending.TIMED_OUT, MINUTE_START_S + 30)


async def test_the_oldest_output_goes_first_and_offsets_stay(engine: FakeEngine) -> None:
    script = "\n".join(f"echo {number:03}" for number in range(100))
    await engine.launch(
        msgspec.structs.replace(ORDER, log_limit_bytes=40, steps=(Step(name="run", script=script),))
    )
    chunks = [chunk async for chunk in engine.logs(ORDER.allocation_id)]
    assert chunks[0].offset == 360
    assert b"".join(chunk.data for chunk in chunks) == b"".join(b"%03d\n" % n for n in range(90, 100))


async def test_too_many_files_end_it_as_disk_full(engine: FakeEngine) -> None:
    steps = (Step(name="run", script="echo 0123456789 > a\nsleep 60"),)
    await engine.launch(msgspec.structs.replace(ORDER, disk_limit_bytes=10, steps=steps))
    (seen,) = (await engine.observe()).allocations
    assert (seen.phase, seen.ending) == (Phase.EXITED, Ending.DISK_FULL)


async def test_the_environment_can_stand_in_for_any_script(engine: FakeEngine, time: ScriptedTime) -> None:
    steps = (
        Step(name="setup", script="pip install x"),
        Step(name="run", script="python3 train.py | tee log"),
    )
    envs = {"FAKE_OUTPUT": "loss 0.1", "FAKE_RUN_S": "20", "FAKE_EXIT": "4"}
    await engine.launch(msgspec.structs.replace(ORDER, steps=steps, envs=envs))
    time.advance(19)
    assert [seen.phase for seen in (await engine.observe()).allocations] == [Phase.RUNNING]
    time.advance(1)
    (seen,) = (await engine.observe()).allocations
    assert (seen.step, seen.exit_code) == ("run", 4)
    assert [chunk.data async for chunk in engine.logs(ORDER.allocation_id)] == [b"loss 0.1\n"]


@pytest.mark.parametrize(
    "script",
    [
        "python3 x.py",
        "echo a; echo b",
        "echo a && echo b",
        "echo a | cat",
        "echo $HOME",
        'echo "$(id)"',
        'echo "`id`"',
        'echo "$$"',
        'echo "${X:-y}"',
        "echo 'a",
        "echo a#b",
        'echo a"b"',
        "echo 2>f",
        "echo -n a",
        "echo *",
        "echo ~",
        "sleep",
        "sleep soon",
        "exit -1",
        "exit 256",
        "touch a b",
        "trap x TERM",
        "test a != b",
        "X=1",
        "> f",
        "echo a > f > g",
        "sleep 1 > f",
        "sleep 1 &",
        "echo a\\",
    ],
)
async def test_a_script_it_does_not_understand_is_refused_and_nothing_is_claimed(
    engine: FakeEngine, script: str
) -> None:
    with pytest.raises(InvalidInputError, match="does not understand"):
        await engine.launch(msgspec.structs.replace(ORDER, steps=(Step(name="run", script=script),)))
    assert (await engine.observe()).allocations == ()


async def test_ten_thousand_allocations_run_to_their_ends(engine: FakeEngine, time: ScriptedTime) -> None:
    for number in range(10_000):
        await engine.launch(
            msgspec.structs.replace(
                ORDER,
                allocation_id=AllocationId(f"alloc_{number}"),
                envs={"FAKE_RUN_S": str(number % 100), "FAKE_EXIT": str(number % 7)},
            )
        )
    time.advance(100)
    observed = (await engine.observe()).allocations
    assert {seen.phase for seen in observed} == {Phase.EXITED}
    assert [seen.exit_code for seen in observed] == [number % 7 for number in range(10_000)]
    assert len(set(engine.pool.executed)) == len(engine.pool.executed) == 10_000
