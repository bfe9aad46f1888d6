"""What an engine keeps that declares a power; a power that is not declared is skipped with the engine's reason."""

import random

import anyio
import msgspec
import pytest

from yunhe.conformance.basic_promises import BasicPromises
from yunhe.conformance.caller import EngineCaller, archive_of, chunks_of, fetch, standing, use_power
from yunhe.infrastructure.contract.engine import (
    Engine,
    ForwardSession,
    SupportsExec,
    SupportsFiles,
    SupportsForward,
    SupportsPause,
    SupportsPin,
    SupportsResize,
)
from yunhe.infrastructure.contract.model import Ending, ExecRequest, LaunchOrder, Phase, Power
from yunhe.kernel.errors import ConflictError, FencedError, InvalidInputError, NotFoundError, YunheError
from yunhe.kernel.ids import AllocationId
from yunhe.kernel.resources import Resources

LISTENS = """
cat > listens.py <<'END'
import socketserver, sys
class Answer(socketserver.StreamRequestHandler):
    def handle(self):
        self.wfile.write(self.rfile.readline().upper())
        self.wfile.flush()
        self.wfile.write(b"%d more" % len(self.rfile.read()))
socketserver.ThreadingTCPServer.allow_reuse_address = True
server = socketserver.ThreadingTCPServer(("127.0.0.1", int(sys.argv[1])), Answer)
print("ready", flush=True)
server.serve_forever()
END
command -v python3 > /dev/null || { echo "no python3"; sleep 60; }
exec python3 listens.py """
"""A program that answers a line, and then tells how much came until the other side had said all."""


