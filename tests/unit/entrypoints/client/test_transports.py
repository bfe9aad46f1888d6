"""Both ways to reach a server agree, whatever the server does; the blocking one also knows proxies."""

import contextlib
import socket
import threading
import time
from collections.abc import Awaitable, Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest

from yunhe.entrypoints.client.blocking_transport import BlockingTransport
from yunhe.entrypoints.client.httpx_transport import HttpxTransport
from yunhe.entrypoints.client.proxies import Proxy, proxy_for
from yunhe.entrypoints.client.transport import (
    Address,
    ApiCall,
    NoConnectionError,
    Transport,
    TransportError,
    run,
)
from yunhe.kernel.errors import InvalidInputError

Speak = Callable[[socket.socket, bytes], None]
GET = ApiCall(method="GET", path="/v1/me")


class Server:
    """Speaks raw HTTP on loopback: reads the head of each request, then does what the test says."""

    def __init__(self, speak: Speak) -> None:
        self._speak = speak
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listening.getsockname()[1]}"
        self.connections = 0
        self.heads: list[bytes] = []
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        with ThreadPoolExecutor(20) as each, contextlib.suppress(OSError):  # until it is closed
            while True:
                connection, _ = self._listening.accept()
                self.connections += 1
                each.submit(self._answer_until_closed, connection)

    def _answer_until_closed(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(ConnectionError):
            self._answer(connection)

    def _answer(self, connection: socket.socket) -> None:
        pending = b""
        while True:
            while b"\r\n\r\n" not in pending:
                data = connection.recv(65536)
                if not data:
                    return
                pending += data
            head, _, pending = pending.partition(b"\r\n\r\n")
            self.heads.append(head)
            try:
                self._speak(connection, pending)
            except StopIteration:
                return
            pending = b""

    def close(self) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self._thread.join(5)


@contextmanager
def serving(speak: Speak) -> Generator[Server]:
    server = Server(speak)
    try:
        yield server
    finally:
        server.close()


def saying(*pieces: bytes, then_closes: bool = False) -> Speak:
    def speak(connection: socket.socket, _: bytes) -> None:
        for piece in pieces:
            connection.sendall(piece)
        if then_closes:
            raise StopIteration

    return speak


OK = b"HTTP/1.1 200 OK\r\nYunhe-Attempt: 3\r\nContent-Length: 2\r\n\r\n{}"


@pytest.fixture(params=[BlockingTransport, HttpxTransport])
def drive(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """Return what runs a scenario over one of the two transports."""

    def over(url: str, scenario: Callable[[Transport], Awaitable[Any]]) -> Any:
        async def whole() -> Any:
            transport = request.param(Address(url, "secret"))
            try:
                return await scenario(transport)
            finally:
                await transport.close()

        return run(whole()) if request.param is BlockingTransport else anyio.run(whole)

    return over


async def once(url: str, *, answer_s: float = 5.0) -> tuple[int, str, bytes]:
    transport = BlockingTransport(Address(url), answer_s=answer_s)
    try:
        return await read(transport)
    finally:
        await transport.close()


async def read(transport: Transport, call: ApiCall = GET) -> tuple[int, str, bytes]:
    async with transport.send(call) as answer:
        return answer.status, answer.headers.get("yunhe-attempt", ""), await answer.read()


async def chunks(transport: Transport) -> list[bytes]:
    async with transport.send(GET, stream=True) as answer:
        return [chunk async for chunk in answer.chunks()]


def test_a_call_is_sent_as_it_was_written_and_its_answer_heard(drive: Callable[..., Any]) -> None:
    call = ApiCall(method="POST", path="/v1/jobs/a%2Fb", query=(("name", "ä b&c"), ("name", "d")), body=b"")
    with serving(saying(OK)) as server:
        assert drive(f"http://{server.address}/under", partial(read, call=call)) == (200, "3", b"{}")
    line, *headers = server.heads[0].decode().split("\r\n")
    method, target, _ = line.split(" ")
    assert method == "POST"
    assert target.replace("%20", "+") == "/under/v1/jobs/a%2Fb?name=%C3%A4+b%26c&name=d"
    said = {name.lower(): value for name, _, value in (header.partition(": ") for header in headers)}
    assert said["authorization"] == "Bearer secret"
    assert said["content-type"] == "application/json"
    assert said["host"] == server.address


def test_a_body_is_sent_whole(drive: Callable[..., Any], tmp_path: Path) -> None:
    source = tmp_path / "archive"
    source.write_bytes(bytes(range(256)) * 4096)
    received = bytearray()

    def speak(connection: socket.socket, begun: bytes) -> None:
        received.extend(begun)
        while len(received) < source.stat().st_size:
            received.extend(connection.recv(65536))
        connection.sendall(OK)

    call = ApiCall(
        method="PUT", path="/x", body=source.read_bytes(), headers={"Content-Type": "application/gzip"}
    )
    with serving(speak) as server:
        assert drive(f"http://{server.address}", partial(read, call=call))[0] == 200
    assert bytes(received) == source.read_bytes()
    assert b"application/gzip" in server.heads[0]


def test_a_stream_is_heard_while_it_goes_on(drive: Callable[..., Any]) -> None:
    heard = threading.Event()

    def speak(connection: socket.socket, _: bytes) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nfirst\r\n")
        assert heard.wait(5)
        connection.sendall(b"4\r\nlast\r\n0\r\n\r\n")

    async def scenario(transport: Transport) -> list[bytes]:
        async with transport.send(GET, stream=True) as answer:
            got: list[bytes] = []
            async for chunk in answer.chunks():
                got.append(chunk)
                heard.set()
            return got

    with serving(speak) as server:
        assert drive(f"http://{server.address}", scenario) == [b"first", b"last"]


@pytest.mark.parametrize(
    "cut",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nhalf",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n",
        b"HTTP/1.1 200 OK\r\nContent-",
        b"HTTP/1.1 200 OK\r\nDate: now\r\n",
        b"",
        b"this is not HTTP\r\n\r\n",
    ],
)
@pytest.mark.parametrize("how", [read, chunks])
def test_an_answer_that_breaks_off_is_never_taken_for_a_whole_one(
    drive: Callable[..., Any], cut: bytes, how: Callable[[Transport], Awaitable[Any]]
) -> None:
    with serving(saying(cut, then_closes=True)) as server, pytest.raises(TransportError) as caught:
        drive(f"http://{server.address}", how)
    assert not isinstance(caught.value, NoConnectionError)
    assert str(caught.value)


@pytest.mark.parametrize("how", [read, chunks])
def test_a_long_answer_is_read_to_its_last_byte(
    drive: Callable[..., Any], how: Callable[[Transport], Awaitable[Any]]
) -> None:
    body = bytes(range(251)) * 5000
    head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body)
    with serving(saying(head, body[:70_000], body[70_000:])) as server:
        got = drive(f"http://{server.address}", how)
    assert (got[2] if how is read else b"".join(got)) == body


