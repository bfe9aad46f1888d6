"""What goes on beside or inside an allocation, over frames of the agent: a command, or a connection."""

from yunhe.agent.protocol.frames import CHUNK_BYTES
from yunhe.infrastructure.contract.sessions import StreamSession
from yunhe.infrastructure.host.link import Exchange


class HostStream(StreamSession):
    """Sends no more than the agent has room for, and lets it send no more than is received."""

    def __init__(self, exchange: Exchange) -> None:
        super().__init__()
        self._exchange = exchange
        exchange.paced = True
        self.over = False
        """Whether the agent has answered: nothing is taken or sent any more."""

    async def send(self, data: bytes) -> None:
        """Send to the far side; empty tells it that nothing more will come."""
        for start in range(0, max(1, len(data)), CHUNK_BYTES):
            while not self._exchange.has_room and not self.over:
                await self.advance()
            if not self.over:
                await self._exchange.send_input(data[start : start + CHUNK_BYTES])

    async def receive(self) -> bytes:
        """Return some of what came; empty once the far side has said all."""
        data = await super().receive()
        if data and not self.over:
            await self._exchange.used()
        return data


class HostSession(HostStream):
    """A command that runs beside an allocation."""

    async def resize(self, rows: int, columns: int) -> None:
        """Tell its terminal the new size."""
        await self._exchange.send_window(rows, columns)

    async def hear(self) -> bytes | int | None:
        """Return what the next frame says."""
        frame = await self._exchange.next()
        if "part" in frame.header:
            return frame.payload
        self.over = "ok" in frame.header
        return frame.header["ok"]["exit_code"] if self.over else None


class HostConnection(HostStream):
    """A connection to a port inside an allocation; its exit code stands for the end of what the program says."""

    async def hear(self) -> bytes | int | None:
        """Return what the next frame says: an empty part is the end of what the program says."""
        frame = await self._exchange.next()
        if "part" in frame.header:
            return frame.payload or 0
        self.over = "ok" in frame.header
        return 0 if self.over else None
