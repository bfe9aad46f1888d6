"""Nobody stops the API: slow senders, floods of denied requests and too many connections leave it to the others."""

import socket
import threading
import time
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
import pytest

from integration.entrypoints.api.serving import Served, add_fake_pool, serving
from yunhe.entrypoints.api import connections
from yunhe.entrypoints.client import Client
from yunhe.kernel.errors import TooManyRequestsError
from yunhe.runtime.limits import ServerLimits
from yunhe.trading.accounts.model import Role
from yunhe.trading.applications.model import Submission
from yunhe.trading.demand.model import ResourceSpec, Task

HALF = b"POST /v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Le"
WAITS = Submission(task=Task(run="true", resources=ResourceSpec(cpus=64)))


@contextmanager
def sockets(served: Served, count: int, data: bytes) -> Generator[list[socket.socket]]:
    with served.client() as client:
        client.ready()
    with ExitStack() as stack:
        opened: list[socket.socket] = []
        for _ in range(count):
            one = stack.enter_context(socket.create_connection(("127.0.0.1", served.settings.port), 10))
            one.sendall(data)
            opened.append(one)
        yield opened


def until(condition: Callable[[], bool], within_s: float = 15.0) -> None:
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def is_closed(one: socket.socket) -> bool:
    one.settimeout(0.01)
    try:
        return one.recv(65536) == b""
    except TimeoutError:
        return False
    except ConnectionResetError:
        return True


def asked_once(served: Served, path: str = "/v1/me") -> httpx.Response:
    with httpx.Client(headers={"Authorization": f"Bearer {served.key}"}, timeout=10) as client:
        return client.get(served.url + path)


def test_half_sent_headers_make_place_for_whoever_comes(tmp_path: Path) -> None:
    limits = ServerLimits(connections=200, connections_per_address=64)
    with serving(tmp_path, limits=limits) as served, sockets(served, 300, HALF) as slow:
        began = time.monotonic()
        assert asked_once(served).status_code == 200
        assert asked_once(served, "/health").status_code == 200
        assert time.monotonic() - began < 5
        until(lambda: sum(map(is_closed, slow)) >= 200)


def test_who_does_not_finish_a_header_or_a_body_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "HEADER_S", 0.5)
    monkeypatch.setattr(connections, "BODY_GRACE_S", 0.5)
    with serving(tmp_path) as served, sockets(served, 1, HALF):
        body = f"PUT /v1/projects/default/uploads/{'0' * 64} HTTP/1.1\r\nHost: x\r\n"
        body += f"Authorization: Bearer {served.key}\r\nContent-Length: 1000\r\n\r\nx"
        silent, half, trickle = (
            socket.create_connection(("127.0.0.1", served.settings.port)) for _ in range(3)
        )
        with silent, half, trickle:
            half.sendall(HALF)
            trickle.sendall(body.encode())
            for one in (silent, half, trickle):
                until(lambda one=one: is_closed(one), 10)
            with served.client() as client:  # whoever sends whole requests is not
                for _ in range(3):
                    client.me()
                    time.sleep(0.6)


def test_two_lengths_in_one_request_are_refused(tmp_path: Path) -> None:
    request = b"POST /v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
    with serving(tmp_path) as served, sockets(served, 1, request) as (one,):
        one.settimeout(10)
        assert one.recv(4096).startswith(b"HTTP/1.1 400 ")
        until(lambda: is_closed(one))


def test_health_is_answered_when_every_place_is_taken_and_places_come_back(tmp_path: Path) -> None:
    limits = ServerLimits(connections=8, connections_per_address=1000)
    with serving(tmp_path, limits=limits) as served:
        with served.client() as client:
            add_fake_pool(client)
            job = client.submit(WAITS)
        watch = (
            f"GET /v1/jobs/{job.id}/events HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {served.key}\r\n\r\n"
        )
        with ExitStack() as watching:
            for _ in range(8):
                (one,) = watching.enter_context(sockets(served, 1, watch.encode()))
                one.settimeout(10)
                assert b"200 OK" in one.recv(65536)
            assert asked_once(served, "/health").status_code == 200
            refused = asked_once(served)
            assert refused.status_code == 503
            assert refused.headers["Retry-After"] == "2"
        until(lambda: asked_once(served).status_code == 200)


def test_who_asks_too_often_is_told_when_to_come_again_and_the_client_does(tmp_path: Path) -> None:
    with serving(tmp_path, limits=ServerLimits(requests_per_s=4)) as served, sockets(served, 1, HALF):
        with ThreadPoolExecutor(20) as threads:
            answers = list(threads.map(asked_once, [served] * 40))
        refused = [answer for answer in answers if answer.status_code == 429]
        assert refused
        assert refused[0].json()["code"] == "rate-limited"
        assert int(refused[0].headers["Retry-After"]) >= 1
        with served.client() as client:
            assert [client.me().name for _ in range(12)] == ["admin"] * 12
        answer = httpx.get(served.url + "/v1/me", headers={"Authorization": f"Bearer {served.key}"})
        assert answer.status_code in (200, 429)


def test_a_flood_of_wrong_keys_is_refused_before_it_is_looked_up(tmp_path: Path) -> None:
    with serving(tmp_path) as served, sockets(served, 1, HALF):
        assert asked_once(served).status_code == 200
        with httpx.Client(timeout=10) as client:
            codes = [
                client.get(
                    f"{served.url}/v1/me", headers={"Authorization": f"Bearer yk_{number}"}
                ).status_code
                for number in range(300)
            ]
        assert set(codes) == {401, 429}
        assert asked_once(served).status_code == 200, "a key that is known is no stranger"


def test_another_tenant_submits_within_a_second_under_slow_senders_and_denied_requests(
    tmp_path: Path,
) -> None:
    with serving(tmp_path) as served, served.client() as admin:
        add_fake_pool(admin)
        admin.create_project("red")
        admin.set_member("red", "eve", Role.VIEWER)
        eve = admin.create_key("eves", user="eve").text
        stop = threading.Event()

        def flood(key: str) -> None:
            with httpx.Client(timeout=30, headers={"Authorization": f"Bearer {key}"}) as client:
                while not stop.is_set():
                    body = {"task": {"run": "true"}, "project_id": "default"}
                    assert client.post(f"{served.url}/v1/jobs", json=body).status_code in (401, 403, 429)

        threads = [threading.Thread(target=flood, args=(key,)) for key in (eve, eve, "yk_no", "yk_none")]
        took: list[float] = []
        with sockets(served, 200, HALF):
            for thread in threads:
                thread.start()
            try:
                deadline = time.monotonic() + 6
                while time.monotonic() < deadline and len(took) < 300:
                    began = time.monotonic()
                    admin.submit(WAITS)
                    took.append(time.monotonic() - began)
            finally:
                stop.set()
                for thread in threads:
                    thread.join()
        assert len(took) > 20
        assert sorted(took)[int(len(took) * 0.99)] < 1.0, took


def test_the_client_gives_up_where_it_would_wait_too_long(tmp_path: Path) -> None:
    with serving(tmp_path, limits=ServerLimits(requests_per_s=1)) as served:
        with served.client() as patient:
            patient.ready()
        with httpx.Client(headers={"Authorization": f"Bearer {served.key}"}) as client:
            while client.get(f"{served.url}/v1/me").status_code != 429:
                pass
        with Client(served.url, served.key, patience_s=0) as impatient, pytest.raises(TooManyRequestsError):
            for _ in range(50):
                impatient.me()
