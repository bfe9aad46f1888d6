"""A transport that answers from a script, so that drops and refusals come exactly when a test wants them."""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

import msgspec

from yunhe.entrypoints.client.transport import Answer, ApiCall, TransportError


class ScriptedAnswer:
    def __init__(
        self,
        body: bytes | list[bytes] = b"",
        *,
        status: int = 200,
        headers: dict[str, str] | None = None,
        breaks: bool = False,
    ) -> None:
        self.status = status
        self.headers = headers or {}
        self._chunks = body if isinstance(body, list) else [body]
        self._breaks = breaks

    async def read(self) -> bytes:
        return b"".join([chunk async for chunk in self.chunks()])

    async def chunks(self) -> AsyncGenerator[bytes, None]:
        for chunk in self._chunks:
            yield chunk
        if self._breaks:
            raise TransportError("cut")


def problem(code: str, status: int, **more: object) -> ScriptedAnswer:
    body = {"code": code, "detail": "It went wrong.", "remedy": "Mend it.", "status": status, **more}
    return ScriptedAnswer(msgspec.json.encode(body), status=status)


Script = Callable[[ApiCall], ScriptedAnswer]


class ScriptedTransport:
    """Answers each call with the next of the script; an exception in it is raised instead."""

    def __init__(self, *script: ScriptedAnswer | Exception | Script) -> None:
        self._script = list(script)
        self.calls: list[ApiCall] = []
        self.slept_s: list[float] = []

    @asynccontextmanager
    async def send(self, call: ApiCall, *, stream: bool = False) -> AsyncGenerator[Answer, None]:
        self.calls.append(call)
        answer = self._script.pop(0) if len(self._script) > 1 else self._script[0]
        if isinstance(answer, Exception):
            raise answer
        yield answer if isinstance(answer, ScriptedAnswer) else answer(call)

    async def sleep(self, seconds: float) -> None:
        self.slept_s.append(seconds)

    async def close(self) -> None:
        return
