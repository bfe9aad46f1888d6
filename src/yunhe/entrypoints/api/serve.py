"""One server process: start the sub-modules, listen, and on SIGTERM finish what was begun, then stop in reverse."""

import asyncio
import ipaddress
import logging
import resource
import signal
import socket
from collections.abc import Awaitable, Callable, Generator
from contextlib import AbstractAsyncContextManager, contextmanager
from functools import partial
from typing import Any

import anyio
import msgspec
import uvicorn
from litestar import Litestar
from litestar.types import Receive, Scope, Send

from yunhe import __version__
from yunhe.entrypoints.api.app import create_app
from yunhe.entrypoints.api.awaiting import create_waiting_app
from yunhe.entrypoints.api.connections import (
    BACKLOG,
    IDLE_S,
    RESERVED_FILES,
    ApiConnections,
    GuardedListener,
    GuardedProtocol,
    raise_file_limit,
)
from yunhe.entrypoints.api.problems import PROBLEM_JSON, problem_of
from yunhe.entrypoints.api.request_ids import QUIET_ROUTES
from yunhe.kernel.errors import ConflictError, InvalidInputError, TooManyRequestsError, YunheError
from yunhe.kernel.units import MIB
from yunhe.observability.logs import logging_to
from yunhe.observability.redaction import keep_out_password_of
from yunhe.runtime.platform import Platform
from yunhe.runtime.settings import Settings, log_path
from yunhe.runtime.start import running, waiting_for_database

DRAIN_S = 6
"""How long requests in flight may take to finish after SIGTERM; the sub-modules stop within the rest of ten seconds."""

WEBSOCKET_MESSAGE_BYTES = MIB

log = logging.getLogger(__name__)

Start = Callable[[Settings], AbstractAsyncContextManager[Platform]]


def serve(settings: Settings, *, start: Start = running) -> None:
    """Serve until SIGTERM or SIGINT what *start* runs: by default every sub-module of the process's role."""
    keep_out_password_of(settings.database_url)
    with logging_to(
        log_path(settings.home),
        level=settings.log_level,
        stderr=settings.log_stderr,
        file_bytes=settings.log_file_bytes,
    ):
        try:
            raise_file_limit()
            check_address(settings)
            anyio.run(_serve, settings, start)
        except YunheError as error:
            log.error("server ends", extra={"problem": error.problem})  # noqa: TRY400 - expected: no traceback
            raise
        except Exception:
            log.exception("server failed")
            raise


def check_address(settings: Settings) -> None:
    """Refuse to send keys in the clear: only loopback may be served without TLS."""
    if (settings.tls_certificate is None) != (settings.tls_key is None):
        raise InvalidInputError(
            "A TLS certificate and its key come together.",
            remedy="Give both --tls-certificate and --tls-key, or neither.",
        )
    if settings.tls_certificate is None and not _is_loopback(settings.host):
        raise InvalidInputError(
            f"{settings.host} can be reached from elsewhere, and keys would cross the network in the clear.",
            remedy="Give --tls-certificate and --tls-key, or listen on 127.0.0.1.",
        )


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


async def _serve(settings: Settings, start: Start) -> None:
    listening = listen(settings)
    if not await _database_came(settings, listening):
        return
    async with start(settings) as platform:
        server = ApiServer(create_app(platform), settings)
        log.info(
            "server started",
            extra={
                "version": __version__,
                "role": settings.role,
                "host": settings.host,
                "port": settings.port,
            },
        )
        async with anyio.create_task_group() as group:
            group.start_soon(stop_on_signal, server)
            await server.serve(sockets=[listening])
            group.cancel_scope.cancel()
        log.info("server stops")


async def _database_came(settings: Settings, listening: socket.socket) -> bool:
    """Wait for the database, and say so to whoever asks; return whether it came before a signal ended the wait."""
    came = anyio.Event()
    async with waiting_for_database(settings, came) as waits:
        if not waits:
            return True
        log.warning("server waits for its database")
        server = ApiServer(create_waiting_app(), settings)
        async with anyio.create_task_group() as group:
            group.start_soon(stop_on_signal, server)
            group.start_soon(_stop_when, came, server)
            with listening.dup() as shared:  # what comes between the two servers waits in its queue
                await server.serve(sockets=[shared])
            group.cancel_scope.cancel()
    return came.is_set()


async def _stop_when(came: anyio.Event, server: "ApiServer") -> None:
    await came.wait()
    server.should_exit = True


def listen(settings: Settings) -> socket.socket:
    """Take the port before anything is started, so that a second server says so at once."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    # asyncio sends without delay only on sockets whose protocol is named; else each answer waits 40 ms for an ACK.
    listening = GuardedListener(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((settings.host, settings.port))
    except OSError as error:
        listening.close()
        raise ConflictError(
            f"Cannot listen on {settings.host}:{settings.port}: {error.strerror}.",
            remedy="Is a server running already? Stop it with yunhe down, or give another --port.",
        ) from None
    return listening


async def stop_on_signal(server: "ApiServer") -> None:
    """Let SIGTERM or SIGINT end *server*."""
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async for _ in signals:
            server.should_exit = True


def health_only(app: Litestar) -> Callable[[Scope, Receive, Send], Awaitable[None]]:
    """Return *app* for a server without room: health checks are answered, all else is refused."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] in QUIET_ROUTES:
            await app(scope, receive, send)
            return
        body = msgspec.json.encode(
            problem_of(TooManyRequestsError("The server has no room for more connections."), status=503)
        )
        headers = [
            (b"content-type", PROBLEM_JSON.encode()),
            (b"content-length", str(len(body)).encode()),
            (b"retry-after", b"2"),
            (b"connection", b"close"),
        ]
        await send({"type": "http.response.start", "status": 503, "headers": headers})
        await send({"type": "http.response.body", "body": body, "more_body": False})

    return answer


class ApiServer(uvicorn.Server):
    """uvicorn that ends our streams when it stops, and leaves signals to us."""

    def __init__(self, app: Litestar, settings: Settings) -> None:
        self._stopping: anyio.Event = app.state.stopping
        files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self._connections = ApiConnections(
            min(settings.limits.connections, max(16, files - RESERVED_FILES)),
            settings.limits.connections_per_address,
        )
        protocol: Any = partial(GuardedProtocol, connections=self._connections, reserved_app=health_only(app))
        super().__init__(
            uvicorn.Config(
                app,
                lifespan="on",
                log_config=None,
                access_log=False,
                server_header=False,
                ssl_certfile=settings.tls_certificate,
                ssl_keyfile=settings.tls_key,
                timeout_graceful_shutdown=DRAIN_S,
                timeout_keep_alive=IDLE_S,
                http=protocol,
                backlog=BACKLOG,
                ws_max_size=WEBSOCKET_MESSAGE_BYTES,
            )
        )

    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Leave signals alone: uvicorn would raise them again, and the sub-modules could not stop in order."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen, and take no more connections than there is room for."""
        for listening in sockets or ():
            if isinstance(listening, GuardedListener):
                listening.connections = self._connections
        await super().startup(sockets)

    async def on_tick(self, counter: int) -> bool:
        """Once a second, close connections that keep the server waiting."""
        if counter % 10 == 0:
            self._connections.sweep(asyncio.get_running_loop().time())
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End streams, let other requests in flight finish, close."""
        self._stopping.set()
        await super().shutdown(sockets)
