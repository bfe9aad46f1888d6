"""The contract over gRPC: every verb names its target, so that any instance of the plugin can answer."""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager

from yunhe.infrastructure.contract.engine import ExecSession, ForwardSession
from yunhe.infrastructure.contract.generated import engine_pb2 as pb
from yunhe.infrastructure.contract.model import (
    Account,
    Catalogue,
    Description,
    ExecRequest,
    Inventory,
    LaunchOrder,
    LogChunk,
    LogMark,
    Observation,
    Upload,
    UsageMinute,
)
from yunhe.infrastructure.contract.wire import PIECE_BYTES, to_message, to_struct
from yunhe.infrastructure.remote.calls import Calls
from yunhe.infrastructure.remote.exec_session import RemoteConnection, RemoteSession
from yunhe.kernel.errors import PoolUnreachableError
from yunhe.kernel.ids import AllocationId
from yunhe.kernel.resources import Resources

READ_WITHIN_S = 3600.0
"""A stream that lasts longer is begun again where it was."""
TRANSFER_WITHIN_S = 3600.0
EXEC_WITHIN_S = 12 * 3600.0


class RemoteEngine:
    """An engine behind a plugin; it holds nothing but the way there, so closing it is leaving it alone."""

    def __init__(self, calls: Calls, target: pb.Target) -> None:
        self._calls = calls
        self._target = target

    # The contract

    async def describe(self) -> Description:
        """Return what this engine is and can do."""
        request = pb.DescribeEngineRequest(target=self._target)
        return to_struct(await self._calls.ask("DataSource/Describe", request, pb.Description), Description)

    async def account(self) -> Account:
        """Return who we are to the engine."""
        request = pb.GetAccountRequest(target=self._target)
        return to_struct(await self._calls.ask("Accounts/GetAccount", request, pb.Account), Account)

    async def catalogue(self) -> Catalogue:
        """Return the regions and sizes the engine has or can make."""
        request = pb.GetCatalogueRequest(target=self._target)
        return to_struct(await self._calls.ask("DataSource/GetCatalogue", request, pb.Catalogue), Catalogue)

    async def inventory(self) -> Inventory:
        """Return every node with what it has and what is in use now."""
        request = pb.GetInventoryRequest(target=self._target)
        return to_struct(await self._calls.ask("DataSource/GetInventory", request, pb.Inventory), Inventory)

    async def launch(self, order: LaunchOrder) -> None:
        """Begin *order*."""
        request = pb.LaunchRequest(target=self._target, order=to_message(order, pb.LaunchOrder))
        await self._calls.ask("Resources/Launch", request, pb.Done)

    async def stop(self, allocation_id: AllocationId, token: int, *, grace_s: float = 10.0) -> None:
        """Begin to end an allocation."""
        request = pb.StopRequest(
            target=self._target, allocation_id=allocation_id, token=token, grace_s=grace_s
        )
        await self._calls.ask("Resources/Stop", request, pb.Done)

    async def release(self, allocation_id: AllocationId, token: int) -> None:
        """Forget an ended allocation."""
        request = pb.ReleaseRequest(target=self._target, allocation_id=allocation_id, token=token)
        await self._calls.ask("Resources/Release", request, pb.Done)

    async def observe(self, *, beyond: int = -1, wait_s: float = 0.0) -> Observation:
        """Return what changed after *beyond*, or everything, waiting for news if asked to."""
        request = pb.ObserveRequest(target=self._target, beyond=beyond, wait_s=wait_s, changes=True)
        answer = await self._calls.ask("Resources/Observe", request, pb.Observation, wait_s=wait_s)
        return to_struct(answer, Observation)

    async def logs(
        self, allocation_id: AllocationId, *, offset: int = 0, follow: bool = False
    ) -> AsyncIterator[LogChunk]:
        """Yield output from byte *offset*; a stream that is cut goes on from the next byte."""

        def request() -> pb.ReadLogsRequest:
            return pb.ReadLogsRequest(
                target=self._target, allocation_id=allocation_id, offset=offset, follow=follow
            )

        async for chunk in self._calls.read(
            "Resources/ReadLogs", request, pb.LogChunk, within_s=READ_WITHIN_S, waits=follow
        ):
            offset = chunk.offset + len(chunk.data)
            marks = tuple(LogMark(mark.offset, mark.at_ms, mark.stream) for mark in chunk.marks)
            yield LogChunk(offset=chunk.offset, data=chunk.data, marks=marks)

    async def usage(self, *, beyond: int = -1) -> AsyncIterator[UsageMinute]:
        """Yield every minute after *beyond*; a stream that is cut goes on after the last."""

        def request() -> pb.ReadUsageRequest:
            return pb.ReadUsageRequest(target=self._target, beyond=beyond)

        async for minute in self._calls.read(
            "Resources/ReadUsage", request, pb.UsageMinute, within_s=READ_WITHIN_S
        ):
            beyond = minute.seq
            yield to_struct(minute, UsageMinute)

    async def close(self) -> None:
        """Let go of the connection; allocations go on."""

    # Powers

    async def resize(self, allocation_id: AllocationId, token: int, resources: Resources) -> None:
        """Change the limits of a running allocation in place."""
        request = pb.ResizeRequest(
            target=self._target,
            allocation_id=allocation_id,
            token=token,
            resources=to_message(resources, pb.ResourceVector),
        )
        await self._calls.ask("Resources/Resize", request, pb.Done)

    async def pin(self, allocation_id: AllocationId, token: int, cores: tuple[int, ...]) -> None:
        """Bind a running allocation to *cores*."""
        request = pb.PinRequest(target=self._target, allocation_id=allocation_id, token=token, cores=cores)
        await self._calls.ask("Resources/Pin", request, pb.Done)

    async def pause(self, allocation_id: AllocationId, token: int) -> None:
        """Freeze every process of the allocation."""
        request = pb.PauseRequest(target=self._target, allocation_id=allocation_id, token=token)
        await self._calls.ask("Resources/Pause", request, pb.Done)

    async def resume(self, allocation_id: AllocationId, token: int) -> None:
        """Let a paused allocation go on."""
        request = pb.ResumeRequest(target=self._target, allocation_id=allocation_id, token=token)
        await self._calls.ask("Resources/Resume", request, pb.Done)

    async def put_archive(self, upload: Upload, chunks: AsyncIterator[bytes]) -> None:
        """Send an archive to be unpacked, unless the engine has it already."""
        announcement = pb.Announcement(target=self._target, upload=to_message(upload, pb.Upload))
        first = pb.PutArchiveRequest(announcement=announcement)
        async with self._calls.converse(
            "Resources/PutArchive", first, within_s=TRANSFER_WITHIN_S
        ) as conversation:
            if not isinstance(await conversation.hear(), pb.PutArchiveResponse):
                return
            async for chunk in chunks:
                for start in range(0, len(chunk), PIECE_BYTES):
                    piece = pb.PutArchiveRequest(piece=chunk[start : start + PIECE_BYTES])
                    if not await conversation.tell(piece):
                        await conversation.hear()
                        return
            conversation.fall_silent()
            await conversation.hear()

    async def get_archive(self, allocation_id: AllocationId, paths: tuple[str, ...]) -> AsyncIterator[bytes]:
        """Yield a gzip-compressed tar of what matches *paths*; one that is cut raises, it cannot be resumed."""
        begun = False

        def request() -> pb.GetArchiveRequest:
            if begun:
                raise PoolUnreachableError(
                    "The plugin was cut off amid an archive.", remedy="Fetch it again."
                )
            return pb.GetArchiveRequest(target=self._target, allocation_id=allocation_id, paths=paths)

        async for piece in self._calls.read(
            "Resources/GetArchive", request, pb.ArchivePiece, within_s=TRANSFER_WITHIN_S
        ):
            begun = True
            yield piece.data

    @asynccontextmanager
    async def exec(
        self, allocation_id: AllocationId, request: ExecRequest
    ) -> AsyncGenerator[ExecSession, None]:
        """Run a command beside a running allocation; leaving the block ends it."""
        start = pb.ExecStart(
            target=self._target, allocation_id=allocation_id, request=to_message(request, pb.ExecRequest)
        )
        first = pb.ExecMessage(start=start)
        async with self._calls.converse(
            "Resources/Exec", first, within_s=EXEC_WITHIN_S, waits=True
        ) as conversation:
            session = RemoteSession(conversation)
            await session.started()
            yield session

    @asynccontextmanager
    async def forward(self, allocation_id: AllocationId, port: int) -> AsyncGenerator[ForwardSession, None]:
        """Connect to a port inside a running allocation; leaving the block hangs up."""
        start = pb.ForwardStart(target=self._target, allocation_id=allocation_id, port=port)
        first = pb.ForwardMessage(start=start)
        async with self._calls.converse(
            "Resources/Forward", first, within_s=EXEC_WITHIN_S, waits=True
        ) as conversation:
            connection = RemoteConnection(conversation)
            await connection.advance()
            yield connection
