"""A server process: where it may listen, how it stops, and what a worker answers."""

import datetime as dt
import hashlib
import ipaddress
import signal
import socket
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from integration.entrypoints.api.server_process import process, wait_ready
from integration.entrypoints.api.serving import free_port
from yunhe.control.pools.model import PoolSpec
from yunhe.entrypoints.api.serve import check_address
from yunhe.entrypoints.client import Client
from yunhe.kernel.errors import InvalidInputError
from yunhe.runtime.settings import ProcessRole, Settings
from yunhe.runtime.start import first_key_path
from yunhe.trading.applications.model import Submission
from yunhe.trading.demand.model import Task


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.org"])
def test_only_loopback_is_served_without_tls(host: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError) as caught:
        check_address(Settings(home=tmp_path, host=host))
    assert "--tls-certificate" in caught.value.remedy


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost", "127.8.8.8"])
def test_loopback_is_served_without_tls(host: str, tmp_path: Path) -> None:
    check_address(Settings(home=tmp_path, host=host))


def test_a_certificate_without_its_key_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError):
        check_address(Settings(home=tmp_path, tls_certificate=tmp_path / "cert.pem"))


@contextmanager
def half_an_upload(port: int, key: str) -> Generator[Callable[[], bytes]]:
    """Send half of a request; what is yielded sends the rest and returns the answer."""
    body = b"x" * 100_000
    head = (
        f"PUT /v1/projects/default/uploads/{hashlib.sha256(body).hexdigest()} HTTP/1.1\r\nHost: x\r\n"
        f"Content-Length: {len(body)}\r\nAuthorization: Bearer {key}\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
        connection.sendall(head.encode() + body[:50_000])

        def finish() -> bytes:
            connection.sendall(body[50_000:])
            return connection.recv(65536)

        yield finish


def test_a_server_that_is_told_to_stop_ends_streams_finishes_requests_and_exits_in_time(
    tmp_path: Path,
) -> None:
    settings = Settings(home=tmp_path / "home", port=free_port())
    url = f"http://127.0.0.1:{settings.port}"
    with process(settings) as server:
        wait_ready(url)
        key = first_key_path(settings.home).read_text().strip()
        with Client(url, key) as client:
            list(client.add_pool(PoolSpec(name="lab", kind="fake")))
            job = client.submit(Submission(task=Task(run="echo hi\nsleep 600")))
        ended = threading.Event()

        def follow() -> None:
            headers = {"Authorization": f"Bearer {key}"}
            address = f"{url}/v1/jobs/{job.id}/logs?follow=true"
            with httpx.stream("GET", address, headers=headers, timeout=60, trust_env=False) as stream:
                for _ in stream.iter_bytes():
                    pass
            ended.set()  # the stream came to a proper end: a cut connection would have raised

        follower = threading.Thread(target=follow)
        follower.start()
        with half_an_upload(settings.port, key) as finish:
            time.sleep(1)
            began = time.monotonic()
            server.send_signal(signal.SIGTERM)
            time.sleep(0.5)
            assert finish().startswith(b"HTTP/1.1 200")
        assert server.wait(15) == 0
        assert time.monotonic() - began < 10
        follower.join(5)
        assert ended.is_set()


def test_a_port_that_is_taken_is_said_to_be(tmp_path: Path) -> None:
    first = Settings(home=tmp_path / "one", port=free_port())
    second = Settings(home=tmp_path / "two", port=first.port)
    with process(first):
        wait_ready(f"http://127.0.0.1:{first.port}")
        with process(second) as other:
            _, said = other.communicate(timeout=30)
            assert other.returncode != 0
            assert b"Cannot listen" in said
    assert not (tmp_path / "two" / "yunhe.db").exists()


def test_a_worker_answers_only_whether_it_is_up(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path / "home", port=free_port(), role=ProcessRole.WORKER)
    url = f"http://127.0.0.1:{settings.port}"
    with process(settings):
        wait_ready(url)
        for path, status in {"/health": 200, "/modules": 200, "/v1/jobs": 404, "/docs": 404}.items():
            assert httpx.get(url + path, trust_env=False).status_code == status, path


def make_certificate(folder: Path) -> tuple[Path, Path]:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = dt.datetime.now(dt.UTC)
    names = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    (folder / "cert.pem").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    (folder / "key.pem").write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )
    return folder / "cert.pem", folder / "key.pem"


def test_with_tls_it_is_served_over_https(tmp_path: Path) -> None:
    certificate, key = make_certificate(tmp_path)
    settings = Settings(
        home=tmp_path / "home", host="0.0.0.0", port=free_port(), tls_certificate=certificate, tls_key=key
    )
    url = f"https://127.0.0.1:{settings.port}"
    with process(settings):
        wait_ready(url, certificate)
        admin = first_key_path(settings.home).read_text().strip()
        with Client(url, admin, verify=certificate) as client:
            assert client.me().name == "admin"
        with pytest.raises(httpx.HTTPError):
            httpx.get(f"http://127.0.0.1:{settings.port}/ready", trust_env=False)
