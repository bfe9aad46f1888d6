"""How soon a platform is back: a server's restart, a worker's takeover, PostgreSQL's return, an agent's restart.

Run ``python -m bench.recovery [ROUNDS]``. Each time ends when a job that is submitted after the fault, or was driven by
a worker that froze, has run to its end. The median of each and its range are printed.
"""

import os
import signal
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio
import anyio.to_thread
import sqlalchemy as sa

# The platform under test is that of the fault campaign.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from faults.campaign import Campaign, Plan, campaign
from support import agent_processes, postgres
from yunhe.scheduling.orchestration.jobs.states import FINAL, JobState
from yunhe.scheduling.orchestration.jobs.tables import JOBS
from yunhe.storage.database import Database
from yunhe.trading.applications.model import Submission
from yunhe.trading.demand.model import ResourceSpec, Task

ROUNDS = 10
AWAY_S = 3.0
POSTGRES_WITHIN_S = 3.0


async def submit(run: Campaign, seconds: float = 0.0) -> str:
    """Submit a job that takes *seconds*; return its ID."""
    task = Task(run=f"sleep {seconds}", resources=ResourceSpec(cpus=0.1))
    return (await run.persist(lambda client: client.submit(Submission(task=task)))).id


async def reach(run: Campaign, job_id: str, *states: JobState) -> None:
    """Wait until a job is in one of *states*; one that fails ends the measurement."""
    with anyio.fail_after(120.0):
        while True:
            job = await run.persist(lambda client: client.job(job_id))
            assert job.state is not JobState.FAILED, job.reason
            if job.state in states:
                return
            await anyio.sleep(0.02)


async def job_runs(run: Campaign) -> None:
    """Submit a job and wait until it has run."""
    await reach(run, await submit(run), *FINAL)


async def server_restart(run: Campaign, _socket_folder: str) -> float:
    """Kill the server that answers requests; time until it answers and a job has run."""
    api = run.servers[0]
    api.kill()
    began = time.monotonic()
    await job_runs(run)
    return time.monotonic() - began


async def worker_takeover(run: Campaign, _socket_folder: str) -> float:
    """Freeze the worker that drives a job; time until the other one has written the job's end."""
    job_id = await submit(run, 1.0)
    await reach(run, job_id, JobState.RUNNING)
    database = Database(run.database_url)
    owner = await database.read(lambda c: c.scalar(sa.select(JOBS.c.lease_owner).where(JOBS.c.id == job_id)))
    database.close()
    (frozen,) = (server for server in run.servers if f":{server.pid}:" in str(owner))
    os.kill(frozen.last_pid, signal.SIGSTOP)
    began = time.monotonic()
    try:
        await reach(run, job_id, *FINAL)
        return time.monotonic() - began
    finally:
        frozen.thaw()


async def postgres_return(run: Campaign, socket_folder: str) -> float:
    """Take PostgreSQL away; time from when it answers again until a job has run."""
    await anyio.to_thread.run_sync(postgres.stop, socket_folder)
    await anyio.sleep(AWAY_S)
    await anyio.to_thread.run_sync(postgres.start_again, socket_folder)
    began = time.monotonic()
    await job_runs(run)
    return time.monotonic() - began


async def agent_restart(run: Campaign, _socket_folder: str) -> float:
    """Kill the agents' daemons; time until a job has run."""
    for root in run.roots.values():
        for pid in agent_processes.daemon(root):
            os.kill(pid, signal.SIGKILL)
    began = time.monotonic()
    await job_runs(run)
    return time.monotonic() - began


FAULTS: dict[str, Callable[[Campaign, str], Awaitable[float]]] = {
    "server restart": server_restart,
    "worker takeover": worker_takeover,
    "PostgreSQL's return": postgres_return,
    "agent restart": agent_restart,
}


async def measure(rounds: int) -> dict[str, list[float]]:
    """Return the seconds of every round of each fault, on three servers over PostgreSQL."""
    found: dict[str, list[float]] = {name: [] for name in FAULTS}
    plan = Plan(seed=1, jobs=0, failpoints=(), random_kills=0)
    with postgres.postgres_server() as folder:
        url = postgres.new_database(folder, "recovery")
        with campaign(plan, url) as run:
            async with anyio.create_task_group() as tasks:
                for server in run.servers:
                    tasks.start_soon(server.run)
                async with run.connected():
                    await run.add_pools()
                    await job_runs(run)
                    for name, fault in FAULTS.items():
                        for _ in range(rounds):
                            found[name].append(await fault(run, folder))
                            await anyio.sleep(1.0)
                        print(_line(name, found[name]), flush=True)
                for server in run.servers:
                    await server.stop()
    return found


def _line(name: str, seconds: list[float]) -> str:
    middle, least, most = statistics.median(seconds), min(seconds), max(seconds)
    return f"{name:20} median {middle:5.2f} s  ({least:.2f} to {most:.2f} s, {len(seconds)} rounds)"


def main() -> None:
    """Print the times; end with an error where the stated one is not kept."""
    named = [int(word) for word in sys.argv[1:] if word.isdecimal()]
    found = anyio.run(measure, named[0] if named else ROUNDS)
    if statistics.median(found["PostgreSQL's return"]) > POSTGRES_WITHIN_S:
        sys.exit(f"PostgreSQL's return took longer than {POSTGRES_WITHIN_S:g} s.")


if __name__ == "__main__":
    main()
