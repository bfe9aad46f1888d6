"""The calls of the contract, each as one call of an engine."""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeVar

import anyio
from google.protobuf.message import Message

from yunhe.infrastructure.contract.engine import (
    Engine,
    ExecSession,
    ForwardSession,
    SupportsExec,
    SupportsFiles,
    SupportsForward,
    SupportsPause,
    SupportsPin,
    SupportsResize,
)
from yunhe.infrastructure.contract.generated import engine_pb2 as pb
from yunhe.infrastructure.contract.model import ExecRequest, LaunchOrder, Power, Upload
from yunhe.infrastructure.contract.wire import PIECE_BYTES, to_message, to_struct
from yunhe.kernel.errors import UnsupportedError
from yunhe.kernel.ids import AllocationId
from yunhe.kernel.resources import Resources

P = TypeVar("P")


async def describe(engine: Engine, _: pb.DescribeEngineRequest) -> pb.Description:
    """Say what the engine is."""
    return to_message(await engine.describe(), pb.Description)


async def get_account(engine: Engine, _: pb.GetAccountRequest) -> pb.Account:
    """Say who we are to it."""
    return to_message(await engine.account(), pb.Account)


async def get_catalogue(engine: Engine, _: pb.GetCatalogueRequest) -> pb.Catalogue:
    """Say what it could give."""
    return to_message(await engine.catalogue(), pb.Catalogue)


async def get_inventory(engine: Engine, _: pb.GetInventoryRequest) -> pb.Inventory:
    """Say what it has and what is in use."""
    return to_message(await engine.inventory(), pb.Inventory)


async def launch(engine: Engine, request: pb.LaunchRequest) -> pb.Done:
    """Begin an order."""
    await engine.launch(to_struct(request.order, LaunchOrder))
    return pb.Done()


async def stop(engine: Engine, request: pb.StopRequest) -> pb.Done:
    """Begin to end an allocation."""
    await engine.stop(AllocationId(request.allocation_id), request.token, grace_s=request.grace_s)
    return pb.Done()


async def release(engine: Engine, request: pb.ReleaseRequest) -> pb.Done:
    """Forget an ended allocation."""
    await engine.release(AllocationId(request.allocation_id), request.token)
    return pb.Done()


async def observe(engine: Engine, request: pb.ObserveRequest) -> pb.Observation:
    """Tell what changed; to a caller that does not fold changes, of every allocation."""
    seen = await engine.observe(beyond=request.beyond, wait_s=request.wait_s)
    if seen.since != -1 and not request.changes:
        seen = await engine.observe()
    return to_message(seen, pb.Observation)


async def resize(engine: Engine, request: pb.ResizeRequest) -> pb.Done:
    """Change limits in place."""
    able = await _able(engine, SupportsResize, Power.RESIZE)
    resources = to_struct(request.resources, Resources)
    await able.resize(AllocationId(request.allocation_id), request.token, resources)
    return pb.Done()


async def pin(engine: Engine, request: pb.PinRequest) -> pb.Done:
    """Bind to cores."""
    able = await _able(engine, SupportsPin, Power.PIN)
    await able.pin(AllocationId(request.allocation_id), request.token, tuple(request.cores))
    return pb.Done()


async def pause(engine: Engine, request: pb.PauseRequest) -> pb.Done:
    """Freeze."""
    able = await _able(engine, SupportsPause, Power.PAUSE)
    await able.pause(AllocationId(request.allocation_id), request.token)
    return pb.Done()


async def resume(engine: Engine, request: pb.ResumeRequest) -> pb.Done:
    """Let go on."""
    able = await _able(engine, SupportsPause, Power.PAUSE)
    await able.resume(AllocationId(request.allocation_id), request.token)
    return pb.Done()


async def read_logs(engine: Engine, request: pb.ReadLogsRequest) -> AsyncIterator[pb.LogChunk]:
    """Yield output."""
    allocation_id = AllocationId(request.allocation_id)
    async for chunk in engine.logs(allocation_id, offset=request.offset, follow=request.follow):
        marks = [pb.LogMark(offset=mark.offset, at_ms=mark.at_ms, stream=mark.stream) for mark in chunk.marks]
        yield pb.LogChunk(offset=chunk.offset, data=chunk.data, marks=marks)