def test_a_server_that_is_not_there_has_heard_nothing(drive: Callable[..., Any]) -> None:
    with serving(saying(OK)) as server:
        pass
    with pytest.raises(NoConnectionError):
        drive(f"http://{server.address}", read)


def test_a_name_that_no_host_can_have_is_not_connected_to(
    drive: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(NoConnectionError):
        drive("http://no-such-host.invalid:1", read)


def test_a_refusal_before_the_whole_file_was_sent_is_heard(drive: Callable[..., Any], tmp_path: Path) -> None:
    source = tmp_path / "archive"
    source.write_bytes(bytes(32 * 1024 * 1024))
    refusal = b"HTTP/1.1 413 Too Large\r\nContent-Length: 3\r\nConnection: close\r\n\r\nno!"

    def speak(connection: socket.socket, _: bytes) -> None:
        connection.sendall(refusal)
        connection.shutdown(socket.SHUT_WR)
        while connection.recv(65536):  # drained slowly, so that no reset overtakes the refusal
            pass
        raise StopIteration

    with serving(speak) as server:
        told = drive(
            f"http://{server.address}",
            partial(read, call=ApiCall(method="PUT", path="/", body=source.read_bytes())),
        )
    assert told == (413, "", b"no!")


def test_a_refusal_is_heard_even_when_the_server_hangs_up_on_the_rest(tmp_path: Path) -> None:
    source = tmp_path / "archive"
    source.write_bytes(bytes(32 * 1024 * 1024))

    def speak(connection: socket.socket, _: bytes) -> None:
        connection.sendall(b"HTTP/1.1 413 Too Large\r\nContent-Length: 3\r\nConnection: close\r\n\r\nno!")
        time.sleep(0.1)
        raise StopIteration  # with most of the file unread: what is still being sent is answered by a reset

    with serving(speak) as server:
        transport = BlockingTransport(Address(f"http://{server.address}"))
        assert run(read(transport, ApiCall(method="PUT", path="/", body=source.read_bytes()))) == (
            413,
            "",
            b"no!",
        )


def test_calls_one_after_the_other_share_a_connection(drive: Callable[..., Any]) -> None:
    async def scenario(transport: Transport) -> None:
        for _ in range(3):
            await read(transport)
            await chunks(transport)

    with serving(saying(OK)) as server:
        drive(f"http://{server.address}", scenario)
    assert (server.connections, len(server.heads)) == (1, 6)


def test_a_connection_the_server_has_closed_meanwhile_is_not_used_again(drive: Callable[..., Any]) -> None:
    closed = threading.Event()

    def speak(connection: socket.socket, _: bytes) -> None:
        connection.sendall(OK)
        connection.close()
        closed.set()
        raise StopIteration

    async def scenario(transport: Transport) -> int:
        await read(transport)
        assert closed.wait(5)
        return (await read(transport))[0]

    with serving(speak) as server:
        assert drive(f"http://{server.address}", scenario) == 200
    assert server.connections == 2


def test_a_body_nobody_read_does_not_spoil_the_next_answer(drive: Callable[..., Any]) -> None:
    async def scenario(transport: Transport) -> tuple[int, str, bytes]:
        async with transport.send(GET):
            pass
        return await read(transport)

    answers = iter([b"HTTP/1.1 200 OK\r\nContent-Length: 4000000\r\n\r\n" + bytes(4_000_000), OK])

    def speak(connection: socket.socket, _: bytes) -> None:
        connection.sendall(next(answers))

    with serving(speak) as server:
        assert drive(f"http://{server.address}", scenario) == (200, "3", b"{}")


def test_two_streams_at_once_do_not_mix() -> None:
    async def scenario(transport: Transport) -> tuple[int, int]:
        async with transport.send(GET) as first, transport.send(GET) as second:
            return first.status, second.status

    with serving(saying(OK)) as server:
        transport = BlockingTransport(Address(f"http://{server.address}"))
        assert run(scenario(transport)) == (200, 200)
        run(transport.close())
    assert server.connections == 2


def test_threads_may_share_a_transport() -> None:
    with serving(saying(OK)) as server, ThreadPoolExecutor(8) as callers:
        transport = BlockingTransport(Address(f"http://{server.address}"))

        def call(_: int) -> tuple[int, str, bytes]:
            return run(read(transport))

        answers = list(callers.map(call, range(400)))
        run(transport.close())
    assert answers == [(200, "3", b"{}")] * 400
    assert len(server.heads) == 400
    assert server.connections <= 8


def test_a_silent_server_is_given_up() -> None:
    def dawdle(_: socket.socket, __: bytes) -> None:
        time.sleep(0.3)

    with (
        serving(dawdle) as server,
        pytest.raises(TransportError, match="timed out"),
    ):
        run(once(f"http://{server.address}", answer_s=0.05))


@pytest.mark.parametrize("url", ["", "host:8600", "ftp://host", "http://", "http://host:x", "http://[::1"])
def test_what_is_no_address_is_refused_before_anything_is_sent(url: str) -> None:
    with pytest.raises(InvalidInputError, match="not an address"):
        BlockingTransport(Address(url))


def test_the_key_is_not_shown() -> None:
    assert "secret" not in repr(Address("http://host", "secret"))


# -- proxies -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)

    def put(**values: str) -> None:
        for name, value in values.items():
            monkeypatch.setenv(name, value)

    return put


def test_a_plain_call_through_a_proxy_names_the_server_in_full(environment: Callable[..., None]) -> None:
    with serving(saying(OK)) as proxy:
        environment(http_proxy=f"http://me:p%40ss@{proxy.address}")
        assert run(once("http://yunhe.example:8600")) == (200, "3", b"{}")
    assert proxy.heads[0].startswith(b"GET http://yunhe.example:8600/v1/me HTTP/1.1\r\n")
    assert b"Proxy-Authorization: Basic bWU6cEBzcw==" in proxy.heads[0]


def test_a_call_over_tls_asks_the_proxy_for_a_tunnel(environment: Callable[..., None]) -> None:
    with serving(saying(b"HTTP/1.1 403 No\r\n\r\n", then_closes=True)) as proxy:
        environment(https_proxy=f"http://{proxy.address}")
        with pytest.raises(NoConnectionError, match="403"):
            run(once("https://yunhe.example"))
    assert proxy.heads[0].startswith(b"CONNECT yunhe.example:443 ")


def test_a_proxy_has_nothing_to_do_with_this_machine_or_with_who_is_excepted(
    environment: Callable[..., None],
) -> None:
    environment(http_proxy="http://proxy:3128", no_proxy="lab.example")
    assert proxy_for(Address("http://127.0.0.1:8600")) is None
    assert proxy_for(Address("http://lab.example:8600")) is None
    assert proxy_for(Address("http://yunhe.example")) == Proxy("proxy", 3128, {})
    assert proxy_for(Address("https://yunhe.example")) is None


def test_a_proxy_of_another_kind_is_refused_with_what_to_do(environment: Callable[..., None]) -> None:
    environment(all_proxy="socks5://proxy:1080")
    with pytest.raises(InvalidInputError, match="not a proxy") as caught:
        proxy_for(Address("http://yunhe.example"))
    assert "NO_PROXY" in caught.value.remedy
