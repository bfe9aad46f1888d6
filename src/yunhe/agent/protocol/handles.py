"""Waiting for file handles inside the event loop."""

from __future__ import annotations

import asyncio
import errno
import os


async def read_handle(handle: int, size: int) -> bytes:
    """Return what can be read from a pipe or terminal, waiting for it; empty at its end."""
    os.set_blocking(handle, False)
    while True:
        try:
            return os.read(handle, size)
        except BlockingIOError:
            await _ready(handle, writing=False)
        except OSError as fault:
            if fault.errno == errno.EIO:  # a terminal whose last process has gone
                return b""
            raise


async def write_handle(handle: int, data: bytes) -> None:
    """Write all of *data* to a pipe or terminal, waiting for room."""
    os.set_blocking(handle, False)
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(handle, view) :]
        except BlockingIOError:
            await _ready(handle, writing=True)


async def read_all(handle: int) -> bytes:
    """Return everything up to the end of a pipe."""
    data = b""
    while True:
        piece = await read_handle(handle, 65536)
        if not piece:
            return data
        data += piece


async def wait_readable(handle: int) -> None:
    """Wait until there is something to read, or its end."""
    await _ready(handle, writing=False)


async def _ready(handle: int, *, writing: bool) -> None:
    loop = asyncio.get_event_loop()
    ready: asyncio.Future[None] = loop.create_future()

    def wake() -> None:
        if not ready.done():
            ready.set_result(None)

    if writing:
        loop.add_writer(handle, wake)
    else:
        loop.add_reader(handle, wake)
    try:
        await ready
    finally:
        if writing:
            loop.remove_writer(handle)
        else:
            loop.remove_reader(handle)
