"""Connections to the API: how many there may be, from whom, and how long each may keep the server waiting.

They are counted from the moment they are accepted, before TLS and before a byte is read. Where there is no room, the oldest
connection that asks for nothing makes place, so that whoever sends slowly keeps nobody out. Some places beyond the limit
answer health checks alone.
"""

import asyncio
import ipaddress
import logging
import resource
import socket
from typing import Any

import h11
from prometheus_client import Counter
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from yunhe.observability.metrics import REGISTRY

HEADER_S = 10.0
"""Within so long the head of a request must be whole; also a TLS handshake."""
IDLE_S = 30
"""So long a connection is kept that has been answered and asks nothing more."""
BODY_GRACE_S = 30.0
BODY_BYTES_PER_S = 1024
"""After the grace a body must have come at this rate."""
UNREAD_S = 60.0
"""So long an answer may wait for a caller who does not read."""
RESERVED_CONNECTIONS = 32
"""Beyond the limit, for health checks alone."""
RESERVED_FILES = 256
"""Of the process's open files, for the database, pools, logs and stopping."""
MOST_FILES = 65_536
MOST_CLOSING = 64
"""So many closed connections may wait to be let go of before the next is accepted."""
BACKLOG = 1024

_CLOSED = Counter(
    "yunhe_http_connections_closed_total",
    "Connections closed by the server: for others, for being slow, or for want of room.",
    ["reason"],
    registry=REGISTRY,
)
_quiet = logging.getLogger("yunhe.http")
_quiet.setLevel(logging.ERROR)  # who sends what is no HTTP must not fill the log

Peer = tuple[Any, ...]


def raise_file_limit() -> int:
    """Raise this process's soft limit on open files as far as it may, and return it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, MOST_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        soft = wanted
    return MOST_FILES if soft == resource.RLIM_INFINITY else soft


class Connection:
    """One connection that is open."""

    def __init__(self, accepted: "AcceptedSocket", peer: Peer, at: float) -> None:
        self.accepted = accepted
        self.peer = peer
        self.address = _network(str(peer[0])) if peer else ""
        self.opened_at = at
        self.reserved = False
        self.protocol: GuardedProtocol | None = None

    @property
    def is_waiting(self) -> bool:
        """Whether nobody has asked for anything that is not answered yet."""
        return self.protocol is None or self.protocol.is_waiting

    @property
    def was_served(self) -> bool:
        """Whether it has been answered before."""
        return self.protocol is not None and self.protocol.request is not None

    def close(self) -> None:
        """Close it now, whatever it is about."""
        if self.protocol is not None:
            self.protocol.transport.abort()
        else:
            try:
                self.accepted.shutdown(socket.SHUT_RDWR)
            except OSError:  # the caller has left already
                return


class ApiConnections:
    """Every connection of a server; at most *most*, and *most_per_address* from one address."""

    def __init__(self, most: int, most_per_address: int) -> None:
        self.most = most
        self.most_per_address = most_per_address
        self.closing = 0
        self._open: dict[Peer, Connection] = {}
        self._by_address: dict[str, dict[Peer, Connection]] = {}

    def admit(self, accepted: "AcceptedSocket", peer: Peer, now: float) -> bool:
        """Count a connection that was just accepted; return whether there is room for it."""
        new = Connection(accepted, peer, now)
        mine = self._by_address.get(new.address, {})
        if len(mine) >= self.most_per_address and not self._make_place(mine):
            _CLOSED.labels("address").inc()
            return False
        if len(self._open) >= self.most and not self._make_place(self._open):
            new.reserved = True
            if len(self._open) >= self.most + RESERVED_CONNECTIONS:
                _CLOSED.labels("full").inc()
                return False
        self._open[peer] = new
        self._by_address.setdefault(new.address, {})[peer] = new
        accepted.connections, accepted.peer = self, peer
        return True

    def of(self, peer: Peer | None) -> Connection | None:
        """Return the connection from *peer*."""
        return self._open.get(peer) if peer else None

    def release(self, peer: Peer) -> None:
        """Forget a connection whose socket is closed."""
        if self._open.get(peer) is None:
            self.closing -= 1  # it had made place for another
        else:
            self._forget(self._open[peer])

    def sweep(self, now: float) -> None:
        """Close those that keep the server waiting for too long."""
        for each in list(self._open.values()):
            slow = each.opened_at + HEADER_S < now if each.protocol is None else each.protocol.is_slow(now)
            if slow:
                _CLOSED.labels("slow").inc()
                each.close()

    def _make_place(self, among: dict[Peer, Connection]) -> bool:
        """Close the oldest that waits, first of those that were never answered; return whether there was one."""
        waiting = [each for each in among.values() if each.is_waiting]
        chosen = next((each for each in waiting if not each.was_served), waiting[0] if waiting else None)
        if chosen is None:
            return False
        self._forget(chosen)
        self.closing += 1
        _CLOSED.labels("place").inc()
        chosen.close()
        return True

    def _forget(self, each: Connection) -> None:
        del self._open[each.peer]
        mine = self._by_address[each.address]
        del mine[each.peer]
        if not mine:
            del self._by_address[each.address]


class AcceptedSocket(socket.socket):
    """A connection's socket, which says when it is closed."""

    connections: ApiConnections | None = None
    peer: Peer = ()

    def close(self) -> None:
        """Close it, and let its place go to another."""
        super().close()
        counted, self.connections = self.connections, None
        if counted is not None:
            counted.release(self.peer)


