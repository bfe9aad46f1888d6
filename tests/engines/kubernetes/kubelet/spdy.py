"""Just enough of SPDY/3.1 for the API server's exec: it speaks nothing newer to a kubelet."""

import struct
import zlib
from typing import NamedTuple

SYN_STREAM, SYN_REPLY, RST_STREAM, PING, GOAWAY = 1, 2, 3, 6, 7
CONTROL = 0x8000
VERSION = 3
FIN = 0x01
MAX_DATA_BYTES = 16384

_WORDS = [
    "options",
    "head",
    "post",
    "put",
    "delete",
    "trace",
    "accept",
    "accept-charset",
    "accept-encoding",
    "accept-language",
    "accept-ranges",
    "age",
    "allow",
    "authorization",
    "cache-control",
    "connection",
    "content-base",
    "content-encoding",
    "content-language",
    "content-length",
    "content-location",
    "content-md5",
    "content-range",
    "content-type",
    "date",
    "etag",
    "expect",
    "expires",
    "from",
    "host",
    "if-match",
    "if-modified-since",
    "if-none-match",
    "if-range",
    "if-unmodified-since",
    "last-modified",
    "location",
    "max-forwards",
    "pragma",
    "proxy-authenticate",
    "proxy-authorization",
    "range",
    "referer",
    "retry-after",
    "server",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "user-agent",
    "vary",
    "via",
    "warning",
    "www-authenticate",
    "method",
    "get",
    "status",
]
_MORE_WORDS = ["version", "HTTP/1.1", "url", "public", "set-cookie", "keep-alive", "origin"]
_TAIL = (
    b"100101201202205206300302303304305306307402405406407408409410411412413414415416417502504505203 Non-Authoritative "
    b"Information204 No Content301 Moved Permanently400 Bad Request401 Unauthorized403 Forbidden404 Not Found500 "
    b"Internal Server Error501 Not Implemented503 Service UnavailableJan Feb Mar Apr May Jun Jul Aug Sept Oct Nov "
    b"Dec 00:00:00 Mon, Tue, Wed, Thu, Fri, Sat, Sun, GMTchunked,text/html,image/png,image/jpg,image/gif,"
    b"application/xml,application/xhtml+xml,text/plain,text/javascript,publicprivatemax-age=gzip,deflate,"
    b"sdchcharset=utf-8charset=iso-8859-1,utf-,*,enq=0."
)
DICTIONARY = (
    b"".join(struct.pack("!I", len(word)) + word.encode() for word in [*_WORDS, "200 OK", *_MORE_WORDS])
    + _TAIL
)
"""Both sides start their header compression from these bytes, which the protocol fixes."""


class Opened(NamedTuple):
    """The other side opened a stream."""

    stream: int
    headers: dict[str, str]


class Data(NamedTuple):
    """Bytes of a stream; after the last of them it is closed from the other side."""

    stream: int
    data: bytes
    is_last: bool


class Gone(NamedTuple):
    """The other side gave up a stream (0: all of them)."""

    stream: int


Event = Opened | Data | Gone


class Connection:
    """One connection as seen by its server; bytes in and out, no sockets."""

    def __init__(self) -> None:
        self._unread = b""
        self._unpack = zlib.decompressobj(zdict=DICTIONARY)
        self._pack = zlib.compressobj(zdict=DICTIONARY)
        self._to_send = bytearray()

    def receive(self, data: bytes) -> list[Event]:
        """Take what came; return what it means."""
        self._unread += data
        events: list[Event] = []
        while len(self._unread) >= 8:
            first, second = struct.unpack_from("!II", self._unread)
            length = second & 0xFFFFFF
            if len(self._unread) < 8 + length:
                break
            body, self._unread = self._unread[8 : 8 + length], self._unread[8 + length :]
            if first >> 16 & CONTROL:
                events += self._control(first & 0xFFFF, body)
            else:
                events.append(Data(first, body, bool(second >> 24 & FIN)))
        return events

    def accept(self, stream: int) -> None:
        """Tell the other side that its stream is welcome."""
        block = self._pack.compress(struct.pack("!I", 0)) + self._pack.flush(zlib.Z_SYNC_FLUSH)
        self._send_control(SYN_REPLY, struct.pack("!I", stream) + block)

    def send(self, stream: int, data: bytes, *, is_last: bool = False) -> None:
        """Send bytes of a stream; *is_last* closes it from our side."""
        for at in range(0, len(data), MAX_DATA_BYTES):
            piece = data[at : at + MAX_DATA_BYTES]
            self._to_send += struct.pack("!II", stream, len(piece)) + piece
        if is_last:
            self._to_send += struct.pack("!II", stream, FIN << 24)

    def to_send(self) -> bytes:
        """Return the bytes that wait to be sent."""
        data, self._to_send = bytes(self._to_send), bytearray()
        return data

    def _control(self, kind: int, body: bytes) -> list[Event]:
        if kind == SYN_STREAM:
            (stream,) = struct.unpack_from("!I", body)
            return [Opened(stream, self._headers(body[10:]))]
        if kind == RST_STREAM:
            return [Gone(struct.unpack_from("!I", body)[0])]
        if kind == GOAWAY:
            return [Gone(0)]
        if kind == PING:
            self._send_control(PING, body)
        return []  # settings and windows: the API server sends and heeds none that matter here

    def _headers(self, block: bytes) -> dict[str, str]:
        plain = self._unpack.decompress(block)
        (count,) = struct.unpack_from("!I", plain)
        words: list[str] = []
        at = 4
        for _ in range(2 * count):
            (length,) = struct.unpack_from("!I", plain, at)
            words.append(plain[at + 4 : at + 4 + length].decode())
            at += 4 + length
        return dict(zip(words[::2], words[1::2], strict=True))

    def _send_control(self, kind: int, body: bytes) -> None:
        self._to_send += struct.pack("!HHI", CONTROL | VERSION, kind, len(body)) + body
