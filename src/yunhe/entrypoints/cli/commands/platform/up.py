"""``yunhe up``: one command from nothing to a finished job."""

import re
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.text import Text

from yunhe.control.pools.model import Check, Pool, PoolSpec, PoolState
from yunhe.entrypoints.cli.commands.pools.prices import parse_prices
from yunhe.entrypoints.cli.session import daemon
from yunhe.entrypoints.cli.session.connection import connected
from yunhe.entrypoints.cli.session.context import LOCAL, Context, load_config, save_config
from yunhe.entrypoints.cli.terminal.follow import exit_code, final_cost, follow
from yunhe.entrypoints.cli.terminal.screen import (
    HomeOption,
    LogLevelOption,
    PlainApp,
    amount,
    err,
    hints,
    refuse_visible_password,
    spinner,
)
from yunhe.entrypoints.cli.views.jobs import cost_text, used_text
from yunhe.entrypoints.cli.views.pools import total
from yunhe.entrypoints.client import Client
from yunhe.kernel.errors import ConflictError, PoolUnreachableError, UnauthenticatedError
from yunhe.kernel.units import show_duration
from yunhe.runtime.settings import DEFAULT_PORT, LogLevel, default_home
from yunhe.scheduling.orchestration.jobs.model import Job
from yunhe.trading.applications.model import Submission
from yunhe.trading.demand.model import ResourceSpec, Task

app = PlainApp()

POOL = "this-machine"
NOTIONAL_PRICES = "cpu=0.05/h,mem=0.01/h"
SAMPLE = Task(
    name="hello",
    run='echo "hello from $(hostname)"\n',
    resources=ResourceSpec(cpus=0.5, memory="256MB", pool=POOL),
)


@app.command()
def up(  # noqa: PLR0913 - each is an option
    context: typer.Context,
    *,
    port: Annotated[
        int | None,
        typer.Option(
            min=1, max=65535, help=f"Where to listen on loopback; as last time, first {DEFAULT_PORT}."
        ),
    ] = None,
    database: Annotated[
        str | None,
        typer.Option(envvar="YUNHE_DATABASE", help="postgresql://…; as last time, first SQLite."),
    ] = None,
    home: HomeOption = None,
    agent_root: Annotated[
        str, typer.Option(help="Where this machine's agent keeps jobs while they run.")
    ] = "",
    log_level: LogLevelOption = LogLevel.INFO,
    sample: Annotated[bool, typer.Option(help="Run the sample job.")] = True,
) -> None:
    """Bring up a platform on this machine: a server, this machine as its pool, a key, and a sample job.

    Again, it finds what runs and leaves it alone. `yunhe down` stops the server; jobs and data stay. A platform in
    another --home is one of its own, with a context named after the folder.

    Examples:
      yunhe up
      yunhe up --port 8700 --no-sample
    """
    refuse_visible_password(context)
    at = (home or default_home()).resolve()
    last = daemon.last_start(at) or daemon.LastStart(DEFAULT_PORT)
    server = daemon.running(at)
    if server is None:
        with spinner("starting the server"):
            server = daemon.start(
                at,
                last.port if port is None else port,
                ["--log-level", log_level],
                database=last.database if database is None else database,
            )
    elif port is not None and not server.url.endswith(f":{port}"):
        raise ConflictError(
            f"The server of {at} runs already, at {server.url}.",
            remedy=f"Use it, or stop it first: {daemon.command('down', home)}.",
        )
    elif not daemon.answers(server.url):
        with spinner("waiting for the server"):
            daemon.await_ready(server, at)
    with connected(_kept_key(at, server.url)) as client:
        pool = _ensure_pool(client, {"root": agent_root} if agent_root else {})
        _tell(server.url, pool)
        if sample:
            _try(client)
    err().print(
        hints(
            {
                "next": "yunhe run examples/hello.yaml",
                "jobs": "yunhe ps --all",
                "more": "yunhe pool add ssh user@host",
            }
        )
    )


def _kept_key(home: Path, url: str) -> Context:
    """Return the context of this machine's platform, keeping its first key for this user if they have none."""
    config = load_config()
    name = LOCAL if home == default_home().resolve() else re.sub(r"[^\w.-]", "-", home.name)
    known = msgspec.structs.replace(config.contexts.get(name, Context()), url=url)
    context = known if _accepted(known) else msgspec.structs.replace(known, key=_first_key(home))
    save_config(config.holding(name, context))
    return context


def _accepted(context: Context) -> bool:
    if not context.key:
        return False
    try:
        with connected(context) as client:
            client.me()
    except UnauthenticatedError:
        return False
    return True


def _first_key(home: Path) -> str:
    """Return the key that a new platform leaves for whoever set it up."""
    try:
        return (home / "first.key").read_text().strip()
    except OSError:
        raise UnauthenticatedError(
            "This platform has users already, and this user has no key to it.",
            remedy="Ask an admin for a key (`yunhe token create NAME --user YOU`), then `yunhe login URL`.",
        ) from None


def _ensure_pool(client: Client, options: dict[str, str]) -> Pool:
    """Return this machine as a pool, ready."""
    shared = {"forwarding": "off", **options}  # one's own tasks reach what one runs on this machine
    spec = PoolSpec(name=POOL, kind="local", options=shared, prices=parse_prices(NOTIONAL_PRICES))
    known = next((pool for pool in client.pools() if pool.spec.name == POOL), None)
    if known is not None and known.state is PoolState.READY:
        return known
    found: Pool | None = None
    failed: Check | None = None
    with spinner("making this machine a pool") as turning:
        for step in client.add_pool(spec) if known is None else client.check_pool(POOL):
            if isinstance(step, Pool):
                found = step
            else:
                turning.say(f"making this machine a pool: {step.step}")
                failed = failed or (None if step.ok else step)
    if found is None or failed is not None:
        raise PoolUnreachableError(
            f"This machine cannot be a pool: {failed.step + ' ' + failed.detail if failed else 'no answer'}.",
            remedy=(failed.remedy if failed else "") or f"`yunhe pool check {POOL}` shows each step.",
        )
    return found


def _tell(url: str, pool: Pool) -> None:
    console = err()
    console.print(Text.assemble(("Yunhe is up.", "bold"), f"   API {url}/docs"))
    console.print(
        f"  pool  {pool.spec.name}   {amount(total(pool))}   {pool.limits or pool.engine}   {pool.standing}"
    )
    console.print("  key   saved for this user; see `yunhe token ls`")


def _try(client: Client) -> None:
    """Run the sample to its end and tell what came of it."""
    job = follow(client, client.submit(Submission(task=SAMPLE)))
    report = final_cost(client, job)
    err().print(_ending(job))
    err().print(f"        {used_text(job)}, {cost_text(report)}")
    if exit_code(job):
        raise typer.Exit(exit_code(job))


def _ending(job: Job) -> str:
    mark = "✓" if exit_code(job) == 0 else "✗"
    took = show_duration((job.ended_at or job.submitted_at) - job.submitted_at)
    why = f" ({job.reason})" if exit_code(job) and job.reason else ""
    return f"  try   {job.name}  {mark} {job.state}{why} in {took} on {POOL}"