@pytest.mark.anyio
class PowerPromises(BasicPromises):
    """Files, commands beside an allocation, and live changes."""

    # Files

    async def test_files_put_before_the_launch_are_there_when_it_runs(self, caller: EngineCaller) -> None:
        engine = await self._with_files(caller)
        archive = archive_of({"a.txt": b"alpha\n", "deep/b.txt": b"beta\n"})
        upload = caller.upload(archive)
        await engine.put_archive(upload, chunks_of(archive))
        seen = await caller.look(upload.allocation_id)
        assert seen is not None
        assert seen.phase is Phase.PREPARING
        order = await caller.run("cat data/a.txt\ncat data/deep/b.txt", allocation_id=upload.allocation_id)
        assert (await caller.ended(order.allocation_id)).exit_code == 0
        assert await caller.log(order.allocation_id) == b"alpha\nbeta\n"

    @pytest.mark.parametrize(
        "fault", ["digest", "size", "traversal", "absolute", "link", "not-an-archive", "path"]
    )
    async def test_a_bad_archive_is_refused_whole(self, caller: EngineCaller, fault: str) -> None:
        engine = await self._with_files(caller)
        good = {"good.txt": b"good\n"}
        archive = {
            "traversal": archive_of({**good, "../../evil.txt": b"evil\n"}),
            "absolute": archive_of({**good, "/tmp/evil.txt": b"evil\n"}),
            "link": archive_of(good, link=("out", "/etc")),
            "not-an-archive": b"not an archive" * 100,
        }.get(fault, archive_of(good))
        lie = {
            "digest": {"digest": "0" * 64},
            "size": {"size_bytes": len(archive) - 1},
            "path": {"path": "../data"},
        }.get(fault, {})
        upload = caller.upload(archive, **lie)
        with pytest.raises(InvalidInputError):
            await engine.put_archive(upload, chunks_of(archive))
        order = await caller.run("cat data/good.txt", allocation_id=upload.allocation_id)
        assert (await caller.ended(order.allocation_id)).exit_code == 1

    async def test_the_same_archive_again_costs_nothing(self, caller: EngineCaller) -> None:
        engine = await self._with_files(caller)
        archive = archive_of({"a.txt": bytes(range(256)) * 100})
        upload = caller.upload(archive)
        await engine.put_archive(upload, chunks_of(archive))
        again = chunks_of(archive)
        await engine.put_archive(upload, again)
        assert b"".join([chunk async for chunk in again]) == archive, "some of it was read a second time"

    async def test_the_same_archive_again_is_welcome_after_the_launch(self, caller: EngineCaller) -> None:
        """Whoever dies between a launch and its record sends the files again, and must not take that for a refusal."""
        engine = await self._with_files(caller)
        archive = archive_of({"a.txt": b"alpha\n"})
        upload = caller.upload(archive)
        await engine.put_archive(upload, chunks_of(archive))
        order = await caller.run("cat data/a.txt", allocation_id=upload.allocation_id)
        again = chunks_of(archive)
        await engine.put_archive(msgspec.structs.replace(upload, token=2), again)
        assert b"".join([chunk async for chunk in again]) == archive, "some of it was read a second time"
        await caller.engine.launch(msgspec.structs.replace(order, token=2))
        assert (await caller.ended(order.allocation_id)).exit_code == 0
        assert await caller.log(order.allocation_id) == b"alpha\n"

    async def test_an_older_token_puts_no_file(self, caller: EngineCaller) -> None:
        engine = await self._with_files(caller)
        archive = archive_of({"a.txt": b"new\n"})
        upload = caller.upload(archive, token=5)
        await engine.put_archive(upload, chunks_of(archive))
        older = archive_of({"a.txt": b"old\n"})
        with pytest.raises(FencedError):
            await engine.put_archive(
                caller.upload(older, token=4, allocation_id=upload.allocation_id), chunks_of(older)
            )
        order = await caller.run("cat data/a.txt", allocation_id=upload.allocation_id, token=5)
        await caller.ended(order.allocation_id)
        assert await caller.log(order.allocation_id) == b"new\n"

    async def test_results_come_back_and_what_is_not_there_is_left_out(self, caller: EngineCaller) -> None:
        engine = await self._with_files(caller)
        order = await caller.run(
            "echo one > one.txt\necho two > two.txt\necho log > run.log", outputs=("*.txt", "nowhere/*")
        )
        await caller.ended(order.allocation_id)
        got = await fetch(engine, order.allocation_id, "*.txt", "nowhere/*")
        assert got == {"one.txt": b"one\n", "two.txt": b"two\n"}

    async def test_what_was_saved_after_the_polite_signal_is_among_the_results(
        self, caller: EngineCaller
    ) -> None:
        engine = await self._with_files(caller)
        order = await caller.run(*self.saving(), outputs=("checkpoint.txt",), grace_s=2 * self.patience_s)
        await caller.until(order.allocation_id, lambda seen: seen.log_bytes > 0)
        await caller.engine.stop(order.allocation_id, 1, grace_s=2 * self.patience_s)
        assert (await caller.ended(order.allocation_id)).ending is Ending.STOPPED
        assert await fetch(engine, order.allocation_id, "checkpoint.txt") == {"checkpoint.txt": b"saved\n"}

    async def test_what_was_written_before_force_is_among_the_results(self, caller: EngineCaller) -> None:
        engine = await self._with_files(caller)
        deaf = 'trap "" TERM\necho half > part.txt\necho ready\nsleep 60'
        order = await caller.run(deaf, outputs=("part.txt",), grace_s=self.tick_s)
        await caller.until(order.allocation_id, lambda seen: seen.log_bytes > 0)
        await caller.engine.stop(order.allocation_id, 1, grace_s=self.tick_s)
        assert (await caller.ended(order.allocation_id)).ending is Ending.STOPPED
        assert await fetch(engine, order.allocation_id, "part.txt") == {"part.txt": b"half\n"}

    async def test_results_stay_until_the_release_and_are_not_found_after_it(
        self, caller: EngineCaller
    ) -> None:
        """Whoever fails to keep them fetches them again; an empty archive instead would be a loss nobody hears of."""
        engine = await self._with_files(caller)
        order = await caller.run("echo one > one.txt", outputs=("*.txt",))
        await caller.ended(order.allocation_id)
        for _ in range(2):
            assert await fetch(engine, order.allocation_id, "*.txt") == {"one.txt": b"one\n"}
        await caller.engine.release(order.allocation_id, 1)
        with pytest.raises(NotFoundError):
            await fetch(engine, order.allocation_id, "*.txt")

    async def test_no_file_outside_the_directory_can_be_fetched(self, caller: EngineCaller) -> None:
        engine = await self._with_files(caller)
        order = await caller.run("echo one > one.txt", outputs=("*.txt",))
        await caller.ended(order.allocation_id)
        for pattern in ("/etc/passwd", "../*", "../../*"):
            with pytest.raises(InvalidInputError):
                await fetch(engine, order.allocation_id, pattern)

    # Commands beside it

    async def test_a_command_beside_it_has_its_own_output_and_exit_code(self, caller: EngineCaller) -> None:
        engine = await self._with_exec(caller)
        order = await caller.run("echo inside > note.txt\nsleep 60")
        await caller.running(order.allocation_id)
        await anyio.sleep(self.tick_s)
        request = ExecRequest(argv=("sh", "-c", "cat note.txt\nexit 6"))
        with anyio.fail_after(self.patience_s):
            async with engine.exec(order.allocation_id, request) as session:
                output = b""
                while piece := await session.receive():
                    output += piece
                assert (output, await session.wait()) == (b"inside\n", 6)

    async def test_a_command_beside_it_reads_what_is_sent(self, caller: EngineCaller) -> None:
        engine = await self._with_exec(caller)
        order = await caller.run("sleep 60")
        await caller.running(order.allocation_id)
        with anyio.fail_after(self.patience_s):
            async with engine.exec(order.allocation_id, ExecRequest(argv=("cat",))) as session:
                await session.send(b"to and ")
                await session.send(b"fro")
                await session.send(b"")
                output = b""
                while piece := await session.receive():
                    output += piece
                assert (output, await session.wait()) == (b"to and fro", 0)

    async def test_leaving_a_command_beside_it_does_not_wait_for_it(self, caller: EngineCaller) -> None:
        engine = await self._with_exec(caller)
        order = await caller.run("sleep 60")
        await caller.running(order.allocation_id)
        with anyio.fail_after(self.patience_s):
            async with engine.exec(order.allocation_id, ExecRequest(argv=("sleep", "60"))):
                pass
        assert (await caller.running(order.allocation_id)).phase is Phase.RUNNING

    async def test_no_command_runs_beside_what_has_ended(self, caller: EngineCaller) -> None:
        engine = await self._with_exec(caller)
        order = await caller.run("true")
        await caller.ended(order.allocation_id)
        with pytest.raises(YunheError):
            async with engine.exec(order.allocation_id, ExecRequest(argv=("true",))) as session:
                await session.wait()

    # Connections into it

    async def test_a_program_inside_it_is_reached_by_many_at_once(self, caller: EngineCaller) -> None:
        engine, order, port = await self._listening(caller)
        with anyio.fail_after(self.patience_s):
            async with (
                engine.forward(order.allocation_id, port) as one,
                engine.forward(order.allocation_id, port) as other,
            ):
                await one.send(b"to one")
                await other.send(b"to other\n")
                assert await heard(other, 9) == b"TO OTHER\n"
                await one.send(b" alone\n")
                assert await heard(one, 13) == b"TO ONE ALONE\n"

    async def test_a_side_that_has_said_all_still_hears_the_other(self, caller: EngineCaller) -> None:
        if not self.half_closes:
            pytest.skip("the engine cannot say that one side has said all")
        engine, order, port = await self._listening(caller)
        with anyio.fail_after(self.patience_s):
            async with engine.forward(order.allocation_id, port) as session:
                await session.send(b"line\n")
                for _ in range(40):
                    await session.send(bytes(50_000))
                await session.send(b"")
                assert await heard(session, -1) == b"LINE\n2000000 more"

    async def test_where_nobody_listens_is_a_conflict_and_harms_nothing(self, caller: EngineCaller) -> None:
        engine, order, port = await self._listening(caller)
        with pytest.raises(ConflictError):
            await _ask(engine, order.allocation_id, port + 1, self.patience_s)
        assert await _ask(engine, order.allocation_id, port, self.patience_s) == b"HELLO\n"

    async def test_nothing_is_reached_in_what_has_ended(self, caller: EngineCaller) -> None:
        await self._need(caller.engine, Power.FORWARD)
        order = await caller.run("true")
        await caller.ended(order.allocation_id)
        with pytest.raises(YunheError):
            await use_power(caller.engine, Power.FORWARD, order.allocation_id)

    async def _listening(self, caller: EngineCaller) -> tuple[SupportsForward, LaunchOrder, int]:
        """Return an allocation with a program that listens, and its port."""
        await self._need(caller.engine, Power.FORWARD)
        assert isinstance(caller.engine, SupportsForward)
        port = random.randrange(20_000, 30_000)  # noqa: S311 - where tasks share a network, another each time
        order = await caller.run(f"{LISTENS}{port}")
        await caller.until(order.allocation_id, lambda seen: seen.log_bytes > 0)
        if b"no python3" in await caller.log(order.allocation_id):
            pytest.skip("there is no python3 to listen with")
        return caller.engine, order, port

    # Live changes

    async def test_new_limits_are_seen_and_the_work_goes_on(self, caller: EngineCaller) -> None:
        engine = caller.engine
        await self._need(engine, Power.RESIZE)
        assert isinstance(engine, SupportsResize)
        order = await caller.run(f"echo before\nsleep {3 * self.tick_s}\necho after")
        await caller.running(order.allocation_id)
        wider = Resources(cpu_millis=2 * self.resources.cpu_millis, memory_mib=self.resources.memory_mib + 16)
        await engine.resize(order.allocation_id, 1, wider)
        await caller.until(order.allocation_id, lambda seen: seen.resources == wider)
        assert (await caller.ended(order.allocation_id)).exit_code == 0
        assert await caller.log(order.allocation_id) == b"before\nafter\n"

    async def test_a_pinned_allocation_sees_only_its_cores(self, caller: EngineCaller) -> None:
        engine = caller.engine
        await self._need(engine, Power.PIN)
        assert isinstance(engine, SupportsPin)
        order = await caller.run(f"sleep {3 * self.tick_s}\nnproc")
        await caller.running(order.allocation_id)
        await engine.pin(order.allocation_id, 1, (0,))
        await caller.ended(order.allocation_id)
        assert await caller.log(order.allocation_id) == b"1\n"

    async def test_a_paused_allocation_stands_still_until_it_is_resumed(self, caller: EngineCaller) -> None:
        engine = caller.engine
        await self._need(engine, Power.PAUSE)
        assert isinstance(engine, SupportsPause)
        order = await caller.run(f"echo before\nsleep {2 * self.tick_s}\necho after")
        await caller.until(order.allocation_id, lambda seen: seen.log_bytes > 0)
        await engine.pause(order.allocation_id, 1)
        await caller.until(order.allocation_id, lambda seen: seen.phase is Phase.PAUSED)
        await anyio.sleep(4 * self.tick_s)
        assert await caller.log(order.allocation_id) == b"before\n"
        await engine.resume(order.allocation_id, 1)
        assert (await caller.ended(order.allocation_id)).exit_code == 0
        assert await caller.log(order.allocation_id) == b"before\nafter\n"

    async def test_a_paused_allocation_can_be_stopped(self, caller: EngineCaller) -> None:
        engine = caller.engine
        await self._need(engine, Power.PAUSE)
        assert isinstance(engine, SupportsPause)
        order = await caller.run("sleep 60")
        await caller.running(order.allocation_id)
        await engine.pause(order.allocation_id, 1)
        await engine.stop(order.allocation_id, 1, grace_s=self.tick_s)
        assert (await caller.ended(order.allocation_id)).ending is Ending.STOPPED

    @pytest.mark.parametrize("power", [Power.RESIZE, Power.PIN, Power.PAUSE])
    async def test_an_older_token_changes_no_limit(self, caller: EngineCaller, power: Power) -> None:
        await self._need(caller.engine, power)
        order = await caller.run("sleep 60", token=5)
        before = await caller.running(order.allocation_id)
        with pytest.raises(FencedError):
            await use_power(caller.engine, power, order.allocation_id)
        after = await caller.look(order.allocation_id)
        assert after is not None
        assert standing(after) == standing(before)

    async def _need(self, engine: Engine, power: Power) -> None:
        description = await engine.describe()
        if power not in description.powers:
            pytest.skip(f"{description.engine} without {power}: {description.missing[power]}")

    async def _with_files(self, caller: EngineCaller) -> SupportsFiles:
        await self._need(caller.engine, Power.FILES)
        assert isinstance(caller.engine, SupportsFiles)
        return caller.engine

    async def _with_exec(self, caller: EngineCaller) -> SupportsExec:
        await self._need(caller.engine, Power.EXEC)
        assert isinstance(caller.engine, SupportsExec)
        return caller.engine


async def heard(session: ForwardSession, size: int) -> bytes:
    """Return *size* bytes that come, or all of them where it is less than none."""
    data = b""
    while len(data) != size and (piece := await session.receive()):
        data += piece
    return data


async def _ask(engine: SupportsForward, allocation_id: AllocationId, port: int, within_s: float) -> bytes:
    with anyio.fail_after(within_s):
        async with engine.forward(allocation_id, port) as session:
            await session.send(b"hello\n")
            return await heard(session, 6)
