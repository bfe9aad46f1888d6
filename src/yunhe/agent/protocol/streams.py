"""The bytes of a call, to and from what they are about: a file, pipes, a terminal, a process that answers."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import pty
import struct
import termios

from yunhe.agent.durable import write_whole
from yunhe.agent.protocol.calls import Call
from yunhe.agent.protocol.frames import CHUNK_BYTES, INITIAL_CREDIT
from yunhe.agent.protocol.handles import read_handle, write_handle
from yunhe.agent.protocol.refusals import RESTARTING, Refusal, invalid


async def receive_file(call: Call, path: str) -> None:
    """Write what the caller sends to *path*; refuse it unless it has the size and digest that were announced."""
    digest = hashlib.sha256()
    size = 0
    await call.grant(INITIAL_CREDIT)
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        while size <= call.body["size_bytes"]:
            piece = await call.receive()
            if not piece:
                break
            size += len(piece)
            digest.update(piece)
            write_whole(handle, piece)
            await call.grant(1)
    finally:
        os.close(handle)
    if size != call.body["size_bytes"]:
        raise invalid("size_bytes", f"{size} bytes came", call.body["size_bytes"])
    if digest.hexdigest() != call.body["digest"]:
        raise invalid("digest", f"what came has {digest.hexdigest()}", call.body["digest"])


async def pass_on(call: Call, handle: int) -> None:
    """Send the caller what comes from *handle* until its end."""
    while True:
        piece = await read_handle(handle, CHUNK_BYTES)
        if not piece:
            return
        await call.part({}, piece)


def raise_refusal(answer: bytes) -> None:
    """Raise what a process that handled an archive refused; no answer at all means that it died."""
    if not answer:
        raise Refusal(RESTARTING, "The process that handled the archive was killed.", remedy="Try again.")
    error = json.loads(answer).get("error")
    if error is not None:
        raise Refusal(error["code"], error["problem"], remedy=error["remedy"], fields=error["fields"])


def open_pipes() -> tuple[tuple[int, int], tuple[int, int]]:
    """Return our ends of a command's input and output, and its own."""
    input_reader, input_writer = os.pipe()
    output_reader, output_writer = os.pipe()
    return (input_writer, output_reader), (input_reader, output_writer)


def open_terminal(call: Call) -> tuple[tuple[int, int], tuple[int, int]]:
    """Return the same of a terminal that is as large as the caller's window, and stays so."""
    master, slave = pty.openpty()

    def set_size(rows: int, columns: int) -> None:
        fcntl.ioctl(master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    set_size(call.body.get("rows", 24), call.body.get("columns", 80))
    call.on_window = set_size
    return (master, master), (slave, slave)


async def feed(call: Call, handle: int, held: set[int], *, tty: bool) -> None:
    """Pass on what the caller types until they end it; on a terminal the end is a character."""
    await call.grant(INITIAL_CREDIT)
    while True:
        piece = await call.receive_patiently()
        try:
            if piece or tty:
                await write_handle(handle, piece or b"\x04")
        except BrokenPipeError:
            return
        if not piece:
            if not tty:
                held.discard(handle)
                os.close(handle)
            return
        await call.grant(1)
