"""A command that runs beside an allocation, at the far end of a conversation."""

import anyio

from yunhe.infrastructure.contract.generated import engine_pb2 as pb
from yunhe.infrastructure.contract.wire import PIECE_BYTES
from yunhe.infrastructure.remote.conversation import Conversation
from yunhe.kernel.errors import PoolUnreachableError


class RemoteSession:
    """Keeps what has come of the command's output until it is asked for."""

    def __init__(self, conversation: Conversation) -> None:
        self._conversation = conversation
        self._output: list[bytes] = []
        self._exit_code: int | None = None
        self._turn = anyio.Lock()
        self._taken = 0

    async def started(self) -> None:
        """Wait until the command runs; raise why it does not."""
        await self._advance()

    async def send(self, data: bytes) -> None:
        """Write to its standard input; empty closes it."""
        for start in range(0, max(1, len(data)), PIECE_BYTES):
            await self._tell(pb.ExecMessage(input=data[start : start + PIECE_BYTES]))

    async def resize(self, rows: int, columns: int) -> None:
        """Tell its terminal the new size."""
        await self._tell(pb.ExecMessage(window=pb.Window(rows=rows, columns=columns)))

    async def receive(self) -> bytes:
        """Return some of its output; empty once it has ended."""
        while not self._output and self._exit_code is None:
            await self._advance()
        return self._output.pop(0) if self._output else b""

    async def wait(self) -> int:
        """Return its exit code; output that nobody has received is let go."""
        while self._exit_code is None:
            await self.receive()
        return self._exit_code

    async def _tell(self, message: pb.ExecMessage) -> None:
        if self._exit_code is None:
            await self._conversation.tell(message)  # where it has just ended, receiving tells how

    async def _advance(self) -> None:
        """Take the next message; several who wait take turns, so that none waits for what another took."""
        taken = self._taken
        async with self._turn:
            if self._taken == taken:
                self._keep(await self._conversation.hear())
                self._taken += 1

    def _keep(self, event: object) -> None:
        if not isinstance(event, pb.ExecEvent):
            raise PoolUnreachableError("The command's connection ended before the command did.")
        match event.WhichOneof("part"):
            case "output":
                self._output.append(event.output)
            case "exit_code":
                self._exit_code = event.exit_code
            case _:
                pass
