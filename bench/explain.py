"""`yunhe explain` end to end over a hundred live pools: a new process, the API, the page. Limit 0.5 s each.

Run with ``python -m bench.explain``. Interpreter and command alternate, so that both meet the same machine.
"""

import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from random import Random

from bench.server_process import ServerProcess, free_port, server
from yunhe.control.plugins.model import PoolSpec
from yunhe.entrypoints.client import Client
from yunhe.kernel.money import Prices
from yunhe.kernel.places import Level, Place
from yunhe.scheduling.orchestration.jobs import Job
from yunhe.scheduling.orchestration.states import JobState
from yunhe.trading.applications.model import Submission
from yunhe.trading.demand.model import ResourceSpec, Task

POOLS = 100
ROUNDS = 9
LIMIT_S = 0.5
REGIONS = ("cn-east", "cn-north", "cn-south", "cn-west")


def add_pools(client: Client, count: int = POOLS, seed: int = 3) -> None:
    """Add pools that differ in size, place and price; three of them take no work."""
    rng = Random(seed)
    for number in range(count):
        place = Place(
            REGIONS[number % 4], rng.uniform(20, 45), rng.uniform(100, 122), list(Level)[number % 3]
        )
        options = {"cpus": str(rng.choice((4, 8, 16, 32))), "memory": rng.choice(("8GB", "16GB", "64GB"))}
        name = f"pool-{number:03d}"
        list(
            client.add_pool(
                PoolSpec(name=name, kind="fake", target=f"t{number}", options=options, place=place)
            )
        )
        client.set_prices(name, Prices(rng.randrange(20_000, 90_000), rng.randrange(2_000, 9_000)))
    for number in range(3):
        client.drain_pool(f"pool-{number:03d}")


def submit(client: Client) -> dict[str, Job]:
    """Submit a job that is placed and one that nobody has room for, and wait until both are decided."""
    small = Task(
        name="train",
        run="sleep 600\n",
        near="cn-east@31.2,121.5",
        resources=ResourceSpec(cpus=6, memory="12GB"),
    )
    giant = Task(name="giant", run="true\n", resources=ResourceSpec(cpus=48, memory="20GB"))
    jobs = {
        "placed": client.submit(Submission(task=small)),
        "waiting": client.submit(Submission(task=giant)),
    }
    until = time.monotonic() + 30
    while client.job(jobs["placed"].id).state is JobState.PENDING and time.monotonic() < until:
        time.sleep(0.1)
    return jobs


def explained_s(served: ServerProcess, job: Job) -> tuple[float, float, float]:
    """Return the median and the best time of the command, and the processor time it takes."""
    environment = os.environ | {"YUNHE_URL": served.url, "YUNHE_KEY": served.key}
    command = [sys.executable, "-m", "yunhe.entrypoints.cli", "explain", job.id]
    taken: list[float] = []
    spent: list[float] = []
    for _ in range(ROUNDS + 1):  # the first writes bytecode and is not counted
        began, cpu_s = time.perf_counter(), children_cpu_s()
        subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL)
        taken.append(time.perf_counter() - began)
        spent.append(children_cpu_s() - cpu_s)
    return statistics.median(taken[1:]), min(taken[1:]), statistics.median(spent[1:])


def children_cpu_s() -> float:
    """Return the processor time of all children so far."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> None:
    """Print a line for each kind of job; fail when one is over the limit."""
    over = False
    with ExitStack() as stack:
        home = Path(tempfile.mkdtemp(prefix="yunhe-bench-"))
        stack.callback(shutil.rmtree, home, ignore_errors=True)
        served = stack.enter_context(server(home, free_port()))
        client = stack.enter_context(Client(served.url, served.key))
        add_pools(client)
        for name, job in submit(client).items():
            median_s, best_s, cpu_s = explained_s(served, job)
            print(
                f"explain, {name:<8} over {POOLS} pools   median {median_s * 1000:4.0f} ms, "
                f"best {best_s * 1000:4.0f} ms, {cpu_s * 1000:4.0f} ms of processor time"
            )
            over = over or best_s > LIMIT_S
    if over:
        print(f"✗ over the limit of {LIMIT_S:g} s")
        sys.exit(1)


if __name__ == "__main__":
    main()
