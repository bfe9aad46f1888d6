"""`yunhe explain` end to end over a hundred live pools: a new process, the API, the page. Limit 0.5 s each.

Run with ``python -m bench.explain``. Beside it stand the interpreter alone and one that loads the four libraries every
command needs: what is above those is ours.
"""

import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from random import Random
from typing import NamedTuple

from bench.server_process import ServerProcess, free_port, server
from yunhe.control.pools.model import PoolSpec
from yunhe.entrypoints.client import Client
from yunhe.kernel.money import Prices
from yunhe.kernel.places import Level, Place
from yunhe.scheduling.orchestration.jobs.model import Job
from yunhe.scheduling.orchestration.jobs.states import JobState
from yunhe.trading.applications.model import Submission
from yunhe.trading.demand.model import ResourceSpec, Task

POOLS = 100
ROUNDS = 25
LIMIT_S = 0.5
LIBRARIES = (
    "import gc; gc.disable(); import http.client, msgspec, rich.console, rich.table, typer, typer.main"
)
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


class Timing(NamedTuple):
    """What runs of one command took, on the wall and of a processor."""

    wall_s: list[float]
    cpu_s: list[float]

    def line(self, name: str) -> str:
        """Return it as a row of the table."""
        wall_ms = sorted(1000 * seconds for seconds in self.wall_s)
        figures = (statistics.median(wall_ms), statistics.quantiles(wall_ms, n=20)[-1], wall_ms[0])
        cpu_ms = 1000 * statistics.median(self.cpu_s)
        return f"  {name:<28}" + "".join(f"{figure:8.0f}" for figure in (*figures, cpu_ms))


def timed(commands: dict[str, list[str]], environment: dict[str, str]) -> dict[str, Timing]:
    """Return what each command takes; they alternate, so that all meet the same machine."""
    timings = {name: Timing([], []) for name in commands}
    for _ in range(ROUNDS):
        for name, command in commands.items():
            began, cpu_s = time.perf_counter(), children_cpu_s()
            subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL)
            timings[name].wall_s.append(time.perf_counter() - began)
            timings[name].cpu_s.append(children_cpu_s() - cpu_s)
    return timings


def children_cpu_s() -> float:
    """Return the processor time of all children so far."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


@contextmanager
def a_busy_core() -> Generator[None]:
    """Keep one core busy with something else."""
    process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        yield
    finally:
        process.kill()
        process.wait()


def installed(home: Path, served: ServerProcess) -> dict[str, str]:
    """Return an environment in which Python finds compiled modules, as it does where Yunhe is installed."""
    environment = os.environ | {"YUNHE_URL": served.url, "YUNHE_KEY": served.key}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    return environment | {"PYTHONPYCACHEPREFIX": str(home / "compiled")}


def main() -> None:
    """Print a table on a machine left alone and one beside a busy core; fail when a median is over the limit."""
    slowest_s = 0.0
    with ExitStack() as stack:
        home = Path(tempfile.mkdtemp(prefix="yunhe-bench-"))
        stack.callback(shutil.rmtree, home, ignore_errors=True)
        served = stack.enter_context(server(home, free_port()))
        client = stack.enter_context(Client(served.url, served.key))
        add_pools(client)
        jobs = submit(client)
        yunhe = [sys.executable, "-m", "yunhe.entrypoints.cli"]
        commands = {
            "interpreter alone": [sys.executable, "-c", "pass"],
            "and the libraries": [sys.executable, "-c", LIBRARIES],
            **{f"explain, {name}": [*yunhe, "explain", job.id] for name, job in jobs.items()},
            "ps": [*yunhe, "ps"],
        }
        environment = installed(home, served)
        for command in commands.values():
            subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL)
        for circumstances, meanwhile in (("left alone", nullcontext), ("beside a busy core", a_busy_core)):
            with meanwhile():
                timings = timed(commands, environment)
            print(f"{POOLS} pools, {circumstances}; ms".ljust(30) + "  median     p95    best     cpu")
            print("\n".join(timing.line(name) for name, timing in timings.items()))
            slowest_s = max(slowest_s, *(statistics.median(timing.wall_s) for timing in timings.values()))
    if slowest_s > LIMIT_S:
        print(f"✗ over the limit of {LIMIT_S:g} s")
        sys.exit(1)


if __name__ == "__main__":
    main()
