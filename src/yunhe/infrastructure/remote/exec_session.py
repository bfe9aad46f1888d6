"""A command beside an allocation, or a connection into it, at the far end of a conversation."""

from yunhe.infrastructure.contract.generated import engine_pb2 as pb
from yunhe.infrastructure.contract.sessions import StreamSession
from yunhe.infrastructure.contract.wire import PIECE_BYTES
from yunhe.infrastructure.remote.conversation import Conversation
from yunhe.kernel.errors import PoolUnreachableError


class RemoteSession(StreamSession):
    """Sends input in pieces that the plugin's server accepts."""

    def __init__(self, conversation: Conversation) -> None:
        super().__init__()
        self._conversation = conversation

    async def started(self) -> None:
        """Wait until the command runs; raise why it does not."""
        await self.advance()

    async def send(self, data: bytes) -> None:
        """Write to its standard input; empty closes it."""
        for start in range(0, max(1, len(data)), PIECE_BYTES):
            await self._tell(pb.ExecMessage(input=data[start : start + PIECE_BYTES]))

    async def resize(self, rows: int, columns: int) -> None:
        """Tell its terminal the new size."""
        await self._tell(pb.ExecMessage(window=pb.Window(rows=rows, columns=columns)))

    async def _tell(self, message: pb.ExecMessage) -> None:
        if self.exit_code is None:
            await self._conversation.tell(message)  # where it has just ended, receiving tells how

    async def hear(self) -> bytes | int | None:
        """Return what the next message says."""
        event = await self._conversation.hear()
        if not isinstance(event, pb.ExecEvent):
            raise PoolUnreachableError("The command's connection ended before the command did.")
        match event.WhichOneof("part"):
            case "output":
                return event.output
            case "exit_code":
                return event.exit_code
            case _:
                return None


class RemoteConnection(StreamSession):
    """A connection to a port inside an allocation; its exit code stands for the end of what the program says."""

    def __init__(self, conversation: Conversation) -> None:
        super().__init__()
        self._conversation = conversation

    async def send(self, data: bytes) -> None:
        """Send to the program; empty tells it that nothing more will come."""
        for start in range(0, max(1, len(data)), PIECE_BYTES):
            await self._conversation.tell(pb.ForwardMessage(data=data[start : start + PIECE_BYTES]))

    async def hear(self) -> bytes | int | None:
        """Return what the next message says."""
        event = await self._conversation.hear()
        if not isinstance(event, pb.ForwardEvent):
            raise PoolUnreachableError("The connection into the job was cut.")
        return None if event.WhichOneof("part") == "connected" else event.data or 0
