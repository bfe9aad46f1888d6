"""Opens a link: a bridge as a local process, or at the far end of the system's ``ssh``."""

import os
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import IO, NamedTuple

import anyio
from anyio.abc import Process

from yunhe.agent import OLDEST_PROTOCOL, PROTOCOL
from yunhe.agent.daemon.bootstrap import MARK
from yunhe.infrastructure.host.link import AgentLink, Body, last_words
from yunhe.infrastructure.host.package import AgentFile, agent_file, bootstrap_text
from yunhe.infrastructure.host.target import HostTarget, LocalHost, SshHost
from yunhe.kernel.errors import PoolUnreachableError

OPEN_WITHIN_S = 40.0
CONNECT_WITHIN_S = 10
ALIVE_EVERY_S = 5
ALIVE_MISSES = 3
NOT_STARTED = "The host did not start the agent: "
"""What stands before the words of ssh or of the far shell."""
MAX_GREETING_BYTES = 256 * 1024
"""What a login shell may print before the agent is heard."""

_MARK = re.compile(rf"\n{MARK} (have|need|old) (\d+\.\d+)\n".encode())


class Opened(NamedTuple):
    """A link that has shaken hands."""

    link: AgentLink
    hello: Body
    sent_bytes: int
    """How much of the agent had to be sent; 0: it was there."""


async def open_bridge(target: HostTarget, program: AgentFile | None = None) -> Opened:
    """Reach the host, take the agent there if need be, start it if need be, and shake hands.

    Any *program* that answers to ``bridge --root`` with frames on its standard input and output can take the agent's
    place.
    """
    agent = program or agent_file()
    with anyio.move_on_after(OPEN_WITHIN_S):
        return await (
            _open_local(target, agent) if isinstance(target, LocalHost) else _open_ssh(target, agent)
        )
    raise PoolUnreachableError(f"The host did not answer within {OPEN_WITHIN_S:g} s.")


async def _open_local(target: LocalHost, agent: AgentFile) -> Opened:
    root = target.directory()
    try:
        sent_bytes = await anyio.to_thread.run_sync(_put_agent, root, agent)
    except OSError as fault:
        raise PoolUnreachableError(f"{NOT_STARTED}the root {root} cannot be used: {fault.strerror}") from None
    python = target.python or sys.executable
    command = [python, "-I", "-S", str(root / agent.name), "bridge", "--root", str(root)]
    command += target.declared.arguments()
    process, words = await _start(command, {**os.environ, **target.environment})
    link = AgentLink(process, words)
    return Opened(link, await _shake_hands(link), sent_bytes)


def _put_agent(root: Path, agent: AgentFile) -> int:
    path = root / agent.name
    if path.exists() and path.read_bytes() == agent.data:
        return 0
    _make_enterable(root)
    fresh = path.with_suffix(f".{os.getpid()}.new")
    fresh.write_bytes(agent.data)
    fresh.replace(path)
    return len(agent.data)


def _make_enterable(path: Path) -> None:
    """Make *path* so that users of projects can pass through whatever this makes above it."""
    if not path.exists():
        _make_enterable(path.parent)
        path.mkdir(exist_ok=True)
        path.chmod(0o755)


async def _open_ssh(target: SshHost, agent: AgentFile) -> Opened:
    process, words = await _start(ssh_command(target, agent), dict(os.environ))
    try:
        greeting = await _read_greeting(process, words)
        sent_bytes = 0
        if greeting == "need" and process.stdin is not None:
            await process.stdin.send(agent.data)
            sent_bytes = len(agent.data)
    except BaseException:
        with anyio.CancelScope(shield=True):
            if process.returncode is None:
                process.kill()
            await process.aclose()
        words.close()
        raise
    link = AgentLink(process, words)
    return Opened(link, await _shake_hands(link), sent_bytes)


def ssh_command(target: SshHost, agent: AgentFile) -> list[str]:
    """Return the command that reaches the host; the far shell sees one constant with quoted arguments."""
    options = {
        "BatchMode": "yes",
        "ConnectTimeout": CONNECT_WITHIN_S,
        "ServerAliveInterval": ALIVE_EVERY_S,
        "ServerAliveCountMax": ALIVE_MISSES,
    }
    command = ["ssh", "-T", *target.options]
    command += [word for name, value in options.items() for word in ("-o", f"{name}={value}")]
    command += ["-p", str(target.port)] if target.port is not None else []
    command += ["-i", target.identity_file] if target.identity_file is not None else []
    remote = [target.python, "-c", bootstrap_text(), target.root, agent.digest, str(len(agent.data))]
    far = " ".join(map(shlex.quote, [*remote, *target.declared.arguments()]))
    return [*command, "--", target.destination, f"exec {far}"]


async def _read_greeting(process: Process, words: IO[bytes]) -> str:
    """Return what the far side said it needs, past whatever else it printed."""
    heard = b""
    while len(heard) < MAX_GREETING_BYTES and process.stdout is not None:
        try:
            heard += await process.stdout.receive(4096)
        except (anyio.EndOfStream, anyio.BrokenResourceError):
            break
        found = _MARK.search(heard)
        if found is None:
            continue
        said, version = found[1].decode(), found[2].decode()
        if said == "old":
            raise PoolUnreachableError(
                f"Python {version} on the host is too old for the agent.",
                remedy="Install Python 3.8 or newer there, or name one with --option python=….",
            )
        return said
    with anyio.move_on_after(1.0):
        await process.wait()
    raise PoolUnreachableError(f"{NOT_STARTED}{last_words(words) or 'it said nothing'}")


async def _start(command: list[str], environment: dict[str, str]) -> tuple[Process, IO[bytes]]:
    words = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the link that reads its tail
    process = await anyio.open_process(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=words,
        env=environment,
        start_new_session=True,  # an interrupt typed at the platform's terminal is not for the bridge
    )
    return process, words


async def _shake_hands(link: AgentLink) -> Body:
    try:
        return await link.request(
            "hello", {"protocol": PROTOCOL, "oldest_protocol": OLDEST_PROTOCOL}, timeout_s=OPEN_WITHIN_S
        )
    except BaseException:
        await link.close()
        raise
