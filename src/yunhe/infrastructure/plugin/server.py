"""The gRPC server of a plugin: asks for the token, bounds what is in flight, tells refusals, and drains."""

import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager, contextmanager, nullcontext
from functools import partial
from hmac import compare_digest
from typing import Any

import anyio
import grpc
import grpc.aio
from google.protobuf.message import Message
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from yunhe.infrastructure.contract.generated import engine_pb2 as pb
from yunhe.infrastructure.contract.kind import Kind, Target
from yunhe.infrastructure.contract.manifest import Manifest
from yunhe.infrastructure.contract.model import CONTRACT_VERSION
from yunhe.infrastructure.contract.wire import (
    AUTHORIZATION,
    MESSAGE_BYTES,
    METHODS,
    PROBLEM_TRAILER,
    problem_message,
    to_message,
    to_struct,
)
from yunhe.infrastructure.plugin.engines import Engines
from yunhe.infrastructure.plugin.verbs import ANSWERS, CONVERSATIONS, STREAMS
from yunhe.kernel.errors import ConflictError, UnauthenticatedError, YunheError

DRAIN_S = 30.0
"""How long calls in flight may take to end once no new ones are taken."""
STATUS = {
    "invalid-input": grpc.StatusCode.INVALID_ARGUMENT,
    "not-found": grpc.StatusCode.NOT_FOUND,
    "unauthenticated": grpc.StatusCode.UNAUTHENTICATED,
    "forbidden": grpc.StatusCode.PERMISSION_DENIED,
    "conflict": grpc.StatusCode.FAILED_PRECONDITION,
    "too-large": grpc.StatusCode.RESOURCE_EXHAUSTED,
    "unsupported": grpc.StatusCode.UNIMPLEMENTED,
    "pool-unreachable": grpc.StatusCode.UNAVAILABLE,
    "fenced": grpc.StatusCode.ABORTED,
    "disk-full": grpc.StatusCode.RESOURCE_EXHAUSTED,
}
OPTIONS = (
    ("grpc.max_receive_message_length", MESSAGE_BYTES),
    ("grpc.max_send_message_length", MESSAGE_BYTES),
    ("grpc.so_reuseport", 0),
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
    ("grpc.keepalive_permit_without_calls", 1),
)

_HEALTH: Any = health  # its asynchronous half is missing from its type stubs

log = logging.getLogger(__name__)


