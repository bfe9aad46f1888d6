"""Hosts as kinds of engines: ``local`` is this machine, ``ssh`` any that the system's ssh reaches."""

import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager

import msgspec

from yunhe.infrastructure.contract.engine import Engine
from yunhe.infrastructure.contract.kind import Check, Target
from yunhe.infrastructure.host.engine import HostEngine
from yunhe.infrastructure.host.onboard import onboard
from yunhe.infrastructure.host.target import DeclaredNode, HostTarget, LocalHost, SshHost
from yunhe.kernel.errors import FieldProblem, InvalidInputError
from yunhe.kernel.units import parse_cpu_millis, parse_memory_mib


class HostKind:
    """Connects to hosts."""

    def __init__(self, read: Callable[[Target], HostTarget]) -> None:
        self._read = read

    async def onboard(self, target: Target) -> AsyncIterator[Check]:
        """Yield each step of getting an agent ready there, with how long it took."""
        began = time.monotonic()
        async for check in onboard(self._read(target)):
            now = time.monotonic()
            yield msgspec.structs.replace(check, seconds=now - began)
            began = now

    @asynccontextmanager
    async def connect(self, target: Target) -> AsyncGenerator[Engine]:
        """Hold a connection that mends itself."""
        async with HostEngine(self._read(target)) as engine:
            yield engine


def local_kind() -> HostKind:
    """Return the kind whose engine is an agent on this machine."""
    return HostKind(lambda t: LocalHost(root=t.options.get("root", ""), declared=_declared(t)))


def ssh_kind() -> HostKind:
    """Return the kind whose engine is an agent at the far end of ssh."""

    def read(target: Target) -> HostTarget:
        return SshHost(
            destination=target.address,
            port=_number(target, "port"),
            identity_file=target.options.get("identity"),
            options=("-F", target.options["ssh_config"]) if "ssh_config" in target.options else (),
            root=target.options.get("root", ""),
            python=target.options.get("python", "python3"),
            declared=_declared(target),
        )

    return HostKind(read)


def _declared(target: Target) -> DeclaredNode:
    options = target.options
    try:
        return DeclaredNode(
            cpu_millis=parse_cpu_millis(options["cpus"]) if "cpus" in options else None,
            memory_mib=parse_memory_mib(options["memory"]) if "memory" in options else None,
            first_uid=_number(target, "first_uid"),
        )
    except ValueError as error:
        raise InvalidInputError(str(error), fields=(FieldProblem("options", str(error)),)) from None


def _number(target: Target, name: str) -> int | None:
    text = target.options.get(name)
    if text is None:
        return None
    if not text.isdigit():
        raise InvalidInputError(
            f"The option {name} is a number.",
            fields=(FieldProblem(f"options.{name}", "is not a number", text),),
        )
    return int(text)
