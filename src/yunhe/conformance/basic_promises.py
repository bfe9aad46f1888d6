"""What an engine keeps even with no power at all."""

import itertools
import re
from collections.abc import AsyncGenerator, Awaitable, Callable

import anyio
import msgspec
import pytest

from yunhe.conformance.caller import (
    EngineCaller,
    find,
    hang_up,
    joined,
    new_allocation_id,
    standing,
    use_power,
)
from yunhe.infrastructure.contract.engine import (
    Engine,
    SupportsExec,
    SupportsFiles,
    SupportsForward,
    SupportsPause,
    SupportsPin,
    SupportsResize,
)
from yunhe.infrastructure.contract.model import (
    CONTRACT_VERSION,
    Ending,
    Meters,
    Phase,
    Power,
    UsageMinute,
)
from yunhe.kernel.confinement import Confinement
from yunhe.kernel.errors import (
    ConflictError,
    FencedError,
    NotFoundError,
    UnsupportedError,
)
from yunhe.kernel.ids import ProjectId
from yunhe.kernel.resources import Resources

SAVED = b"saved"

Connect = Callable[[], Awaitable[Engine]]

PROTOCOLS: dict[Power, type] = {
    Power.RESIZE: SupportsResize,
    Power.PIN: SupportsPin,
    Power.PAUSE: SupportsPause,
    Power.FILES: SupportsFiles,
    Power.EXEC: SupportsExec,
    Power.FORWARD: SupportsForward,
}

COUNTS_ITS_CPU = """
work='until read -r line < /proc/$$/stat; set -- $line; [ $((${14} + ${15})) -ge TICKS ]; do
  i=0; while [ $i -lt 500 ]; do i=$((i + 1)); done
done
read -r cpu_ns line < /proc/$$/schedstat; echo "cpu-ns $cpu_ns"'
sh -c "$work"; eval "$work"
"""
"""Uses so many hundredths of a second in a child and as many itself, and tells what the kernel counted of both.

A shell's ``times`` would do, but for shells that round each of its four figures down to a hundredth.
"""


def cpu_seconds(log: bytes) -> float:
    """Return the sum of what a task has told with ``COUNTS_ITS_CPU``."""
    told = re.findall(rb"cpu-ns (\d+)", log)
    assert len(told) == 2, log
    return sum(map(int, told)) / 1e9


