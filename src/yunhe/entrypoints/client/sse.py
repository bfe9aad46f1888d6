"""Reading server-sent events."""

from collections.abc import AsyncGenerator, AsyncIterator
from typing import NamedTuple


class ServerEvent(NamedTuple):
    """One event of a stream."""

    name: str
    data: bytes


async def parse_events(chunks: AsyncIterator[bytes]) -> AsyncGenerator[ServerEvent, None]:
    """Yield the events in *chunks*, however the network cut them; an event cut off at the end is dropped."""
    pending = bytearray()
    async for chunk in chunks:
        pending += chunk
        while (end := pending.find(b"\n\n")) >= 0:
            event = _parse(bytes(pending[:end]))
            del pending[: end + 2]
            if event is not None:
                yield event


def _parse(block: bytes) -> ServerEvent | None:
    name, data = "message", list[bytes]()
    for line in block.split(b"\n"):
        field, _, value = line.partition(b":")
        if field == b"event":
            name = value.strip().decode()
        elif field == b"data":
            data.append(value.removeprefix(b" "))
    return ServerEvent(name, b"\n".join(data)) if data else None