class GuardedListener(socket.socket):
    """A listening socket that hands out only connections there is room for."""

    connections: ApiConnections | None = None

    def accept(self) -> tuple[socket.socket, Any]:
        """Return the next connection; those there is no room for are closed on the way."""
        while True:
            if self.connections is not None and self.connections.closing >= MOST_CLOSING:
                raise BlockingIOError  # as if nobody came: the loop lets go of the closed ones, then comes back
            plain, peer = super().accept()
            accepted = AcceptedSocket(plain.family, plain.type, plain.proto, fileno=plain.detach())
            now = asyncio.get_running_loop().time()
            if self.connections is None or self.connections.admit(accepted, peer, now):
                return accepted, peer
            accepted.close()


class _StrictConnection(h11.Connection):
    """HTTP/1.1 as h11 reads it, less requests whose end two readers would see in two places."""

    def next_event(self) -> Any:
        """Return what came next."""
        event = super().next_event()
        if isinstance(event, h11.Request):
            names = [name for name, _ in event.headers]
            if b"transfer-encoding" in names and b"content-length" in names:
                raise h11.RemoteProtocolError("a request has one length")
        return event


class GuardedProtocol(H11Protocol):
    """uvicorn's protocol, which knows how long it has been kept waiting."""

    def __init__(self, *args: Any, connections: ApiConnections, reserved_app: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.logger = _quiet
        self.conn = _StrictConnection(h11.SERVER)
        self._connections = connections
        self._reserved_app = reserved_app
        self._upgraded = False
        self._head_since: float | None = None
        self._body_since = 0.0
        self._body_bytes = 0
        self._unread_since: float | None = None

    @property
    def request(self) -> RequestResponseCycle | None:
        """The last request; None before the first, whatever the parent's types say."""
        return self.cycle

    @property
    def is_waiting(self) -> bool:
        """Whether there is no request that is not answered."""
        return not self._upgraded and (self.request is None or self.request.response_complete)

    def connection_made(self, transport: asyncio.Transport) -> None:
        """Take the connection, and note who waits."""
        super().connection_made(transport)
        self._head_since = self.loop.time()
        mine = self._connections.of(transport.get_extra_info("peername"))
        if mine is not None:
            mine.protocol = self
            if mine.reserved:
                self.app = self._reserved_app

    def data_received(self, data: bytes) -> None:
        """Take what came."""
        was_waiting = self.is_waiting
        if was_waiting and self._head_since is None:
            self._head_since = self.loop.time()
        self._body_bytes += len(data)
        super().data_received(data)
        if was_waiting and not self.is_waiting:
            self._head_since, self._body_since, self._body_bytes = None, self.loop.time(), 0

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        """Hand the connection over; from now on pings tell whether its caller is there."""
        self._upgraded = True
        super().handle_websocket_upgrade(event)

    def send_400_response(self, msg: str) -> None:
        """Say that this is no HTTP, unless an answer has begun."""
        try:
            super().send_400_response(msg)
        except h11.LocalProtocolError:
            self.transport.abort()

    def pause_writing(self) -> None:
        """Note that the caller does not read."""
        self._unread_since = self.loop.time()
        super().pause_writing()

    def resume_writing(self) -> None:
        """Note that the caller reads again."""
        self._unread_since = None
        super().resume_writing()

    def is_slow(self, now: float) -> bool:
        """Return whether the caller has kept the server waiting for too long; asked once a second."""
        if self._unread_since is not None and now - self._unread_since > UNREAD_S:
            return True
        if self._upgraded:
            return False
        if self.is_waiting:
            return self._head_since is not None and now - self._head_since > HEADER_S
        if not self.cycle.more_body:
            return False
        if self.flow.read_paused:  # it is the server that does not read
            self._body_since += 1.0
        return now - self._body_since > BODY_GRACE_S + self._body_bytes / BODY_BYTES_PER_S


def _network(address: str) -> str:
    """Return whom an address belongs to: itself, or of IPv6 the network that one site is given."""
    if ":" not in address:
        return address
    return str(ipaddress.ip_network((address.partition("%")[0], 64), strict=False))
