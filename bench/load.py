"""Load on an HTTP server from one process: as fast as it answers, or at a stated rate."""

import itertools
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")

CONNECTIONS = 8


@dataclass(frozen=True)
class Request:
    """One request, and the status it must be answered with."""

    method: str
    path: str
    body: bytes = b""
    headers: tuple[tuple[str, str], ...] = ()
    expect: int = 200

    def encode(self, key: str) -> bytes:
        """Return it as it goes over the wire."""
        lines = [f"{self.method} {self.path} HTTP/1.1", "Host: bench", f"Authorization: Bearer {key}"]
        lines += [f"{name}: {value}" for name, value in self.headers]
        lines += [f"Content-Length: {len(self.body)}", "", ""]
        return "\r\n".join(lines).encode() + self.body


Source = Callable[[int], Request]
"""Makes the request with this number."""


class Connection:
    """A connection that is kept open."""

    def __init__(self, port: int, key: str) -> None:
        self._key = key
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=60)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def send(self, request: Request) -> bytes:
        """Send *request* and return the body of its answer, which must have the expected status."""
        self._socket.sendall(request.encode(self._key))
        received = b""
        while b"\r\n\r\n" not in received:
            received += self._socket.recv(262144)
        head, _, body = received.partition(b"\r\n\r\n")
        status = int(head.split(b" ", 2)[1])
        length = next(
            int(line.split(b":")[1])
            for line in head.split(b"\r\n")
            if line.lower().startswith(b"content-length")
        )
        while len(body) < length:
            body += self._socket.recv(262144)
        if status != request.expect:
            raise RuntimeError(f"{request.method} {request.path} was answered {status}: {body[:500]!r}")
        return body

    def close(self) -> None:
        """Close it."""
        self._socket.close()


@dataclass(frozen=True)
class Latencies:
    """How long answers took, in milliseconds."""

    values_ms: list[float]

    def percentile(self, percent: float) -> float:
        """Return the latency that *percent* of the answers did not exceed."""
        ordered = sorted(self.values_ms)
        return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]


def rate(port: int, key: str, source: Source, seconds: float, connections: int = CONNECTIONS) -> float:
    """Return answers per second with every connection asking again as soon as it is answered."""
    numbers = itertools.count()
    begin = time.perf_counter()
    counts = _on_each_connection(
        port, key, connections, lambda connection: _hammer(connection, source, numbers, begin + seconds)
    )
    return sum(counts) / (time.perf_counter() - begin)


def _hammer(connection: Connection, source: Source, numbers: Iterator[int], until: float) -> int:
    count = 0
    while time.perf_counter() < until:
        connection.send(source(next(numbers)))
        count += 1
    return count


def latencies(port: int, key: str, source: Source, offered_per_s: float, seconds: float) -> Latencies:
    """Return latencies at a stated rate, counted from when each request was due, so that a stall is not hidden."""
    numbers = iter(range(int(offered_per_s * seconds)))
    taking = threading.Lock()
    begin = time.perf_counter() + 0.1

    def take() -> int | None:
        with taking:
            return next(numbers, None)

    def keep_pace(connection: Connection) -> list[float]:
        took: list[float] = []
        while (number := take()) is not None:
            due = begin + number / offered_per_s
            time.sleep(max(0.0, due - time.perf_counter()))
            connection.send(source(number))
            took.append((time.perf_counter() - due) * 1000)
        return took

    parts = _on_each_connection(port, key, 2 * CONNECTIONS, keep_pace)
    return Latencies([value for part in parts for value in part])


def _on_each_connection(port: int, key: str, connections: int, work: Callable[[Connection], T]) -> list[T]:
    done: list[T] = []
    failed: list[Exception] = []

    def run() -> None:
        connection = Connection(port, key)
        try:
            done.append(work(connection))
        except Exception as error:  # noqa: BLE001 - raised again below
            failed.append(error)
        finally:
            connection.close()

    threads = [threading.Thread(target=run) for _ in range(connections)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]
    return done
