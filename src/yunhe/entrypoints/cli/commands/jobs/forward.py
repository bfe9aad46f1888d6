"""``yunhe forward``: a job's ports on this machine."""

import functools
import re
import sys
from collections.abc import Sequence
from typing import Annotated, NamedTuple

import anyio
import msgspec
import typer
from anyio.abc import Listener, SocketAttribute, SocketStream

from yunhe.entrypoints.cli.session.connection import connected, find_job
from yunhe.entrypoints.cli.session.context import Context, current_context
from yunhe.entrypoints.cli.session.tunnel import PortTunnel
from yunhe.entrypoints.cli.terminal.follow import INTERRUPTED, await_start, exit_code
from yunhe.entrypoints.cli.terminal.screen import (
    Format,
    JobArgument,
    OutputOption,
    PlainApp,
    err,
    out,
)
from yunhe.entrypoints.client import AsyncClient
from yunhe.entrypoints.client.errors import ServerUnreachableError
from yunhe.kernel.errors import ConflictError, DatabaseUnavailableError, InvalidInputError
from yunhe.kernel.ids import JobId
from yunhe.scheduling.orchestration.jobs.model import Job
from yunhe.scheduling.orchestration.jobs.states import FINAL, JobState

app = PlainApp()
HOST = "127.0.0.1"
MOST_PORTS = 64
LAST_PORT = 65_535
_PAIR = re.compile(r"(?:(\d{0,5}):)?(\d{1,5})")


class PortPair(NamedTuple):
    """A port here, 0 for any, and the one in the job."""

    local: int
    remote: int


@app.command()
def forward(
    job: JobArgument,
    ports: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[PORT | LOCAL:REMOTE]…",
            help="Ports of the job; those that its task names when not said.",
        ),
    ] = None,
    *,
    output: OutputOption = Format.TABLE,
) -> None:
    """Reach a running job's ports from this machine, as if its programs ran here.

    Listens on 127.0.0.1 and carries each connection through the platform into the job; nothing is opened on the
    machine where the job runs. LOCAL:REMOTE when the port here is another one, :REMOTE for any that is free. It waits
    for a job that has not started, goes on while the platform restarts and the job moves, and ends with the job: the
    exit code is then the job's. Ctrl-C ends the forwarding, not the job.

    Examples:
      yunhe forward notebook
      yunhe forward train 6006
      yunhe forward train 8080:80 9000:8888
    """
    context = current_context()
    try:
        with connected(context) as client:
            found = await_start(client, find_job(client, job))
            pairs = _pairs(found, ports or ())
        raise typer.Exit(anyio.run(_forward, context, found, pairs, output))
    except KeyboardInterrupt:
        err().print("\nNothing is forwarded any more. The job goes on.")
        raise typer.Exit(INTERRUPTED) from None


def _pairs(job: Job, said: Sequence[str]) -> list[PortPair]:
    if job.state in FINAL:
        raise ConflictError(
            f"{job.name} ({job.id}) has ended: {job.state}.", remedy="Run it again: yunhe run."
        )
    if not said and not job.ports:
        raise InvalidInputError(
            f"The task of {job.name} names no ports.",
            remedy=f"Say which: yunhe forward {job.name} 8888. Or write ports: 8888 into the task.",
        )
    pairs = [_pair(text) for text in said] or [PortPair(port, port) for port in job.ports]
    if len(pairs) > MOST_PORTS:
        raise InvalidInputError(
            f"{len(pairs)} ports are more than the {MOST_PORTS} that are forwarded at once.",
            remedy=f"Say which: yunhe forward {job.name} {pairs[0].remote}.",
        )
    return pairs


def _pair(text: str) -> PortPair:
    found = _PAIR.fullmatch(text)
    remote = int(found[2]) if found else 0
    local = int(found[1] or 0) if found and found[1] is not None else remote
    if not 0 < remote <= LAST_PORT or local > LAST_PORT:
        raise typer.BadParameter(f"{text!r} must be PORT or LOCAL:REMOTE, each from 1 to {LAST_PORT}")
    return PortPair(local, remote)


async def _forward(context: Context, job: Job, pairs: list[PortPair], output: Format) -> int:
    async with AsyncClient(context.url, context.key, verify=context.ca_file or True) as client:
        listeners = [await _listen(pair, job) for pair in pairs]
        opened = [
            PortPair(listener.extra(SocketAttribute.local_port), pair.remote)  # noqa: S610 - no database is near
            for listener, pair in zip(listeners, pairs, strict=True)
        ]
        _tell(job, opened, output)
        ended = job
        async with anyio.create_task_group() as group:
            for listener, pair in zip(listeners, opened, strict=True):
                tunnel = PortTunnel(client, job.id, pair.remote, _say)
                group.start_soon(functools.partial(listener.serve, tunnel.carry))
            ended = await _until_end(client, job.id)
            group.cancel_scope.cancel()
    _say(f"{job.name} has ended: {ended.state}. Nothing is forwarded any more.")
    return exit_code(ended)


async def _listen(pair: PortPair, job: Job) -> Listener[SocketStream]:
    try:
        return await anyio.create_tcp_listener(local_host=HOST, local_port=pair.local)
    except OSError as error:
        raise InvalidInputError(
            f"Port {pair.local} of this machine cannot be used: {error.strerror or error}.",
            remedy=f"Choose another: yunhe forward {job.name} :{pair.remote} takes one that is free.",
        ) from None


async def _until_end(client: AsyncClient, job_id: JobId) -> Job:
    """Return the job once it has ended; a platform that is away for long is waited for."""
    running = True
    while True:
        try:
            async for now in client.watch(job_id):
                if now.state in FINAL:
                    return now
                runs = now.state in {JobState.RUNNING, JobState.FINISHING}
                if runs != running:
                    _say(
                        "It runs: connections are made again."
                        if runs
                        else f"The job is {now.state}: {now.reason}"
                    )
                running = runs
        except (ServerUnreachableError, DatabaseUnavailableError) as error:
            _say(f"{error.problem} It is tried again.")


def _tell(job: Job, pairs: list[PortPair], output: Format) -> None:
    if output is Format.JSON:
        ports = [{"local": one.local, "remote": one.remote} for one in pairs]
        sys.stdout.write(msgspec.json.encode({"job_id": job.id, "ports": ports}).decode() + "\n")
        sys.stdout.flush()
    for pair in pairs if output is Format.TABLE else ():
        out().print(f"http://{HOST}:{pair.local} → port {pair.remote} of {job.name}")
    _say("Ctrl-C ends the forwarding; the job goes on.")


def _say(words: str) -> None:
    err().print(words, soft_wrap=True)
