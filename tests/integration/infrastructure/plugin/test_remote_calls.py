"""What a call to a plugin makes of a wrong token, a wrong certificate, another version, silence and too much at once."""

import socket
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Generator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import ClassVar

import anyio
import grpc
import grpc.aio
import msgspec
import pytest

from support.plugin_processes import FAKE_MANIFEST
from yunhe.conformance.plugin_promises import PluginUnderTest, plugin_process
from yunhe.infrastructure.contract.engine import Engine
from yunhe.infrastructure.contract.generated import engine_pb2 as pb
from yunhe.infrastructure.contract.kind import Check, Target
from yunhe.infrastructure.contract.manifest import Manifest, read_manifest
from yunhe.infrastructure.contract.model import Inventory, LogChunk
from yunhe.infrastructure.contract.wire import METHODS, PROBLEM_TRAILER
from yunhe.infrastructure.fake.engine import FakeEngine
from yunhe.infrastructure.fake.kind import FakeKind
from yunhe.infrastructure.fake.pool import FakePool
from yunhe.infrastructure.plugin.certificate import make_certificate
from yunhe.infrastructure.plugin.server import PluginServer
from yunhe.infrastructure.remote.channels import PluginAddress
from yunhe.infrastructure.remote.kind import RemoteKind
from yunhe.kernel.errors import (
    InvalidInputError,
    PoolUnreachableError,
    UnauthenticatedError,
    UnsupportedError,
    YunheError,
)
from yunhe.kernel.ids import AllocationId

pytestmark = pytest.mark.anyio
MANIFEST = read_manifest(FAKE_MANIFEST)
TARGET = Target(address="calls")


class KindOf(FakeKind):
    """Connects every target to an engine of one class."""

    def __init__(self, engine: type[FakeEngine]) -> None:
        super().__init__()
        self._engine = engine

    @asynccontextmanager
    async def connect(self, target: Target) -> AsyncGenerator[FakeEngine]:
        yield self._engine(FakePool())


@asynccontextmanager
async def connected(
    engine: type[FakeEngine], folder: Path, manifest: Manifest = MANIFEST
) -> AsyncGenerator[Engine]:
    async with (
        in_this_process(KindOf(engine), folder, manifest) as where,
        RemoteKind(manifest, lambda: where).connect(TARGET) as remote,
    ):
        yield remote


@pytest.fixture(scope="module")
def plugin() -> Generator[PluginUnderTest]:
    with plugin_process(FAKE_MANIFEST) as running:
        yield running


@asynccontextmanager
async def in_this_process(
    kind: FakeKind, folder: Path, manifest: Manifest = MANIFEST
) -> AsyncGenerator[PluginAddress]:
    server = PluginServer(manifest, kind, "token")
    async with server.running(f"unix:{folder}/plugin.sock", None) as address:
        yield PluginAddress(address, token="token")


async def refusal(where: PluginAddress, manifest: Manifest = MANIFEST) -> YunheError:
    with pytest.raises(YunheError) as refused:
        async with RemoteKind(manifest, lambda: where).connect(TARGET):
            pass
    return refused.value


async def test_a_call_with_another_token_is_refused(plugin: PluginUnderTest) -> None:
    stranger = msgspec.structs.replace(plugin.where, token="guess")
    assert isinstance(await refusal(stranger), UnauthenticatedError)


async def test_another_plugin_at_the_same_address_is_not_spoken_to(plugin: PluginUnderTest) -> None:
    _, other = make_certificate()
    impostor = msgspec.structs.replace(plugin.where, certificate=other.decode())
    assert isinstance(await refusal(impostor), PoolUnreachableError)


async def test_a_plugin_elsewhere_without_a_certificate_is_not_spoken_to() -> None:
    for address in ("192.0.2.1:7000", "plugins.example.org:7000"):
        assert isinstance(await refusal(PluginAddress(address, token="t")), InvalidInputError)
    assert isinstance(
        await refusal(PluginAddress("192.0.2.1:7000", "no certificate", "t")), InvalidInputError
    )


