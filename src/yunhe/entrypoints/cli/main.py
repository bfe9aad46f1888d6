"""The ``yunhe`` command: a table of commands, each imported only when it is used."""

import gc
import os
import sys
from typing import NamedTuple

from yunhe import __version__

JOBS, POOLS, MONEY, ACCESS, PLATFORM, ALONE = (
    "Jobs",
    "Pools",
    "Money",
    "Access",
    "Platform",
    "Without a server",
)


class Command(NamedTuple):
    """Where a command lives, what one line says of it, and under which heading."""

    module: str
    help: str
    panel: str = ALONE
    given: tuple[str, ...] = ()
    """Options this name stands for, where it is another word for a command."""


COMMANDS: dict[str, Command] = {
    "run": Command("jobs.run", "Run a task: a file, or a command after --", JOBS),
    "plan": Command("jobs.run", "Show where a task would run and why; start nothing", JOBS, ("--dry-run",)),
    "ps": Command("jobs.ps", "List jobs", JOBS),
    "logs": Command("jobs.logs", "Show a job's output; -f follows it", JOBS),
    "exec": Command("jobs.exec", "Run a command beside a running job; -it for a shell", JOBS),
    "ssh": Command("jobs.ssh", "Open a shell in a running job, or run a command there", JOBS),
    "forward": Command("jobs.forward", "Reach a job's ports from this machine: notebooks, dashboards", JOBS),
    "cp": Command("jobs.cp", "Fetch a job's outputs or files", JOBS),
    "stop": Command("jobs.stop", "Stop jobs", JOBS),
    "resize": Command("jobs.resize", "Change a running job's cores or memory in place", JOBS),
    "explain": Command("jobs.explain", "Say why a job is where it is, or why it waits", JOBS),
    "pool": Command("pools.pool", "Add, list, check, price, cordon, drain and remove pools", POOLS),
    "plugin": Command("pools.plugin", "Make, list, start, upgrade and remove adapters to engines", POOLS),
    "cost": Command("money.cost", "What was used and is owed, by job, project or pool", MONEY),
    "ledger": Command("money.ledger", "Export the ledger; verify an export without a server", MONEY),
    "project": Command("access.project", "Projects and who belongs to them", ACCESS),
    "secret": Command("access.secret", "A project's secrets: set, list, forget", ACCESS),
    "token": Command("access.token", "API keys: make, list, rotate, revoke", ACCESS),
    "audit": Command("access.audit", "Who did, or was refused, what and when", ACCESS),
    "login": Command("access.login", "Use a platform at an address, with a key", ACCESS),
    "config": Command("access.config", "Which platform and project this user works with", ACCESS),
    "up": Command("platform.up", "Bring up a platform on this machine and run a sample job", PLATFORM),
    "down": Command("platform.down", "Stop the platform of this machine; jobs and data stay", PLATFORM),
    "serve": Command("platform.serve", "Run a server process in the foreground", PLATFORM),
    "doctor": Command("platform.doctor", "Check that everything works; each fault with its remedy", PLATFORM),
    "vault": Command("platform.vault", "The key that seals secrets: rotate it", PLATFORM),
    "completion": Command(
        "platform.completion", "Print the completion script for bash, zsh or fish", PLATFORM
    ),
    "simulate": Command("analysis.simulate", "Play a workload through the scheduler; compare policies"),
    "availability": Command(
        "analysis.availability", "Plan how few services meet an availability target, exactly"
    ),
    "flex": Command("analysis.flex", "Right-size and oversubscribe from real usage; say why"),
}
"""Name → module below ``yunhe.entrypoints.cli.commands`` whose ``app`` is the command or group."""


def help_text() -> str:
    """Return what ``yunhe --help`` prints; no command is imported for it."""
    width = max(map(len, COMMANDS)) + 2
    lines = ["Yunhe joins scattered computing into one.", "", "Usage: yunhe COMMAND [OPTIONS] [ARGUMENTS]"]
    for panel in dict.fromkeys(entry.panel for entry in COMMANDS.values()):
        lines += ["", panel]
        lines += [
            f"  {name:<{width}}{entry.help}" for name, entry in COMMANDS.items() if entry.panel == panel
        ]
    lines += ["", "Begin with `yunhe up`, then `yunhe run examples/hello.yaml`."]
    lines += ["`yunhe COMMAND --help` says more of one; `yunhe --version` says which this is.", ""]
    return "\n".join(lines)


def main() -> None:
    """Run the command line."""
    arguments = sys.argv[1:]
    if arguments in ([], ["--help"], ["-h"], ["help"]) and "_YUNHE_COMPLETE" not in os.environ:
        sys.stdout.write(help_text())  # before anything is imported: people judge a tool by its first second
        return
    if arguments == ["--version"]:
        sys.stdout.write(f"yunhe {__version__}\n")
        return
    gc.disable()  # imports make many objects and no garbage; the shell enables it again
    from yunhe.entrypoints.cli.terminal.shell import run  # noqa: PLC0415 - as said above

    sys.exit(run(COMMANDS, arguments))
