"""Channels to a plugin's instances: one to each, kept while it is the current one or a call still uses it."""

import ipaddress
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

import grpc
import grpc.aio
import msgspec
from cryptography import x509

from yunhe.infrastructure.contract.wire import AUTHORIZATION, MESSAGE_BYTES, METHODS
from yunhe.kernel.errors import InvalidInputError

OPTIONS = (
    ("grpc.max_receive_message_length", MESSAGE_BYTES),
    ("grpc.max_send_message_length", MESSAGE_BYTES),
    ("grpc.keepalive_time_ms", 15_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 2_000),
    ("grpc.enable_retries", 0),  # what may be repeated, and against whom, is decided in calls.py
)


class PluginAddress(msgspec.Struct, frozen=True):
    """How to reach one instance of a plugin."""

    address: str
    """``unix:/path`` or ``host:port``."""
    certificate: str = ""
    """Its own, in PEM; none: over a socket, or on this machine alone."""
    token: str = msgspec.field(default="")
    """What it demands of every call."""

    def __repr__(self) -> str:
        return f"Where({self.address!r})"


class PluginChannel:
    """A channel to one instance."""

    def __init__(self, where: PluginAddress) -> None:
        self.metadata = ((AUTHORIZATION, f"Bearer {where.token}"),)
        self.negotiated = False
        """Whether it has agreed to speak our version of the contract."""
        self.users = 0
        self._channel = _open(where)
        self._calls: dict[str, Any] = {}

    def method(self, name: str, shape: str) -> Any:
        """Return what calls *name*; *shape* is ``unary_unary``, ``unary_stream`` or ``stream_stream``."""
        if name not in self._calls:
            method = METHODS[name]
            self._calls[name] = getattr(self._channel, shape)(
                method.path,
                request_serializer=method.request.SerializeToString,
                response_deserializer=method.response.FromString,
            )
        return self._calls[name]

    async def close(self) -> None:
        """Cut the channel."""
        await self._channel.close()


class Channels:
    """Hands out the channel to the current instance, for the length of a call."""

    def __init__(self, where: Callable[[], PluginAddress]) -> None:
        self._where = where
        self._instances: dict[PluginAddress, PluginChannel] = {}
        self._latest: PluginAddress | None = None
        self._holders = 0

    @asynccontextmanager
    async def held(self) -> AsyncGenerator[None]:
        """Keep channels between calls until the last such block ends."""
        self._holders += 1
        try:
            yield
        finally:
            self._holders -= 1
            await self._let_go()

    @asynccontextmanager
    async def current(self) -> AsyncGenerator[PluginChannel]:
        """Use the current instance; raises what *where* raises when there is none."""
        where = self._latest = self._where()
        if where not in self._instances:
            self._instances[where] = PluginChannel(where)
        instance = self._instances[where]
        instance.users += 1
        try:
            yield instance
        finally:
            instance.users -= 1
            await self._let_go()

    async def _let_go(self) -> None:
        """Close every channel that no call uses, but for the current one while somebody holds."""
        idle = [
            where
            for where, instance in self._instances.items()
            if not instance.users and not (self._holders and where == self._latest)
        ]
        for instance in [self._instances.pop(where) for where in idle]:
            await instance.close()


def _open(where: PluginAddress) -> grpc.aio.Channel:
    if where.certificate:
        options = (*OPTIONS, ("grpc.ssl_target_name_override", _name_in(where)))
        credentials = grpc.ssl_channel_credentials(where.certificate.encode())
        return grpc.aio.secure_channel(where.address, credentials, options=options)
    if not _stays_on_this_machine(where.address):
        raise InvalidInputError(
            f"A plugin at {where.address} must have a certificate.",
            remedy="Let it register one, or listen on a socket or a loopback address.",
        )
    return grpc.aio.insecure_channel(where.address, options=OPTIONS)


def _name_in(where: PluginAddress) -> str:
    """Return a name the certificate is for: it is pinned as a whole, whatever name it carries."""
    try:
        certificate = x509.load_pem_x509_certificate(where.certificate.encode())
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        return names.get_values_for_type(x509.DNSName)[0]
    except (ValueError, IndexError, x509.ExtensionNotFound) as error:
        raise InvalidInputError(
            f"The certificate of the plugin at {where.address} cannot be used: {error}.",
            remedy="It must be PEM and hold a DNS name as subject alternative name.",
        ) from None


def _stays_on_this_machine(address: str) -> bool:
    if address.startswith("unix:"):
        return True
    host = address.rpartition(":")[0].strip("[]")
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
