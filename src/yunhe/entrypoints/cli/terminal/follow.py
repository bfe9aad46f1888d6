"""Following jobs to their end; Ctrl-C lets go and never kills."""

import sys
import time
from collections.abc import Sequence

import typer

from yunhe.entrypoints.cli.terminal.log_lines import raw
from yunhe.entrypoints.cli.terminal.screen import err, hints, spinner
from yunhe.entrypoints.cli.views.jobs import ending
from yunhe.entrypoints.client import Client
from yunhe.kernel.errors import YunheError
from yunhe.kernel.ids import JobId
from yunhe.kernel.units import show_duration
from yunhe.scheduling.orchestration.jobs.model import Job
from yunhe.scheduling.orchestration.jobs.states import FINAL, JobState
from yunhe.trading.trades.model import CostReport

INTERRUPTED = 130
NOTHING_FITS = 3
"""The exit code where no pool can take a task."""
ASK_EVERY_S = 0.5
COST_PATIENCE_S = 5.0


def follow(client: Client, job: Job, *, quiet: bool = False) -> Job:
    """Stream a job's output to standard output until it ends, and return it as it ended."""
    try:
        await_start(client, job)
        for data in raw(client.logs(job.id, follow=True)):
            if not quiet:
                sys.stdout.buffer.write(data)
                sys.stdout.buffer.flush()
        return await_end(client, job.id)
    except KeyboardInterrupt:
        _let_go(client, [job])
        raise typer.Exit(INTERRUPTED) from None


def follow_all(client: Client, jobs: Sequence[Job]) -> list[Job]:
    """Wait for every job to end, telling each as it does."""
    ended: list[Job] = []
    try:
        for job in jobs:
            with spinner(
                f"{len(ended)} of {len(jobs)} ended; waiting for {job.name}   (Ctrl-C leaves them running)"
            ):
                ended.append(await_end(client, job.id))
    except KeyboardInterrupt:
        _let_go(client, jobs[len(ended) :])
        raise typer.Exit(INTERRUPTED) from None
    return ended


def await_start(client: Client, job: Job) -> Job:
    """Show the states go by until there is output to show; return the job as it is then."""
    passed: list[str] = []
    now = job
    with spinner(f"{job.id} {job.state}") as turning:
        for now in client.watch(job.id):
            if not passed or passed[-1] != now.state:
                passed.append(now.state)
            why = f"   {now.reason}" if now.reason and now.state is JobState.PENDING else ""
            turning.say(f"{job.id} {' → '.join(passed)}{why}   (Ctrl-C leaves it running)")
            if now.state in FINAL or now.state in {JobState.RUNNING, JobState.FINISHING}:
                break
    return now


def give_up_after(client: Client, jobs: Sequence[Job], patience_s: float) -> None:
    """Wait so long for every job to have a place; stop those that have none by then, and leave by ``NOTHING_FITS``."""
    give_up = time.monotonic() + patience_s
    waiting = [job.id for job in jobs]
    with spinner(f"waiting {show_duration(patience_s)} at most for a place") as turning:
        while waiting:
            states = {job_id: client.job(job_id) for job_id in waiting}
            waiting = [job_id for job_id, job in states.items() if job.state is JobState.PENDING]
            if not waiting or time.monotonic() >= give_up:
                break
            turning.say(f"waiting: {states[waiting[0]].reason or states[waiting[0]].name}")
            time.sleep(min(ASK_EVERY_S, max(0.0, give_up - time.monotonic())))
        for job_id in waiting:
            client.stop(job_id)
    if not waiting:
        return
    for job_id in waiting:
        err().print(f"✗ {job_id} had no place after {show_duration(patience_s)} and was stopped.")
    err().print(hints({"why": f"yunhe explain {waiting[0]}"}))
    raise typer.Exit(NOTHING_FITS)


def await_end(client: Client, job_id: JobId) -> Job:
    """Return a job once it has ended."""
    job = client.job(job_id)
    if job.state not in FINAL:
        for job in client.watch(job_id):
            if job.state in FINAL:
                break
    return job


def _let_go(client: Client, jobs: Sequence[Job]) -> None:
    for job in jobs:
        err().print(f"\n{job.name} ({job.id}) is left {_state(client, job)}.")
        err().print(hints({"come back": f"yunhe logs -f {job.id}", "stop it": f"yunhe stop {job.id}"}))


def _state(client: Client, job: Job) -> str:
    """Return how a job stands in a word; one that has not started is not said to run."""
    try:
        state = client.job(job.id).state
    except YunheError:
        return "as it is"
    return "waiting" if state is JobState.PENDING else str(state)


def tell_ending(client: Client, job: Job) -> None:
    """Say how a job ended, what it used and what it costs."""
    err().print(ending(job, final_cost(client, job)))


def final_cost(client: Client, job: Job) -> CostReport:
    """Return the job's cost; a job that ran is billed a moment after it ended."""
    give_up = time.monotonic() + COST_PATIENCE_S
    while True:
        report = client.cost(by="job", job=job.id)
        if report.lines or not job.attempts or time.monotonic() > give_up:
            return report
        time.sleep(0.1)


def exit_code(job: Job) -> int:
    """Return what the shell should see: the job's own code, 128 + signal, or 1 where it has none."""
    if job.state is JobState.SUCCEEDED:
        return 0
    code = job.exit_code or 1
    return code if 0 < code < 256 else (128 - code if -128 < code < 0 else 1)