async def test_nobody_there_is_told_within_seconds_and_says_what_to_do() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        began_at = anyio.current_time()
        problem = await refusal(PluginAddress(f"127.0.0.1:{closed.getsockname()[1]}", token="t"))
    assert isinstance(problem, PoolUnreachableError)
    assert problem.remedy
    assert anyio.current_time() - began_at < 8


async def test_without_an_instance_it_is_unreachable_at_once() -> None:
    def nowhere() -> PluginAddress:
        raise PoolUnreachableError("No instance of fake is registered.", remedy="Start one.")

    began_at = anyio.current_time()
    with pytest.raises(PoolUnreachableError, match="No instance"):
        async with RemoteKind(MANIFEST, nowhere).connect(TARGET):
            pass
    assert anyio.current_time() - began_at < 1


async def test_a_plugin_that_does_not_answer_in_time_is_unreachable(tmp_path: Path) -> None:
    class Slow(FakeEngine):
        async def inventory(self) -> Inventory:
            await anyio.sleep(30)
            return await super().inventory()

    limits = msgspec.structs.replace(MANIFEST.limits, call_timeout_s=0.5)
    manifest = msgspec.structs.replace(MANIFEST, limits=limits)
    async with connected(Slow, tmp_path, manifest) as engine:
        began_at = anyio.current_time()
        with pytest.raises(PoolUnreachableError, match="too long"):
            await engine.inventory()
        assert anyio.current_time() - began_at < 3


class Counting(FakeEngine):
    """Counts how many calls it has at once; each test has a class of its own, which begins at none."""

    now: ClassVar[int] = 0
    most: ClassVar[int] = 0

    async def inventory(self) -> Inventory:
        kind = type(self)
        kind.now += 1
        kind.most = max(kind.most, kind.now)
        await anyio.sleep(0.02)
        kind.now -= 1
        return await super().inventory()


async def test_no_more_calls_are_in_flight_than_the_manifest_allows(tmp_path: Path) -> None:
    class Counted(Counting):
        """Of this test."""

    manifest = msgspec.structs.replace(MANIFEST, limits=msgspec.structs.replace(MANIFEST.limits, calls=3))
    async with connected(Counted, tmp_path, manifest) as engine, anyio.create_task_group() as tasks:
        for _ in range(20):
            tasks.start_soon(engine.inventory)
    assert Counted.most == 3


@asynccontextmanager
async def bounded_by_us(engine: type[FakeEngine], folder: Path, **limits: float) -> AsyncGenerator[Engine]:
    """Connect to a plugin that takes any number of calls, with a manifest that allows fewer."""
    lax = msgspec.structs.replace(MANIFEST, limits=msgspec.structs.replace(MANIFEST.limits, calls=1000))
    ours = msgspec.structs.replace(MANIFEST, limits=msgspec.structs.replace(MANIFEST.limits, **limits))
    async with (
        in_this_process(KindOf(engine), folder, lax) as where,
        RemoteKind(ours, lambda: where).connect(TARGET) as remote,
    ):
        yield remote


async def test_the_platform_itself_sends_no_more_than_the_manifest_allows(tmp_path: Path) -> None:
    class Counted(Counting):
        """Of this test."""

    async with bounded_by_us(Counted, tmp_path, calls=3) as engine, anyio.create_task_group() as tasks:
        for _ in range(20):
            tasks.start_soon(engine.inventory)
    assert Counted.most == 3


async def test_streams_are_bounded_too_but_keep_no_command_waiting_and_who_waits_takes_no_room(
    tmp_path: Path,
) -> None:
    now = most = 0
    go_on = anyio.Event()

    class Streaming(FakeEngine):
        async def logs(
            self, allocation_id: AllocationId, *, offset: int = 0, follow: bool = False
        ) -> AsyncIterator[LogChunk]:
            nonlocal now, most
            now += 1
            most = max(most, now)
            yield LogChunk(offset=0, data=b"begun")
            await go_on.wait()
            now -= 1

    async def read(engine: Engine, *, follow: bool) -> None:
        async for _ in engine.logs(AllocationId("a"), follow=follow):
            pass

    async with bounded_by_us(Streaming, tmp_path, calls=2) as engine, anyio.create_task_group() as tasks:
        for _ in range(6):
            tasks.start_soon(lambda: read(engine, follow=False))
        with anyio.fail_after(5):
            while now < 2:
                await anyio.sleep(0.01)
            await engine.inventory()
        assert most == 2
        for _ in range(4):
            tasks.start_soon(lambda: read(engine, follow=True))
        with anyio.fail_after(5):
            while now < 6:
                await anyio.sleep(0.01)
        go_on.set()
    assert now == 0