@pytest.mark.anyio
class BasicPromises:
    """What an engine keeps even with no power at all."""

    patience_s = 15.0
    """How long something that must happen may take."""
    tick_s = 0.3
    """A pause in a script that this engine can tell from none."""
    usage_within_s = 75.0
    """How long after its end an allocation's last minute may take to be handed out."""
    half_closes = True
    """Whether, on a connection into an allocation, one side can say that it has said all while the other goes on."""
    project_id = ProjectId("conformance")
    resources = Resources(cpu_millis=500, memory_mib=64)
    image = ""
    """What every order runs in, where the engine has ``Power.IMAGES``; it needs nothing but ``sh`` and its tools."""
    confinement: Confinement | None = None
    """How far every order is kept apart, where that is not as usual."""
    counts_cpu = True
    """Whether a task is billed what its own processes used: a fake runs none, and a sandbox works too for what it keeps."""

    @pytest.fixture
    async def engine(self, connect: Connect) -> AsyncGenerator[Engine, None]:
        engine = await connect()
        yield engine
        await engine.close()

    @pytest.fixture
    async def caller(self, engine: Engine) -> AsyncGenerator[EngineCaller, None]:
        node = (await engine.inventory()).nodes[0]
        caller = EngineCaller(engine, node.id, self.project_id, self.resources, self.patience_s)
        caller.image = self.image
        caller.confinement = self.confinement
        yield caller
        for allocation_id in caller.touched:
            await engine.stop(allocation_id, 1000, grace_s=0)
        for allocation_id in caller.touched:
            if await caller.look(allocation_id) is not None:
                await caller.ended(allocation_id)
                await engine.release(allocation_id, 1000)

    # What it is

    async def test_it_describes_itself_by_the_contract(self, engine: Engine) -> None:
        description = await engine.describe()
        assert description.engine
        assert description.version
        assert description.contract == CONTRACT_VERSION

    async def test_it_has_what_it_declares_and_says_why_it_lacks_the_rest(self, engine: Engine) -> None:
        description = await engine.describe()
        for power, protocol in PROTOCOLS.items():
            if power in description.powers:
                assert isinstance(engine, protocol)
                assert power not in description.missing
            elif isinstance(engine, protocol):
                with pytest.raises(UnsupportedError):
                    await use_power(engine, power, new_allocation_id())
        assert set(description.missing) == set(Power) - description.powers
        assert all(len(why.split()) >= 3 for why in description.missing.values()), "a sentence, not a word"

    async def test_its_nodes_have_names_of_their_own_and_use_no_less_than_nothing(
        self, engine: Engine
    ) -> None:
        nodes = (await engine.inventory()).nodes
        assert nodes
        assert len({node.id for node in nodes}) == len(nodes)
        for node in nodes:
            assert node.total.covers(self.resources)
            assert node.used.cpu_millis >= 0
            assert node.used.memory_mib >= 0
            assert node.ready or node.reason

    async def test_it_knows_who_we_are_and_the_sizes_it_has(self, engine: Engine) -> None:
        assert (await engine.account()).identity
        specs = (await engine.catalogue()).specs
        assert any(spec.resources.covers(self.resources) for spec in specs)
        assert len({(spec.region, spec.name) for spec in specs}) == len(specs)

    async def test_an_image_is_run_or_refused(self, caller: EngineCaller) -> None:
        if Power.IMAGES not in (await caller.engine.describe()).powers:
            with pytest.raises(UnsupportedError):
                await caller.run("true", image="example/image:1")
            return
        if not self.image:
            pytest.skip("it runs images; a kit whose orders carry one holds it to that")
        order = await caller.run("true")
        assert (await caller.ended(order.allocation_id)).exit_code == 0

    # Once

    async def test_an_allocation_launched_again_and_again_runs_once(self, caller: EngineCaller) -> None:
        order = await caller.run("echo started")
        await caller.engine.launch(order)
        first = await caller.ended(order.allocation_id)
        await caller.engine.launch(order)
        await caller.engine.launch(msgspec.structs.replace(order, token=2))
        await anyio.sleep(self.tick_s)
        again = await caller.ended(order.allocation_id)
        assert await caller.log(order.allocation_id) == b"started\n"
        assert (again.started_at, again.ended_at) == (first.started_at, first.ended_at)

    async def test_concurrent_launches_of_one_allocation_run_it_once(self, caller: EngineCaller) -> None:
        order = caller.order("echo started", f"sleep {self.tick_s}")
        async with anyio.create_task_group() as group:
            for _ in range(8):
                group.start_soon(caller.engine.launch, order)
        await caller.ended(order.allocation_id)
        assert await caller.log(order.allocation_id) == b"started\n"

    async def test_a_released_allocation_never_runs_again(self, caller: EngineCaller) -> None:
        order = await caller.run("echo started")
        await caller.ended(order.allocation_id)
        await caller.engine.release(order.allocation_id, 1)
        await caller.engine.launch(order)
        await caller.engine.launch(msgspec.structs.replace(order, token=2))
        await anyio.sleep(self.tick_s)
        seen = await caller.look(order.allocation_id)
        assert seen is None or seen.log_bytes == 0

    # Fenced

    async def test_an_older_token_is_refused_and_changes_nothing(self, caller: EngineCaller) -> None:
        order = await caller.run("sleep 60", token=5)
        before = await caller.running(order.allocation_id)
        with pytest.raises(FencedError):
            await caller.engine.launch(msgspec.structs.replace(order, token=4))
        with pytest.raises(FencedError):
            await caller.engine.stop(order.allocation_id, 4, grace_s=0)
        with pytest.raises(FencedError):
            await caller.engine.release(order.allocation_id, 4)
        await anyio.sleep(self.tick_s)
        after = await caller.look(order.allocation_id)
        assert after is not None
        assert standing(after) == standing(before)

    async def test_a_newer_token_takes_over_without_a_second_start(self, caller: EngineCaller) -> None:
        order = await caller.run("echo started\nsleep 60", token=5)
        await caller.until(order.allocation_id, lambda seen: seen.log_bytes > 0)
        await caller.engine.launch(msgspec.structs.replace(order, token=6))
        await caller.until(order.allocation_id, lambda seen: seen.token == 6)
        with pytest.raises(FencedError):
            await caller.engine.stop(order.allocation_id, 5)
        assert await caller.log(order.allocation_id) == b"started\n"

    async def test_a_stop_by_a_newer_token_fences_the_older_one(self, caller: EngineCaller) -> None:
        order = await caller.run("sleep 60", token=5)
        await caller.engine.stop(order.allocation_id, 7, grace_s=0)
        await caller.ended(order.allocation_id)
        with pytest.raises(FencedError):
            await caller.engine.launch(msgspec.structs.replace(order, token=6))
        with pytest.raises(FencedError):
            await caller.engine.release(order.allocation_id, 6)

    @pytest.mark.parametrize("late_token", [4, 5], ids=["older", "same"])
    async def test_a_launch_that_comes_after_its_stop_starts_nothing(
        self, caller: EngineCaller, late_token: int
    ) -> None:
        order = caller.order("echo started", token=late_token)
        await caller.engine.stop(order.allocation_id, 5)
        if late_token < 5:
            with pytest.raises(FencedError):
                await caller.engine.launch(order)
        else:
            await caller.engine.launch(order)
        await anyio.sleep(self.tick_s)
        seen = await caller.look(order.allocation_id)
        assert seen is None or (seen.phase is Phase.EXITED and seen.log_bytes == 0)

    async def test_the_mark_of_a_released_allocation_still_fences(self, caller: EngineCaller) -> None:
        order = await caller.run("true", token=3)
        await caller.ended(order.allocation_id)
        await caller.engine.release(order.allocation_id, 4)
        with pytest.raises(FencedError):
            await caller.engine.launch(order)

    # Stopping and ending

    async def test_a_stop_ends_it_and_may_be_repeated(self, caller: EngineCaller) -> None:
        order = await caller.run("echo started\nsleep 60\necho finished")
        await caller.until(order.allocation_id, lambda seen: seen.log_bytes > 0)
        await caller.engine.stop(order.allocation_id, 1, grace_s=1)
        await caller.engine.stop(order.allocation_id, 1, grace_s=1)
        seen = await caller.ended(order.allocation_id)
        assert (seen.phase, seen.ending) == (Phase.EXITED, Ending.STOPPED)
        await caller.engine.stop(order.allocation_id, 1)
        assert await caller.log(order.allocation_id) == b"started\n"

    async def test_what_ignores_the_polite_signal_is_forced_after_the_grace(
        self, caller: EngineCaller
    ) -> None:
        order = await caller.run('trap "" TERM\necho ready\nsleep 60')
        await caller.until(order.allocation_id, lambda seen: seen.log_bytes > 0)
        asked_at = anyio.current_time()
        await caller.engine.stop(order.allocation_id, 1, grace_s=2 * self.tick_s)
        seen = await caller.ended(order.allocation_id)
        assert anyio.current_time() - asked_at >= 1.9 * self.tick_s
        assert (seen.phase, seen.ending) == (Phase.EXITED, Ending.STOPPED)

    async def test_what_a_script_started_may_save_its_work_before_it_is_forced(
        self, caller: EngineCaller
    ) -> None:
        order = await caller.run(*self.saving(), grace_s=2 * self.patience_s)
        await caller.until(order.allocation_id, lambda seen: seen.log_bytes > 0)
        await caller.engine.stop(order.allocation_id, 1, grace_s=2 * self.patience_s)
        await caller.engine.stop(order.allocation_id, 1, grace_s=2 * self.patience_s)
        seen = await caller.ended(order.allocation_id)
        assert (seen.phase, seen.ending) == (Phase.EXITED, Ending.STOPPED)
        assert SAVED in (await caller.log(order.allocation_id)).splitlines()

    async def test_what_timed_out_may_save_its_work_before_it_is_forced(self, caller: EngineCaller) -> None:
        order = await caller.run(*self.saving(), timeout_s=3 * self.tick_s, grace_s=2 * self.patience_s)
        seen = await caller.ended(order.allocation_id)
        assert (seen.phase, seen.ending) == (Phase.EXITED, Ending.TIMED_OUT)
        assert SAVED in (await caller.log(order.allocation_id)).splitlines()

    async def test_what_timed_out_and_does_not_end_is_forced_after_its_grace(
        self, caller: EngineCaller
    ) -> None:
        deaf = 'trap "" TERM\necho ready\nsleep 60'
        order = await caller.run(deaf, timeout_s=2 * self.tick_s, grace_s=2 * self.tick_s)
        seen = await caller.ended(order.allocation_id)
        assert (seen.phase, seen.ending) == (Phase.EXITED, Ending.TIMED_OUT)

    async def test_the_task_knows_how_long_it_will_have(self, caller: EngineCaller) -> None:
        order = await caller.run('echo "$YUNHE_GRACE_S"', grace_s=7.5)
        await caller.ended(order.allocation_id)
        assert await caller.log(order.allocation_id) == b"7.5\n"

    def saving(self) -> tuple[str, str]:
        """Return steps: a program below a shell that saves its work when asked to end, and what must not follow it."""
        program = (
            f"trap 'sleep {self.tick_s}; echo saved; echo saved > checkpoint.txt; exit 0' TERM",
            "echo ready",
            "sleep 60",
        )
        lines = [f'echo "{line}" >> program.sh' for line in program]
        return "\n".join((*lines, "sh program.sh", "echo went on")), "echo went on"

    async def test_a_stop_of_what_was_never_there_is_fine(self, caller: EngineCaller) -> None:
        stranger = new_allocation_id()
        await caller.engine.stop(stranger, 1)
        await caller.engine.stop(stranger, 2)

    async def test_a_stop_after_the_end_changes_nothing(self, caller: EngineCaller) -> None:
        order = await caller.run("exit 3")
        before = await caller.ended(order.allocation_id)
        await caller.engine.stop(order.allocation_id, 1)
        after = await caller.ended(order.allocation_id)
        assert standing(after) == standing(before)

    @pytest.mark.parametrize("code", [0, 1, 42, 255])
    async def test_the_exit_code_is_the_script_s_own(self, caller: EngineCaller, code: int) -> None:
        order = await caller.run(f"exit {code}")
        seen = await caller.ended(order.allocation_id)
        assert (seen.phase, seen.ending, seen.exit_code) == (Phase.EXITED, Ending.DONE, code)
        assert seen.started_at is not None
        assert seen.ended_at is not None
        assert seen.ended_at >= seen.started_at

    async def test_the_first_step_that_fails_ends_it_and_is_named(self, caller: EngineCaller) -> None:
        order = await caller.run("echo one", "echo two\nexit 9", "echo three")
        seen = await caller.ended(order.allocation_id)
        assert (seen.ending, seen.exit_code, seen.step) == (Ending.DONE, 9, "step-2")
        assert await caller.log(order.allocation_id) == b"one\ntwo\n"

    async def test_the_steps_share_a_directory(self, caller: EngineCaller) -> None:
        order = await caller.run("echo kept > note.txt", "cat note.txt")
        assert (await caller.ended(order.allocation_id)).exit_code == 0
        assert await caller.log(order.allocation_id) == b"kept\n"

    async def test_two_allocations_do_not_share_a_directory(self, caller: EngineCaller) -> None:
        first = await caller.run("echo mine > note.txt")
        await caller.ended(first.allocation_id)
        second = await caller.run("cat note.txt")
        assert (await caller.ended(second.allocation_id)).exit_code == 1

    async def test_a_timeout_ends_it_as_timed_out(self, caller: EngineCaller) -> None:
        order = await caller.run("echo started\nsleep 60\necho finished", timeout_s=3 * self.tick_s)
        seen = await caller.ended(order.allocation_id)
        assert (seen.phase, seen.ending) == (Phase.EXITED, Ending.TIMED_OUT)
        said = (await caller.log(order.allocation_id)).splitlines()
        assert said[0] == b"started"
        assert b"finished" not in said  # a shell may still say that what it waited for was terminated

    async def test_what_ended_while_nobody_looked_is_told_to_whoever_looks_next(
        self, connect: Connect, caller: EngineCaller
    ) -> None:
        first = await connect()
        order = caller.order(f"echo before\nsleep {self.tick_s}\necho after\nexit 5")
        await first.launch(order)
        await first.close()
        await anyio.sleep(3 * self.tick_s)
        seen = await caller.ended(order.allocation_id)
        assert (seen.ending, seen.exit_code) == (Ending.DONE, 5)
        assert seen.meters.wall_ms >= 900 * self.tick_s
        assert await caller.log(order.allocation_id) == b"before\nafter\n"

    # Environment and secrets

    async def test_the_environment_reaches_the_script_letter_by_letter(self, caller: EngineCaller) -> None:
        value = "a b;c $HOME `id` 'x' 运河"
        order = await caller.run('echo "$GREETING"', envs={"GREETING": value})
        await caller.ended(order.allocation_id)
        assert await caller.log(order.allocation_id) == f"{value}\n".encode()

    async def test_a_secret_reaches_the_script_and_no_observation(self, caller: EngineCaller) -> None:
        secret = "hush-7f3a9c"
        order = await caller.run(f'test "$TOKEN" = {secret}', "sleep 60", secrets={"TOKEN": secret})
        seen = await caller.until(order.allocation_id, lambda seen: seen.step == "step-2")
        assert secret.encode() not in msgspec.json.encode(seen)
        await caller.engine.stop(order.allocation_id, 1, grace_s=0)
        await caller.ended(order.allocation_id)
        assert secret.encode() not in msgspec.json.encode(await caller.engine.observe())
        assert secret.encode() not in await caller.log(order.allocation_id)

    # Releasing

    async def test_a_release_forgets_it_and_may_be_repeated(self, caller: EngineCaller) -> None:
        order = await caller.run("echo started")
        await caller.ended(order.allocation_id)
        await caller.engine.release(order.allocation_id, 1)
        await caller.engine.release(order.allocation_id, 1)
        assert await caller.look(order.allocation_id) is None
        with pytest.raises(NotFoundError):
            await caller.log(order.allocation_id)

    async def test_what_still_runs_is_not_released(self, caller: EngineCaller) -> None:
        order = await caller.run("sleep 60")
        before = await caller.running(order.allocation_id)
        with pytest.raises(ConflictError):
            await caller.engine.release(order.allocation_id, 1)
        after = await caller.look(order.allocation_id)
        assert after is not None
        assert standing(after) == standing(before)

    # Observing

    async def test_a_waiting_observer_wakes_when_something_happens(self, caller: EngineCaller) -> None:
        version = (await caller.engine.observe()).version
        order = caller.order("sleep 60")

        async def launch_soon() -> None:
            await anyio.sleep(self.tick_s)
            await caller.engine.launch(order)

        async with anyio.create_task_group() as group:
            group.start_soon(launch_soon)
            began_at = anyio.current_time()
            observation = await caller.engine.observe(beyond=version, wait_s=self.patience_s)
            assert anyio.current_time() - began_at < self.patience_s / 2
            assert observation.version > version

    async def test_an_observer_waits_no_longer_than_it_asked(self, caller: EngineCaller) -> None:
        order = await caller.run("sleep 60")
        await caller.running(order.allocation_id)
        for wait_s in (0.0, 2 * self.tick_s):
            version = (await caller.engine.observe()).version
            began_at = anyio.current_time()
            observation = await caller.engine.observe(beyond=version, wait_s=wait_s)
            assert anyio.current_time() - began_at < wait_s + 2.0
            assert find(observation, order.allocation_id) is not None or observation.since == version

    async def test_versions_never_go_back(self, caller: EngineCaller) -> None:
        versions = [(await caller.engine.observe()).version]
        order = await caller.run("true")
        versions.append((await caller.engine.observe()).version)
        await caller.ended(order.allocation_id)
        versions.append((await caller.engine.observe()).version)
        assert versions == sorted(versions)
        assert versions[-1] > versions[0]

    async def test_changes_folded_one_after_another_are_what_a_look_at_everything_shows(
        self, caller: EngineCaller
    ) -> None:
        folded, version = await caller.folded({}, -1)
        orders = [await caller.run(script) for script in ("sleep 60", "true", "exit 3")]
        folded, version = await caller.folded(folded, version)
        for order in orders[1:]:
            await caller.ended(order.allocation_id)
            folded, version = await caller.folded(folded, version)
        await caller.engine.release(orders[1].allocation_id, 1)
        await caller.engine.stop(orders[0].allocation_id, 1)
        await caller.ended(orders[0].allocation_id)
        with anyio.move_on_after(self.patience_s):
            while True:
                folded, version = await caller.folded(folded, version)
                whole = await caller.engine.observe()
                ours = [(folded.get(one.allocation_id), find(whole, one.allocation_id)) for one in orders]
                if all((a and standing(a)) == (b and standing(b)) for a, b in ours):
                    break
                await anyio.sleep(self.tick_s)
        assert {one.allocation_id for one in orders} & folded.keys() == {
            one.allocation_id for one in (orders[0], orders[2])
        }
        for order in (orders[0], orders[2]):
            seen = await caller.look(order.allocation_id)
            assert seen is not None
            assert standing(folded[order.allocation_id]) == standing(seen)
        assert folded[orders[2].allocation_id].exit_code == 3

    async def test_a_version_that_the_engine_does_not_know_is_answered_with_everything(
        self, caller: EngineCaller
    ) -> None:
        order = await caller.run("sleep 60")
        await caller.running(order.allocation_id)
        for version in (-1, (await caller.engine.observe()).version + 10**15):
            observation = await caller.engine.observe(beyond=version)
            assert observation.since == -1
            assert find(observation, order.allocation_id) is not None

    # Output

    async def test_output_can_be_read_from_every_byte(self, caller: EngineCaller) -> None:
        order = await caller.run("echo first", "echo second\necho third")
        seen = await caller.ended(order.allocation_id)
        whole = b"first\nsecond\nthird\n"
        assert seen.log_bytes == len(whole)
        for offset in range(len(whole) + 1):
            assert await caller.log(order.allocation_id, offset=offset) == whole[offset:]

    async def test_a_follower_hears_it_live_and_ends_when_all_is_read(self, caller: EngineCaller) -> None:
        order = await caller.run(f"echo early\nsleep {2 * self.tick_s}\necho late")
        stream = caller.engine.logs(order.allocation_id, follow=True)
        with anyio.fail_after(self.patience_s):
            first = await anext(stream)
            seen = await caller.look(order.allocation_id)
            rest = [chunk async for chunk in stream]
        assert first.data == b"early\n"
        assert seen is not None
        assert seen.phase is not Phase.EXITED
        assert joined([first, *rest]) == b"early\nlate\n"

    async def test_a_reader_that_comes_back_reads_the_rest_exactly_once(
        self, connect: Connect, caller: EngineCaller
    ) -> None:
        lines = "\n".join(f"echo line-{n}\nsleep {self.tick_s / 10:.3f}" for n in range(10))
        order = await caller.run(lines)
        read: list[bytes] = []
        offset = 0
        with anyio.fail_after(self.patience_s):
            while len(read) < 3:
                connection = await connect()
                stream = connection.logs(order.allocation_id, offset=offset, follow=True)
                chunk = await anext(stream)
                await hang_up(stream)
                await connection.close()
                assert chunk.offset == offset
                read.append(chunk.data)
                offset += len(chunk.data)
                if offset == 70:
                    break
            read.append(await caller.log(order.allocation_id, offset=offset, follow=True))
        assert b"".join(read) == b"".join(b"line-%d\n" % n for n in range(10))

    async def test_there_is_no_output_of_a_stranger(self, caller: EngineCaller) -> None:
        with pytest.raises(NotFoundError):
            await caller.log(new_allocation_id())

    # Metering

    async def test_meters_only_grow(self, caller: EngineCaller) -> None:
        order = await caller.run(f"sleep {3 * self.tick_s}")
        seen = [await caller.running(order.allocation_id)]
        while seen[-1].phase is not Phase.EXITED:
            await anyio.sleep(self.tick_s / 4)
            seen.append(await caller.until(order.allocation_id, lambda _: True))
        for before, after in itertools.pairwise(seen):
            for name in Meters.__struct_fields__:
                was, now = getattr(before.meters, name), getattr(after.meters, name)
                assert (was is None and now is None) or now >= was, name
        assert seen[-1].meters.wall_ms >= 2900 * self.tick_s

    @pytest.mark.parametrize("wanted_s", [0.5, 2.0])
    async def test_cpu_time_is_metered_as_the_task_itself_counts_it(
        self, caller: EngineCaller, wanted_s: float
    ) -> None:
        if not self.counts_cpu:
            pytest.skip("what this engine meters is not what the task's processes used")
        order = await caller.run(COUNTS_ITS_CPU.replace("TICKS", str(round(wanted_s * 50))))
        seen = await caller.ended(order.allocation_id)
        told_s = cpu_seconds(await caller.log(order.allocation_id))
        assert told_s >= wanted_s * 0.9
        assert abs(seen.meters.cpu_us / 1e6 - told_s) <= 0.02 * told_s + 0.02

    async def test_network_bytes_are_counted_only_where_the_engine_says_so(
        self, caller: EngineCaller
    ) -> None:
        metered = (await caller.engine.describe()).network_metered
        order = await caller.run("true")
        meters = (await caller.ended(order.allocation_id)).meters
        assert (meters.received_bytes is not None) == metered
        assert (meters.sent_bytes is not None) == metered

    async def test_every_minute_of_use_is_handed_out_in_sequence(self, caller: EngineCaller) -> None:
        order = await caller.run(f"sleep {max(1.5, self.tick_s)}")
        await caller.ended(order.allocation_id)
        with anyio.fail_after(self.usage_within_s):
            while not any(m.allocation_id == order.allocation_id for m in await self._minutes(caller.engine)):
                await anyio.sleep(0.2)
        minutes = await self._minutes(caller.engine)
        numbers = [minute.seq for minute in minutes]
        assert numbers == sorted(set(numbers))
        for minute in minutes:
            assert 1 <= minute.samples <= 61
            assert 0 <= minute.cpu_mean_millis <= minute.cpu_max_millis
            assert 0 <= minute.memory_mean_mib <= minute.memory_max_mib
            assert len(minute.cpu_sketch) == 32
        middle = numbers[len(numbers) // 2]
        later = await self._minutes(caller.engine, beyond=middle)
        assert [minute for minute in later if minute.seq <= numbers[-1]] == [
            minute for minute in minutes if minute.seq > middle
        ]

    async def _minutes(self, engine: Engine, *, beyond: int = -1) -> list[UsageMinute]:
        return [minute async for minute in engine.usage(beyond=beyond)]
