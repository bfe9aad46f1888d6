"""How the sub-module of plugins is put together: one registry, the kinds over it, what starts processes, the service."""

import socket
from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import ip_address

from yunhe.control.plugins.heartbeats import Heartbeats
from yunhe.control.plugins.in_process import InProcess
from yunhe.control.plugins.kinds import KnownKinds
from yunhe.control.plugins.registry import CallAddress, Registry
from yunhe.control.plugins.service import PluginService
from yunhe.control.plugins.supervisor import ProcessSettings, Supervisor
from yunhe.control.pools import store as pools
from yunhe.infrastructure.contract.kind import Kind
from yunhe.infrastructure.contract.manifest import Manifest
from yunhe.infrastructure.remote import channels
from yunhe.infrastructure.remote.kind import RemoteKind
from yunhe.kernel.clock import Clock
from yunhe.runtime.settings import Settings
from yunhe.storage.database import Database
from yunhe.storage.vault import Vault


@dataclass(frozen=True, slots=True)
class PluginParts:
    """What runs, and what others call."""

    kinds: KnownKinds
    heartbeats: Heartbeats
    supervisor: Supervisor
    service: PluginService


def plugin_parts(
    settings: Settings, database: Database, vault: Vault, in_process: InProcess, clock: Clock
) -> PluginParts:
    """Return the parts of one server process, wired to each other."""
    registry = Registry(database, vault, clock, reserved=frozenset(in_process.manifests))
    kinds = KnownKinds(in_process, registry, _remote_kind)
    supervisor = Supervisor(database, registry, vault, clock, _surroundings(settings))
    service = PluginService(
        database, vault, clock, kinds, supervisor, lambda: database.read(pools.read_names_by_kind)
    )
    return PluginParts(kinds, Heartbeats(kinds), supervisor, service)


def _remote_kind(manifest: Manifest, where: Callable[[], CallAddress]) -> Kind:
    def reached() -> channels.PluginAddress:
        now = where()
        return channels.PluginAddress(now.address, now.certificate, now.token)

    return RemoteKind(manifest, reached)


def _surroundings(settings: Settings) -> ProcessSettings:
    certificate = settings.tls_certificate
    environment = {"YUNHE_URL": own_url(settings), "YUNHE_LOG_LEVEL": settings.log_level.value}
    if certificate is not None:
        environment["SSL_CERT_FILE"] = str(certificate.absolute())
    return ProcessSettings(host=socket.gethostname(), logs=settings.home / "plugins", environment=environment)


def own_url(settings: Settings) -> str:
    """Return how a process on this machine reaches the server."""
    scheme = "http" if settings.tls_certificate is None else "https"
    host = settings.host
    try:
        if ip_address(host).is_unspecified:
            host = "127.0.0.1"
    except ValueError:
        pass
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{settings.port}"
