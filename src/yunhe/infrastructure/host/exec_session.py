"""A command that runs beside an allocation, over frames of the agent."""

from yunhe.agent.protocol.frames import CHUNK_BYTES
from yunhe.infrastructure.contract.sessions import StreamSession
from yunhe.infrastructure.host.link import Exchange


class HostSession(StreamSession):
    """Sends no more input than the agent has room for."""

    def __init__(self, exchange: Exchange) -> None:
        super().__init__()
        self._exchange = exchange

    async def send(self, data: bytes) -> None:
        """Write to its standard input; empty closes it."""
        for start in range(0, max(1, len(data)), CHUNK_BYTES):
            while not self._exchange.has_room and self.exit_code is None:
                await self.advance()
            if self.exit_code is None:
                await self._exchange.send_input(data[start : start + CHUNK_BYTES])

    async def resize(self, rows: int, columns: int) -> None:
        """Tell its terminal the new size."""
        await self._exchange.send_window(rows, columns)

    async def hear(self) -> bytes | int | None:
        """Return what the next frame says."""
        frame = await self._exchange.next()
        if "part" in frame.header:
            return frame.payload
        return frame.header["ok"]["exit_code"] if "ok" in frame.header else None
