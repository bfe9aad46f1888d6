"""Which host, how it is reached, and what the operator says of it."""

import os
from pathlib import Path

import msgspec

from yunhe.infrastructure.contract.kind import Target
from yunhe.kernel.confinement import is_block
from yunhe.kernel.errors import FieldProblem, InvalidInputError
from yunhe.kernel.units import parse_cpu_millis, parse_memory_mib


class DeclaredNode(msgspec.Struct, frozen=True, kw_only=True):
    """What the operator says of a node; what is left out, the agent finds."""

    node_id: str = ""
    cpu_millis: int | None = None
    memory_mib: int | None = None
    default_disk_mib: int | None = None
    """The disk limit of a task that names none."""
    pythons_mib: int | None = None
    """How much the Python environments that are kept may take."""
    first_uid: int | None = None
    """The first of the user IDs given to projects, one each."""
    idle_s: int | None = None
    """After how long without a task or a platform the agent ends; None: ten minutes."""
    forwarding: str = ""
    """``on``: the agent has the host forward packets of tasks; ``off``: tasks share the host's network."""
    allowed: tuple[str, ...] = ()
    """What tasks may ask for: ``host-network``, ``privileged``."""
    egress: tuple[str, ...] | None = None
    """To which blocks of addresses alone tasks may connect; empty: to none. None: no list."""
    writable: tuple[str, ...] = ()
    """Directories of the host that tasks see, and write where their owner and mode let them."""

    def arguments(self) -> list[str]:
        """Return this as arguments of the agent."""
        pairs = {
            "--node": self.node_id or None,
            "--cpu-millis": self.cpu_millis,
            "--memory-mib": self.memory_mib,
            "--default-disk-mib": self.default_disk_mib,
            "--pythons-mib": self.pythons_mib,
            "--first-uid": self.first_uid,
            "--idle-s": self.idle_s,
        }
        words = [word for name, value in pairs.items() if value is not None for word in (name, str(value))]
        words += ["--forwarding", self.forwarding] if self.forwarding else []
        return [*words, *(word for path in self.writable for word in ("--writable", path))]


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


ALLOWABLE = ("host-network", "privileged")

HostTarget = LocalHost | SshHost


def read_local(target: Target) -> LocalHost:
    """Return this machine with what is declared of it; refuse options that cannot be meant."""
    return LocalHost(root=target.options.get("root", ""), declared=_declared(target))


def read_ssh(target: Target) -> SshHost:
    """Return the host at an address with what is declared of it; refuse options that cannot be meant."""
    options = target.options
    return ssh_host(
        target,
        root=options.get("root", ""),
        python=options.get("python", "python3"),
        declared=_declared(target),
    )


def ssh_host(target: Target, *, root: str, python: str, declared: DeclaredNode) -> SshHost:
    """Return the host at an address, by the options of every kind that is reached over ssh."""
    options = target.options
    return SshHost(
        destination=target.address,
        port=_number(options, "port"),
        identity_file=options.get("identity"),
        options=("-F", options["ssh_config"]) if "ssh_config" in options else (),
        root=root,
        python=python,
        declared=declared,
    )


def option_problem(name: str, problem: str, value: str) -> InvalidInputError:
    """Return the refusal of an option's value."""
    return InvalidInputError(
        f"The option {name} {problem}.", fields=(FieldProblem(f"options.{name}", problem, value),)
    )


def _declared(target: Target) -> DeclaredNode:
    options = target.options
    try:
        return DeclaredNode(
            cpu_millis=parse_cpu_millis(options["cpus"]) if "cpus" in options else None,
            memory_mib=parse_memory_mib(options["memory"]) if "memory" in options else None,
            default_disk_mib=parse_memory_mib(options["default_disk"]) if "default_disk" in options else None,
            pythons_mib=parse_memory_mib(options["pythons"]) if "pythons" in options else None,
            first_uid=_number(options, "first_uid"),
            forwarding="".join(_words(options, "forwarding", ("on", "off"))[:1]),
            allowed=_words(options, "allow", ALLOWABLE),
            egress=_egress(options),
            writable=_directories(options, "writable"),
        )
    except ValueError as error:
        raise InvalidInputError(str(error), fields=(FieldProblem("options", str(error)),)) from None


def _words(options: dict[str, str], name: str, known: tuple[str, ...]) -> tuple[str, ...]:
    words = tuple(word.strip() for word in options.get(name, "").split(",") if word.strip())
    for word in words:
        if word not in known:
            raise option_problem(name, f"must be of {', '.join(known)}", word)
    return words


def _egress(options: dict[str, str]) -> tuple[str, ...] | None:
    text = options.get("egress", "").strip()
    if not text or text == "none":
        return () if text else None
    blocks = tuple(word.strip() for word in text.split(","))
    for block in blocks:
        if not is_block(block):
            raise option_problem(
                "egress", "must be none, or blocks such as 192.0.2.0/24 and 192.0.2.7:443", block
            )
    return blocks


def _directories(options: dict[str, str], name: str) -> tuple[str, ...]:
    paths = tuple(path.strip() for path in options.get(name, "").split(",") if path.strip())
    for path in paths:
        if not path.startswith("/") or "/../" in f"{path}/":
            raise option_problem(name, "must be absolute paths, separated by commas", path)
    return paths


def _number(options: dict[str, str], name: str) -> int | None:
    text = options.get(name)
    if text is not None and not text.isdigit():
        raise option_problem(name, "is not a number", text)
    return None if text is None else int(text)
