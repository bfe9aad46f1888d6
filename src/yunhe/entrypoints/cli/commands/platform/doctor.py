"""``yunhe doctor``: check everything, and say how to fix what is broken."""

import shutil
import stat
import sys
import time
from collections.abc import Iterator
from email.utils import parsedate_to_datetime
from pathlib import Path

import msgspec
import typer
from rich.text import Text

from yunhe import __version__
from yunhe.control.pools.model import PoolState
from yunhe.entrypoints.cli.session.connection import connected
from yunhe.entrypoints.cli.session.context import Context, config_path, current_context
from yunhe.entrypoints.cli.terminal.screen import Format, OutputOption, PlainApp, out, print_json
from yunhe.entrypoints.client import Client
from yunhe.entrypoints.client.blocking_transport import probe
from yunhe.entrypoints.client.transport import TransportError
from yunhe.entrypoints.wire import Readiness
from yunhe.kernel.errors import YunheError
from yunhe.observability.log_file import last_errors, log_files
from yunhe.runtime.settings import default_home, log_path

app = PlainApp()

LEAST_FREE_GIB = 1.0
MOST_SKEW_S = 5.0
ERRORS_SHOWN = 3
ERROR_CHARACTERS = 200


class Finding(msgspec.Struct, frozen=True):
    """One thing that was looked at."""

    check: str
    ok: bool
    detail: str
    remedy: str = ""


@app.command()
def doctor(*, output: OutputOption = Format.TABLE) -> None:
    """Check this machine, the server, the key and the pools; each fault comes with its remedy.

    The exit code is 0 only if all is well.
    """
    findings: list[Finding] = []
    for finding in _findings():
        findings.append(finding)
        if output is Format.TABLE:
            mark = ("✓", "green") if finding.ok else ("✗", "red")
            out().print(Text.assemble(" ", mark, f" {finding.check:<9} {finding.detail}"))
            if not finding.ok:
                out().print(f"             → {finding.remedy}")
    if output is Format.JSON:
        print_json(findings)
    if not all(finding.ok for finding in findings):
        raise typer.Exit(1)


def _findings() -> Iterator[Finding]:
    yield Finding("yunhe", True, f"{__version__}, Python {sys.version.split()[0]}")
    yield _disk(default_home())
    yield _ssh()
    yield from _log(log_path(default_home()))
    yield from _config(config_path())
    try:
        context = current_context()
    except YunheError as error:
        yield Finding("config", False, error.problem, error.remedy)
        return
    reachable, findings = _server(context)
    yield from findings
    if reachable:
        yield from _account(context)


def _disk(home: Path) -> Finding:
    there = next(folder for folder in (home, *home.parents) if folder.exists())
    free_gib = shutil.disk_usage(there).free / 1024**3
    remedy = f"Free some space, or set YUNHE_HOME to a larger disk than that of {there}."
    return Finding("disk", free_gib >= LEAST_FREE_GIB, f"{free_gib:.1f} GiB free at {there}", remedy)


def _ssh() -> Finding:
    path = shutil.which("ssh")
    remedy = "Install the OpenSSH client; without it only local pools work."
    return Finding("ssh", path is not None, path or "there is no ssh on the PATH", remedy)


def _log(path: Path) -> Iterator[Finding]:
    """Tell where this machine's server logs, and its last errors; those of the past are no fault of today."""
    files = log_files(path)
    if files:
        size_mib = sum(file.stat().st_size for file in files) / 1024**2
        count, last = last_errors(path, ERRORS_SHOWN)
        lines = [f"{path}, {size_mib:.1f} MiB, {count or 'no'} error{'' if count == 1 else 's'}"]
        lines += [f"{error.time}  {error.sentence[:ERROR_CHARACTERS]}" for error in last]
        yield Finding("log", True, "\n             ".join(lines))


def _config(path: Path) -> Iterator[Finding]:
    if path.exists():
        private = not stat.S_IMODE(path.stat().st_mode) & 0o077
        detail = f"{path}, readable by {'you alone' if private else 'others'}"
        yield Finding("config", private, detail, f"chmod 600 {path}")


def _server(context: Context) -> tuple[bool, list[Finding]]:
    remedy = "Start it with `yunhe up`, or check the address with `yunhe config show`."
    try:
        answer = probe(context.url, verify=context.ca_file or True)
    except (TransportError, OSError) as error:
        return False, [Finding("server", False, f"{context.url} does not answer: {error}", remedy)]
    ready = answer.status == 200
    state = "ready" if ready else f"not ready: {answer.body.decode(errors='replace')[:200]}"
    findings = [Finding("server", ready, f"{context.url} {state}", f"Look at {log_path(default_home())}.")]
    if ready:
        states = set(msgspec.json.decode(answer.body, type=Readiness).modules.values()) - {"ready"}
        findings += [Finding("server", False, state, "Free some space on its disk.") for state in states]
    if "date" in answer.headers:
        skew_s = abs(parsedate_to_datetime(answer.headers["date"]).timestamp() - time.time())
        remedy = "Let a time service (chrony, systemd-timesyncd) keep both clocks."
        findings.append(
            Finding("clock", skew_s <= MOST_SKEW_S, f"within {skew_s:.0f} s of the server's", remedy)
        )
    return ready, findings


def _account(context: Context) -> Iterator[Finding]:
    try:
        with connected(context) as client:
            who = client.me()
            roles = ", ".join(f"{m.role} in {m.project_id}" for m in who.memberships)
            yield Finding("key", True, f"{who.name}: {roles or 'no project yet'}")
            yield _project(client, context)
            yield from _pools(client)
    except YunheError as error:
        yield Finding(
            "key", False, error.problem, error.remedy or "Get a key from an admin, then `yunhe login`."
        )


def _project(client: Client, context: Context) -> Finding:
    known = {str(project.id) for project in client.projects()}
    remedy = f"Make it with `yunhe project create {context.project}`, or `yunhe project use` another."
    standing = "in use" if context.project in known else "does not exist, or you may not see it"
    return Finding("project", context.project in known, f"{context.project} {standing}", remedy)


def _pools(client: Client) -> Iterator[Finding]:
    pools = client.pools()
    if not pools:
        yield Finding("pools", False, "there is none", "Add one with `yunhe pool add`.")
    for pool in pools:
        well = pool.state is PoolState.READY and not pool.unfit
        detail = f"{pool.spec.name} {pool.standing}" + (f": {pool.reason}" if pool.reason else "")
        version = f"   agent {pool.engine_version}, {pool.limits}" if pool.engine_version else ""
        yield Finding(
            "pool", well, detail + version, f"`yunhe pool check {pool.spec.name}` shows what fails."
        )
        for notice in pool.notices:
            yield Finding("pool", False, f"{pool.spec.name}: {notice}", "Look at that host.")