async def test_a_call_that_finds_no_room_in_time_is_told_why(tmp_path: Path) -> None:
    class Stuck(FakeEngine):
        async def inventory(self) -> Inventory:
            await anyio.sleep(30)
            return await super().inventory()

    async with bounded_by_us(Stuck, tmp_path, calls=1, call_timeout_s=0.5) as engine:
        refusals: list[str] = []

        async def ask() -> None:
            with pytest.raises(PoolUnreachableError) as refused:
                await engine.inventory()
            refusals.append(str(refused.value))

        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(ask)
    assert any("busy with 1 calls" in refusal for refusal in refusals), refusals


async def test_an_engine_that_fails_by_mistake_is_told_as_such_and_not_repeated(tmp_path: Path) -> None:
    tried = 0

    class Broken(FakeEngine):
        async def inventory(self) -> Inventory:
            nonlocal tried
            tried += 1
            raise ZeroDivisionError("by zero")

    async with connected(Broken, tmp_path) as engine:
        with pytest.raises(YunheError, match="ZeroDivisionError"):
            await engine.inventory()
    assert tried == 1


async def test_steps_of_connecting_come_one_by_one_and_the_failing_one_is_the_last(
    plugin: PluginUnderTest,
) -> None:
    target = Target(address="odd", options={"cpus": "many"})
    checks: list[Check] = [check async for check in plugin.kind().onboard(target)]
    assert [check.ok for check in checks] == [False]
    assert checks[0].remedy


@pytest.mark.parametrize(
    ("spoken", "agreed"), [([1], True), ([2, 1], True), ([2, 3], False), ([], False)], ids=str
)
async def test_a_version_is_agreed_upon_or_refused_in_a_sentence(
    tmp_path: Path, spoken: list[int], *, agreed: bool
) -> None:
    async with (
        in_this_process(FakeKind(), tmp_path) as where,
        grpc.aio.insecure_channel(where.address) as raw,
    ):
        method = METHODS["Plugin/Describe"]
        describe = raw.unary_unary(
            method.path,
            request_serializer=method.request.SerializeToString,
            response_deserializer=method.response.FromString,
        )
        call = describe(
            pb.DescribePluginRequest(contracts=spoken), metadata=(("authorization", "Bearer token"),)
        )
        if agreed:
            assert getattr(await call, "contract") == 1  # noqa: B009 - only Message to the type checker
            return
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await call
        assert refused.value.code() is grpc.StatusCode.FAILED_PRECONDITION
        assert "speaks contract 1; the caller speaks" in (refused.value.details() or "")
        assert PROBLEM_TRAILER in dict(refused.value.trailing_metadata() or ())


async def test_a_plugin_of_another_version_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules["yunhe.infrastructure.plugin.server"], "CONTRACT_VERSION", 2)
    async with in_this_process(FakeKind(), tmp_path) as where:
        problem = await refusal(where)
    assert "speaks contract 2; the caller speaks 1" in problem.problem
    assert not isinstance(problem, UnsupportedError | PoolUnreachableError)


async def test_a_plugin_bounds_its_own_memory_as_its_manifest_says(plugin: PluginUnderTest) -> None:
    limits = (await anyio.Path(f"/proc/{plugin.process.pid}/limits").read_text()).splitlines()
    soft = next(line for line in limits if line.startswith("Max data size")).split()[3]
    assert int(soft) == plugin.manifest.limits.memory_mib * 1024 * 1024
