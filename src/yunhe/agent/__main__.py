"""The agent's command line. People do not type it: the platform does, through ``yunhe.infrastructure.host``."""

from __future__ import annotations

import argparse
import os
import sys

from yunhe.agent import AGENT_VERSION, PROTOCOL

# Each command imports what it needs and no more: a bridge stays small for as long as it lives.


def main() -> int:
    """Run one of the agent's processes."""
    arguments = _parser().parse_args()
    if arguments.command == "version":
        # Import everything, so that an agent which does not run here is found out before it replaces one that does.
        import yunhe.agent.daemon.daemon  # noqa: PLC0415

        sys.stdout.write(f"{AGENT_VERSION} {PROTOCOL} {yunhe.agent.daemon.daemon.TICK_S}\n")
        return 0
    if arguments.command == "spawner":
        from yunhe.agent.daemon.spawner import serve as serve_spawner  # noqa: PLC0415

        serve_spawner(arguments.line)
        return 0
    if arguments.command == "bridge":
        from yunhe.agent.daemon.bridge import run  # noqa: PLC0415

        command = [sys.executable, "-I", "-S", _agent_file(), "daemon", *_daemon_arguments(arguments)]
        return run(os.path.abspath(os.path.expanduser(arguments.root)), command)
    return _serve_daemon(arguments)


def _serve_daemon(arguments: argparse.Namespace) -> int:
    from yunhe.agent.daemon.daemon import Launch, NotTraversableError, serve  # noqa: PLC0415
    from yunhe.agent.daemon.machine import DeclaredMachine  # noqa: PLC0415
    from yunhe.agent.runs.node import AgentSettings  # noqa: PLC0415
    from yunhe.agent.runtimes.interface import HostOptions  # noqa: PLC0415

    root = os.path.abspath(os.path.expanduser(arguments.root))
    declared = DeclaredMachine(
        arguments.node, arguments.cpu_millis, arguments.memory_mib, arguments.default_disk_mib
    )
    settings = AgentSettings(
        root,
        declared,
        arguments.first_uid,
        arguments.uid_count,
        HostOptions(tuple(arguments.writable), arguments.forwarding, arguments.pythons_mib),
    )
    kept = _daemon_arguments(arguments)
    try:
        return serve(
            Launch(settings, _agent_file(), kept, arguments.idle_s, arguments.listening, arguments.lock)
        )
    except NotTraversableError as refusal:
        sys.stderr.write(f"{refusal}\n")
        return 3


def _agent_file() -> str:
    """Return the file this agent was started from."""
    return os.path.abspath(sys.argv[0])


def _daemon_arguments(arguments: argparse.Namespace) -> list[str]:
    """Return the arguments a daemon needs to serve as these say."""
    words = ["--root", arguments.root, "--first-uid", str(arguments.first_uid)]
    words += ["--uid-count", str(arguments.uid_count), "--idle-s", str(arguments.idle_s)]
    words += ["--pythons-mib", str(arguments.pythons_mib)]
    for name in ("node", "cpu_millis", "memory_mib", "default_disk_mib"):
        value = getattr(arguments, name)
        if value not in (None, ""):
            words += [f"--{name.replace('_', '-')}", str(value)]
    words += ["--forwarding", arguments.forwarding] if arguments.forwarding else []
    for path in arguments.writable:
        words += ["--writable", path]
    return words


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="yunhe-agent", description="Runs tasks on this node for a platform."
    )
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("version", help="say which agent this is")
    spawner = commands.add_parser("spawner", help="fork processes for a daemon")
    spawner.add_argument("--line", type=int, required=True)
    for name, words in (("bridge", "join stdio to the daemon"), ("daemon", "serve a root directory")):
        command = commands.add_parser(name, help=words)
        command.add_argument("--root", required=True, help="directory this agent owns")
        command.add_argument("--node", default="", help="name of this node; default: the host's name")
        command.add_argument("--cpu-millis", type=int, help="cores to offer, in thousandths; default: all")
        command.add_argument("--memory-mib", type=int, help="memory to offer; default: all")
        command.add_argument(
            "--default-disk-mib", type=int, default=20 * 1024, help="disk limit of a task that names none"
        )
        command.add_argument(
            "--pythons-mib",
            type=int,
            default=10 * 1024,
            help="room for the Python environments that are kept",
        )
        command.add_argument("--first-uid", type=int, default=700_000, help="first user ID to give a project")
        command.add_argument("--uid-count", type=int, default=65_536, help="how many user IDs to give")
        command.add_argument(
            "--idle-s", type=int, default=600, help="end after so long without a task or a platform; 0: never"
        )
        command.add_argument("--writable", action="append", default=[], help="directory that tasks may write")
        command.add_argument(
            "--forwarding",
            choices=("", "on", "off"),
            default="",
            help="on: have the host forward packets of tasks; off: tasks share the host's network",
        )
        if name == "daemon":
            command.add_argument("--listening", type=int, help=argparse.SUPPRESS)
            command.add_argument("--lock", type=int, help=argparse.SUPPRESS)
    return parser


if __name__ == "__main__":
    sys.exit(main())
