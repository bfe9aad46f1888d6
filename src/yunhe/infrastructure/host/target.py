"""Which host, and how it is reached."""

import os
from pathlib import Path

import msgspec

from yunhe.kernel.errors import FieldProblem, InvalidInputError


class DeclaredNode(msgspec.Struct, frozen=True, kw_only=True):
    """What the operator says of a node; what is left out, the agent finds."""

    node_id: str = ""
    cpu_millis: int | None = None
    memory_mib: int | None = None
    first_uid: int | None = None
    """The first of the user IDs given to projects, one each."""

    def arguments(self) -> list[str]:
        """Return this as arguments of the agent."""
        pairs = {
            "--node": self.node_id or None,
            "--cpu-millis": self.cpu_millis,
            "--memory-mib": self.memory_mib,
            "--first-uid": self.first_uid,
        }
        return [word for name, value in pairs.items() if value is not None for word in (name, str(value))]


class LocalHost(msgspec.Struct, frozen=True, kw_only=True, tag="local"):
    """This machine; several agents may share it, each with its own root and declared capacity."""

    root: str = ""
    python: str = ""
    """What runs the agent; empty: what runs this."""
    declared: DeclaredNode = DeclaredNode()
    environment: dict[str, str] = {}
    """Added to the agent's own environment (never a task's): how a test sets failpoints."""

    def directory(self) -> Path:
        """Return the agent's root; the default must be one that projects' users can pass through."""
        if self.root:
            return Path(self.root).expanduser().absolute()
        return Path("/var/lib/yunhe/agent") if os.geteuid() == 0 else Path.home() / ".yunhe" / "agent"


class SshHost(msgspec.Struct, frozen=True, kw_only=True, tag="ssh"):
    """A machine reached by the system's ``ssh``, whose configuration is honoured."""

    destination: str
    """``user@host``, or a name from the user's ssh configuration."""
    port: int | None = None
    identity_file: str | None = None
    options: tuple[str, ...] = ()
    """More arguments for ssh, such as ``-o``, ``ProxyJump=gate``."""
    root: str = ""
    """Empty: ``/var/lib/yunhe/agent`` for root, ``~/.yunhe/agent`` for others."""
    python: str = "python3"
    declared: DeclaredNode = DeclaredNode()

    def __post_init__(self) -> None:
        if not self.destination or self.destination.startswith("-") or set(self.destination) & set(" \t\n\0"):
            problem = FieldProblem("destination", "must be user@host", self.destination)
            raise InvalidInputError(f"{self.destination!r} is not a host.", fields=(problem,))


HostTarget = LocalHost | SshHost
