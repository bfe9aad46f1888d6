"""A command beside a running container, over the streams the API server opens: websocket or SPDY."""

import contextlib
import fcntl
import json
import os
import struct
import subprocess
import tempfile
import termios
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import anyio
import anyio.to_thread
from anyio.abc import ByteStream
from websockets.frames import Frame, Opcode
from websockets.http11 import Request
from websockets.server import ServerProtocol

from engines.kubernetes.kubelet import spdy
from engines.kubernetes.kubelet.containers import Launched, Run, launch

STDIN, STDOUT, STDERR, ERROR, RESIZE = range(5)
CLOSE = 255
"""With v5, a message on this channel names a stream that the client closes."""
STREAM_TYPES = {"stdin": STDIN, "stdout": STDOUT, "stderr": STDERR, "error": ERROR, "resize": RESIZE}
PROTOCOLS = ("v5.channel.k8s.io", "v4.channel.k8s.io")
READ_BYTES = 32768
HANG_UP_S = 2.0


class Said(NamedTuple):
    """What the client said on a channel; no data: it said its last."""

    channel: int
    data: bytes


class Channels(Protocol):
    """The client's end of an exec."""

    def said(self) -> AsyncIterator[Said]:
        """Yield what the client says until it goes."""
        ...

    async def send(self, channel: int, data: bytes) -> None:
        """Tell the client."""
        ...

    async def end(self, status: dict[str, Any]) -> None:
        """Tell the client how it ended, and close every stream."""
        ...


class WebsocketChannels:
    """One message per piece, its first byte the channel; the API server passes v4 through unread."""

    def __init__(self, stream: ByteStream) -> None:
        self._stream = stream
        self._sending = anyio.Lock()
        self._protocol = ServerProtocol(subprotocols=list(PROTOCOLS), extensions=None, max_size=None)  # pyright: ignore[reportArgumentType]

    async def open(self, head: bytes) -> None:
        """Answer the upgrade that *head* asks for."""
        self._protocol.receive_data(head)
        for request in self._protocol.events_received():
            assert isinstance(request, Request)
            self._protocol.send_response(self._protocol.accept(request))
        await self._flush()

    async def said(self) -> AsyncIterator[Said]:
        async for data in self._stream:
            self._protocol.receive_data(data)
            await self._flush()
            for frame in self._protocol.events_received():
                if isinstance(frame, Frame) and frame.opcode is Opcode.BINARY and frame.data:
                    channel, said = frame.data[0], bytes(frame.data[1:])
                    if channel == CLOSE:
                        yield Said(said[0], b"")
                    elif said:
                        yield Said(channel, said)
                elif isinstance(frame, Frame) and frame.opcode is Opcode.CLOSE:
                    return

    async def send(self, channel: int, data: bytes) -> None:
        self._protocol.send_binary(bytes([channel]) + data)
        await self._flush()

    async def end(self, status: dict[str, Any]) -> None:
        await self.send(ERROR, json.dumps(status).encode())
        await self.hang_up()

    async def hang_up(self) -> None:
        """Say goodbye."""
        self._protocol.send_close(1000)
        await self._flush()
        with anyio.move_on_after(
            HANG_UP_S
        ):  # the client says goodbye too, and it is the server that hangs up
            async for _ in self.said():
                continue

    async def _flush(self) -> None:
        async with self._sending:
            for data in self._protocol.data_to_send():
                if data:
                    await self._stream.send(data)


class SpdyChannels:
    """One stream per channel; what a client says in websocket v5 arrives so, translated by the API server."""

    def __init__(self, stream: ByteStream, expected: int) -> None:
        self._stream = stream
        self._sending = anyio.Lock()
        self._expected = expected
        self._connection = spdy.Connection()
        self._streams: dict[int, int] = {}
        self._waiting: list[Said] = []

    async def open(self) -> None:
        """Wait until the API server has opened every stream it announced."""
        while len(self._streams) < self._expected:
            self._waiting += self._take(await self._stream.receive(READ_BYTES))
            await self._flush()

    async def said(self) -> AsyncIterator[Said]:
        for said in self._waiting:
            yield said
        async for data in self._stream:
            for said in self._take(data):
                yield said
            await self._flush()

    async def send(self, channel: int, data: bytes) -> None:
        self._connection.send(self._streams[channel], data)
        await self._flush()

    async def end(self, status: dict[str, Any]) -> None:
        self._connection.send(self._streams[ERROR], json.dumps(status).encode())
        for stream in self._streams.values():
            self._connection.send(stream, b"", is_last=True)
        await self._flush()
        with anyio.move_on_after(HANG_UP_S):  # the API server hangs up once it has read all
            async for _ in self._stream:
                continue

    def _take(self, data: bytes) -> list[Said]:
        said: list[Said] = []
        for event in self._connection.receive(data):
            match event:
                case spdy.Opened(stream, headers):
                    self._connection.accept(stream)
                    self._streams[STREAM_TYPES[headers["streamtype"]]] = stream
                case spdy.Data(stream, piece, is_last):
                    channel = next(name for name, number in self._streams.items() if number == stream)
                    said += [Said(channel, piece)] * bool(piece) + [Said(channel, b"")] * is_last
                case spdy.Gone():
                    continue
        return said

    async def _flush(self) -> None:
        async with self._sending:
            if data := self._connection.to_send():
                await self._stream.send(data)


