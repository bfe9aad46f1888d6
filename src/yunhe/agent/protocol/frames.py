"""Frames: how the platform and an agent talk over one pipe.

A frame is two big-endian 32-bit lengths, a JSON object (the header) and optional bytes (the payload). The header's
``id`` says which request it belongs to; any number of requests are under way at once.

From the platform                        From the agent
``{id, verb, body}``   a request         ``{id, ok}``             its whole answer
``{id, data}``         input; empty ends  ``{id, part}`` + bytes   a piece of a stream
``{id, credit}``       room for n parts   ``{id, credit}``         room for n pieces of input
``{id, cancel}``       no longer wanted   ``{id, error}``          a refusal; ends the request
``{id, window}``       terminal size      ``{error}``              the connection is closed after this

A platform begins with ``hello``, whose answer says which protocol both will speak.
"""

from __future__ import annotations

import json
import struct
from typing import Any, Iterator, NamedTuple

from yunhe.agent.protocol.refusals import INVALID, TOO_LARGE, Refusal

MAX_FRAME_BYTES = 1024 * 1024
CHUNK_BYTES = 64 * 1024
INITIAL_CREDIT = 8
"""Parts a stream may send before its reader has granted more: what bounds the memory on both sides."""

_LENGTHS = struct.Struct(">II")


class Frame(NamedTuple):
    """One message."""

    header: dict[str, Any]
    payload: bytes = b""


def encode(header: dict[str, Any], payload: bytes = b"") -> bytes:
    """Return the bytes of one frame; refuse one that is over the limit."""
    text = json.dumps(header, separators=(",", ":")).encode()
    if len(text) + len(payload) > MAX_FRAME_BYTES:
        raise Refusal(
            TOO_LARGE,
            f"A message of {len(text) + len(payload)} bytes is over the limit of {MAX_FRAME_BYTES}.",
            remedy="Shorten the scripts, or put large values into a file.",
        )
    return _LENGTHS.pack(len(text), len(payload)) + text + payload


class Decoder:
    """Turns bytes as they come into frames; refuses what is oversize or malformed."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[Frame]:
        """Add *data* and yield every frame that is now whole."""
        self._buffer += data
        while len(self._buffer) >= _LENGTHS.size:
            header_bytes, payload_bytes = _LENGTHS.unpack_from(self._buffer)
            if header_bytes + payload_bytes > MAX_FRAME_BYTES:
                raise Refusal(
                    TOO_LARGE,
                    f"A frame of {header_bytes + payload_bytes} bytes is over the limit of {MAX_FRAME_BYTES}.",
                )
            end = _LENGTHS.size + header_bytes + payload_bytes
            if len(self._buffer) < end:
                return
            text = bytes(self._buffer[_LENGTHS.size : _LENGTHS.size + header_bytes])
            payload = bytes(self._buffer[_LENGTHS.size + header_bytes : end])
            del self._buffer[:end]
            yield Frame(_parse(text), payload)


def _parse(text: bytes) -> dict[str, Any]:
    try:
        header: Any = json.loads(text)
    except (ValueError, RecursionError):
        raise Refusal(INVALID, "A frame's header is not JSON.") from None
    if not isinstance(header, dict):
        raise Refusal(INVALID, "A frame's header is not a JSON object.")
    return header
