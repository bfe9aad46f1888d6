"""What the sessions of engines have in common that answer a command over a stream of messages."""

from abc import ABC, abstractmethod

import anyio


class StreamSession(ABC):
    """Keeps what has come of a command until it is asked for; of several who wait, one hears for all."""

    def __init__(self) -> None:
        self.exit_code: int | None = None
        self._output: list[bytes] = []
        self._turn = anyio.Lock()
        self._heard = 0

    @abstractmethod
    async def hear(self) -> bytes | int | None:
        """Return the next message: output, the exit code, or None for any other; raise why there is none."""

    async def receive(self) -> bytes:
        """Return some of the command's output; empty once it has ended."""
        while not self._output and self.exit_code is None:
            await self.advance()
        return self._output.pop(0) if self._output else b""

    async def wait(self) -> int:
        """Return the command's exit code; output that nobody has received is let go."""
        while self.exit_code is None:
            await self.receive()
        return self.exit_code

    async def advance(self) -> None:
        """Wait until a message was heard, by this caller or by another one."""
        heard = self._heard
        async with self._turn:
            if self._heard == heard:
                said = await self.hear()
                self._heard += 1
                if isinstance(said, bytes):
                    self._output.append(said)
                elif said is not None:
                    self.exit_code = said
