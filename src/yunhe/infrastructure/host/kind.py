"""Hosts as kinds of engines: ``local`` is this machine, ``ssh`` any that the system's ssh reaches."""

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager

from yunhe.infrastructure.contract.engine import Engine
from yunhe.infrastructure.contract.kind import Check, Target, timed
from yunhe.infrastructure.host.engine import HostEngine
from yunhe.infrastructure.host.onboard import onboard
from yunhe.infrastructure.host.target import HostTarget, read_local, read_ssh


class HostKind:
    """Connects to hosts."""

    def __init__(self, read: Callable[[Target], HostTarget]) -> None:
        self._read = read

    async def onboard(self, target: Target) -> AsyncIterator[Check]:
        """Yield each step of getting an agent ready there, with how long it took."""
        async for check in timed(onboard(self._read(target))):
            yield check

    @asynccontextmanager
    async def connect(self, target: Target) -> AsyncGenerator[Engine]:
        """Hold a connection that recovers by itself."""
        async with HostEngine(self._read(target)) as engine:
            yield engine


def local_kind() -> HostKind:
    """Return the kind whose engine is an agent on this machine."""
    return HostKind(read_local)


def ssh_kind() -> HostKind:
    """Return the kind whose engine is an agent at the far end of ssh."""
    return HostKind(read_ssh)