async def read_usage(engine: Engine, request: pb.ReadUsageRequest) -> AsyncIterator[pb.UsageMinute]:
    """Yield minutes of use."""
    async for minute in engine.usage(beyond=request.beyond):
        yield to_message(minute, pb.UsageMinute)


async def get_archive(engine: Engine, request: pb.GetArchiveRequest) -> AsyncIterator[pb.ArchivePiece]:
    """Yield an archive."""
    able = await _able(engine, SupportsFiles, Power.FILES)
    async for data in able.get_archive(AllocationId(request.allocation_id), tuple(request.paths)):
        for start in range(0, len(data), PIECE_BYTES):
            yield pb.ArchivePiece(data=data[start : start + PIECE_BYTES])


async def put_archive(engine: Engine, first: pb.PutArchiveRequest, context: Any) -> None:
    """Take an archive; the caller is asked for its pieces only when the engine wants the first."""
    able = await _able(engine, SupportsFiles, Power.FILES)

    async def pieces() -> AsyncIterator[bytes]:
        await context.write(pb.PutArchiveResponse())
        while isinstance(message := await context.read(), pb.PutArchiveRequest):
            yield message.piece

    await able.put_archive(to_struct(first.announcement.upload, Upload), pieces())


async def run_beside(engine: Engine, first: pb.ExecMessage, context: Any) -> None:
    """Run a command beside an allocation."""
    able = await _able(engine, SupportsExec, Power.EXEC)
    request = to_struct(first.start.request, ExecRequest)
    async with able.exec(AllocationId(first.start.allocation_id), request) as session:
        await context.write(pb.ExecEvent(started=pb.ExecStarted()))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_pass_on, session, context)
            while output := await session.receive():
                await context.write(pb.ExecEvent(output=output))
            await context.write(pb.ExecEvent(exit_code=await session.wait()))
            tasks.cancel_scope.cancel()


async def _pass_on(session: ExecSession, context: Any) -> None:
    while isinstance(message := await context.read(), pb.ExecMessage):
        if message.WhichOneof("part") == "window":
            await session.resize(message.window.rows, message.window.columns)
        else:
            await session.send(message.input)


async def connect_inside(engine: Engine, first: pb.ForwardMessage, context: Any) -> None:
    """Connect to a port inside an allocation."""
    able = await _able(engine, SupportsForward, Power.FORWARD)
    async with able.forward(AllocationId(first.start.allocation_id), first.start.port) as session:
        await context.write(pb.ForwardEvent(connected=pb.ForwardConnected()))
        heard_all = anyio.Event()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_pass_in, session, context, heard_all)
            while data := await session.receive():
                for start in range(0, len(data), PIECE_BYTES):
                    await context.write(pb.ForwardEvent(data=data[start : start + PIECE_BYTES]))
            await context.write(pb.ForwardEvent(data=b""))
            await heard_all.wait()
            tasks.cancel_scope.cancel()


async def _pass_in(session: ForwardSession, context: Any, heard_all: anyio.Event) -> None:
    while isinstance(message := await context.read(), pb.ForwardMessage):
        await session.send(message.data)
        if not message.data:
            break
    heard_all.set()


async def _able(engine: Engine, protocol: type[P], power: Power) -> P:
    if isinstance(engine, protocol):
        return engine
    description = await engine.describe()
    reason = description.missing.get(power, "it does not say why.")
    raise UnsupportedError(f"{description.engine} does not have the power to {power}: {reason}")


ANSWERS: dict[str, Callable[[Engine, Any], Awaitable[Message]]] = {
    "DataSource/Describe": describe,
    "DataSource/GetCatalogue": get_catalogue,
    "DataSource/GetInventory": get_inventory,
    "Accounts/GetAccount": get_account,
    "Resources/Launch": launch,
    "Resources/Stop": stop,
    "Resources/Release": release,
    "Resources/Observe": observe,
    "Resources/Resize": resize,
    "Resources/Pin": pin,
    "Resources/Pause": pause,
    "Resources/Resume": resume,
}
STREAMS: dict[str, Callable[[Engine, Any], AsyncIterator[Message]]] = {
    "Resources/ReadLogs": read_logs,
    "Resources/ReadUsage": read_usage,
    "Resources/GetArchive": get_archive,
}
CONVERSATIONS: dict[str, Callable[[Engine, Any, Any], Awaitable[None]]] = {
    "Resources/PutArchive": put_archive,
    "Resources/Exec": run_beside,
    "Resources/Forward": connect_inside,
}