class ExecQuery(NamedTuple):
    """What to run."""

    command: list[str]
    stdin: bool
    tty: bool


async def execute(run: Run, query: ExecQuery, channels: Channels) -> None:
    """Run the command; the client going away ends it."""
    with tempfile.TemporaryDirectory(prefix="exec-") as folder:
        spec = run.describe_exec(query.command, terminal=query.tty)
        runner = _on_terminal if query.tty else _on_pipes
        status = await runner(spec, Path(folder) / "spec.json", channels)
    await channels.end(status)


async def _on_pipes(spec: dict[str, Any], file: Path, channels: Channels) -> dict[str, Any]:
    launched = await launch(spec, file, stdin=subprocess.PIPE)
    process = launched.process
    assert process.stdout is not None
    assert process.stderr is not None
    async with process, anyio.create_task_group() as listening:
        listening.start_soon(_feed, launched, channels)
        async with anyio.create_task_group() as speaking:
            speaking.start_soon(_pump, process.stdout, channels, STDOUT)
            speaking.start_soon(_pump, process.stderr, channels, STDERR)
        await process.wait()
        listening.cancel_scope.cancel()
    return _status(await process.wait(), launched.error)


async def _feed(launched: Launched, channels: Channels) -> None:
    stdin = launched.process.stdin
    assert stdin is not None
    async for channel, data in channels.said():
        if channel == STDIN and data:
            with contextlib.suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
                await stdin.send(data)
        elif channel == STDIN:
            await stdin.aclose()
    launched.process.kill()


async def _on_terminal(spec: dict[str, Any], file: Path, channels: Channels) -> dict[str, Any]:
    ours, theirs = os.openpty()
    try:
        launched = await launch(spec, file, stdin=theirs, stdio=theirs)
    finally:
        os.close(theirs)
    async with launched.process, anyio.create_task_group() as listening:
        listening.start_soon(_type, ours, launched, channels)
        while data := await anyio.to_thread.run_sync(_read_terminal, ours):
            await channels.send(STDOUT, data)
        await launched.process.wait()
        listening.cancel_scope.cancel()
    os.close(ours)
    return _status(await launched.process.wait(), launched.error)


async def _type(terminal: int, launched: Launched, channels: Channels) -> None:
    async for channel, data in channels.said():
        if channel == STDIN and data:
            os.write(terminal, data)
        elif channel == RESIZE and data:
            size = json.loads(data)
            fcntl.ioctl(
                terminal, termios.TIOCSWINSZ, struct.pack("HHHH", size["Height"], size["Width"], 0, 0)
            )
    launched.process.kill()


def _read_terminal(terminal: int) -> bytes:
    try:
        return os.read(terminal, READ_BYTES)
    except OSError:  # the last process has closed it
        return b""


async def _pump(source: AsyncIterator[bytes], channels: Channels, channel: int) -> None:
    async for data in source:
        await channels.send(channel, data)


def _status(code: int, error: str) -> dict[str, Any]:
    """Return the end of a command as version 4 of the protocol says it."""
    if error:
        return {"metadata": {}, "status": "Failure", "reason": "InternalError", "code": 500, "message": error}
    if code:
        return {
            "metadata": {},
            "status": "Failure",
            "reason": "NonZeroExitCode",
            "message": f"command terminated with non-zero exit code: exit status {code}",
            "details": {"causes": [{"reason": "ExitCode", "message": str(code)}]},
        }
    return {"metadata": {}, "status": "Success"}