class PluginServer:
    """Serves one kind to whoever has the token."""

    def __init__(self, manifest: Manifest, kind: Kind, token: str) -> None:
        self._manifest = manifest
        self._kind = kind
        self._token = token.encode()
        self._engines = Engines(kind)
        self._room = anyio.CapacityLimiter(manifest.limits.calls)
        self._draining = False
        self._waiting: set[anyio.CancelScope] = set()
        self._server = grpc.aio.server(options=OPTIONS)
        self._health = _HEALTH.aio.HealthServicer()

    @asynccontextmanager
    async def running(self, address: str, credentials: grpc.ServerCredentials | None) -> AsyncGenerator[str]:
        """Serve at *address*; yield it with the port that was found where it named none."""
        if credentials is None:
            port = self._server.add_insecure_port(address)
        else:
            port = self._server.add_secure_port(address, credentials)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        self._server.add_generic_rpc_handlers(self._handlers())
        async with self._engines.running():
            await self._server.start()
            await self._health.set("", health_pb2.HealthCheckResponse.SERVING)
            try:
                yield address if address.startswith("unix:") else f"{address.rpartition(':')[0]}:{port}"
            finally:
                with anyio.CancelScope(shield=True):
                    await self._server.stop(0)

    async def drain(self, within_s: float = DRAIN_S) -> None:
        """Take no new call; send those that only wait to the next instance, and let the others end."""
        await self._health.set("", health_pb2.HealthCheckResponse.NOT_SERVING)
        self._draining = True
        for scope in self._waiting:
            scope.cancel()
        await self._server.stop(within_s)

    # The calls

    def _handlers(self) -> list[grpc.GenericRpcHandler]:
        services: dict[str, dict[str, Any]] = {}
        for name, method in METHODS.items():
            service, _, call = method.path.removeprefix("/").partition("/")
            services.setdefault(service, {})[call] = self._handler(name)
        return [grpc.method_handlers_generic_handler(name, calls) for name, calls in services.items()]

    def _handler(self, name: str) -> "grpc.RpcMethodHandler[Any, Any]":
        method = METHODS[name]
        codec: Any = {
            "request_deserializer": method.request.FromString,
            "response_serializer": method.response.SerializeToString,
        }
        if name == "Plugin/Describe":
            return grpc.unary_unary_rpc_method_handler(self._unary(self._describe), **codec)
        if name == "Onboarding/Onboard":
            return grpc.unary_stream_rpc_method_handler(self._stream(self._onboard), **codec)
        if name in ANSWERS:
            return grpc.unary_unary_rpc_method_handler(self._unary(self._answer(ANSWERS[name])), **codec)
        if name in STREAMS:
            return grpc.unary_stream_rpc_method_handler(self._stream(self._read(STREAMS[name])), **codec)
        return grpc.stream_stream_rpc_method_handler(self._conversation(CONVERSATIONS[name]), **codec)

    async def _describe(self, request: pb.DescribePluginRequest) -> pb.DescribePluginResponse:
        if CONTRACT_VERSION not in request.contracts:
            asked = ", ".join(map(str, request.contracts)) or "none"
            raise ConflictError(
                f"{self._manifest.name} {self._manifest.version} speaks contract {CONTRACT_VERSION}; "
                f"the caller speaks {asked}.",
                remedy="Use a release of the plugin made for this platform, or upgrade the platform.",
            )
        return pb.DescribePluginResponse(
            manifest=to_message(self._manifest, pb.Manifest), contract=CONTRACT_VERSION
        )

    async def _onboard(self, request: pb.OnboardRequest) -> AsyncIterator[pb.Check]:
        async for check in self._kind.onboard(to_struct(request.target, Target)):
            yield to_message(check, pb.Check)

    def _answer(self, act: Callable[[Any, Any], Awaitable[Message]]) -> Callable[[Any], Awaitable[Message]]:
        async def answer(request: Any) -> Message:
            target = to_struct(request.target, Target)
            room = nullcontext() if _only_waits(request) else self._room
            async with room, self._engines.using(target) as engine:
                return await act(engine, request)

        return answer

    def _read(
        self, read: Callable[[Any, Any], AsyncIterator[Message]]
    ) -> Callable[[Any], AsyncIterator[Message]]:
        async def messages(request: Any) -> AsyncIterator[Message]:
            async with self._engines.using(to_struct(request.target, Target)) as engine:
                async for message in read(engine, request):
                    yield message

        return messages

    # What every call has in common

    def _unary(self, answer: Callable[[Any], Awaitable[Message]]) -> Any:
        async def unary(request: Any, context: Any) -> Message:
            return await self._by_the_rules(
                context, partial(answer, request), only_waits=_only_waits(request)
            )

        return unary

    def _stream(self, messages: Callable[[Any], AsyncIterator[Message]]) -> Any:
        async def stream(request: Any, context: Any) -> None:
            async def write_all() -> None:
                await context.send_initial_metadata(())
                async for message in messages(request):
                    await context.write(message)

            await self._by_the_rules(context, write_all, only_waits=_only_waits(request))

        return stream

    def _conversation(self, converse: Callable[[Any, Any, Any], Awaitable[None]]) -> Any:
        async def conversation(_: Any, context: Any) -> None:
            async def talk() -> None:
                first = await context.read()
                opening = first.announcement if isinstance(first, pb.PutArchiveRequest) else first.start
                async with self._engines.using(to_struct(opening.target, Target)) as engine:
                    await converse(engine, first, context)

            await self._by_the_rules(context, talk)

        return conversation

    async def _by_the_rules(
        self, context: Any, work: Callable[[], Awaitable[Any]], *, only_waits: bool = False
    ) -> Any:
        """Let in who has the token; turn what is raised into a status with its problem."""
        try:
            self._admit(context)
            with anyio.CancelScope() as scope:
                with self._waiting_in(scope) if only_waits else nullcontext():
                    return await work()
        except Exception as error:  # noqa: BLE001 - whatever it is, the caller hears of it
            await self._refuse(context, error)
        return await context.abort(grpc.StatusCode.UNAVAILABLE, "this instance is leaving")

    def _admit(self, context: Any) -> None:
        given = dict(context.invocation_metadata()).get(AUTHORIZATION, "")
        if not compare_digest(given.encode(), b"Bearer " + self._token):
            raise UnauthenticatedError(
                f"This call does not carry the token of {self._manifest.name}.",
                remedy="Use the one it registered with.",
            )

    @contextmanager
    def _waiting_in(self, scope: anyio.CancelScope) -> Generator[None]:
        """Cut what happens in *scope* short when this instance leaves."""
        self._waiting.add(scope)
        if self._draining:
            scope.cancel()
        try:
            yield
        finally:
            self._waiting.discard(scope)

    async def _refuse(self, context: Any, error: Exception) -> None:
        refusal = _refusal_in(error)
        if refusal is None:
            log.error("a call failed", exc_info=error)
            refusal = YunheError(f"The plugin {self._manifest.name} failed: {type(error).__name__}: {error}.")
        trailer = (PROBLEM_TRAILER, problem_message(refusal).SerializeToString())
        status = STATUS.get(refusal.code, grpc.StatusCode.INTERNAL)
        await context.abort(status, refusal.problem, trailing_metadata=(trailer,))


def _only_waits(request: Any) -> bool:
    """Return whether a call mostly waits: it takes no room from those that work, and need not end here."""
    return getattr(request, "wait_s", 0.0) > 0 or getattr(request, "follow", False)


def _refusal_in(error: BaseException) -> YunheError | None:
    """Return the refusal an error is or holds."""
    if isinstance(error, BaseExceptionGroup):
        return next(filter(None, map(_refusal_in, error.exceptions)), None)
    return error if isinstance(error, YunheError) else None
