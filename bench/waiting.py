"""Time until a job that fits starts, with ever more kinds of jobs waiting that nothing can hold.

Run with ``python -m bench.waiting``. One server on a fake pool; the waiting jobs are put straight into its database, no
two alike. Fitting jobs are submitted one after another while the server is still looking at those that wait for the
first time, and again once it has seen them all.
"""

import statistics
import sys
import tempfile
import time
from pathlib import Path

from bench.server_process import ServerProcess, free_port, server
from yunhe.control.pools.model import PoolSpec, Step
from yunhe.entrypoints.client import Client
from yunhe.kernel.ids import JobId, ProjectId, new_id
from yunhe.kernel.resources import Resources
from yunhe.scheduling.decision.model import Alternative, Demand
from yunhe.scheduling.orchestration.jobs import store
from yunhe.scheduling.orchestration.jobs.model import JobOrder
from yunhe.scheduling.orchestration.jobs.states import JobState
from yunhe.storage.database import Database
from yunhe.trading.applications.model import Submission
from yunhe.trading.demand.model import ResourceSpec, Task

SHAPES = (0, 1_000, 20_000, 100_000)
STARTS = 15
LIMIT_S = 1.0
FLAT = 2.0
POOL_CPUS = 8
SETTLED_CPU = 0.1
SETTLE_WITHIN_S = 600.0

FITTING = Submission(task=Task(name="fits", run="true", resources=ResourceSpec(cpus=1, memory="1GB")))


def main() -> int:
    """Print a row for each number of shapes, and return 1 where a target is missed."""
    medians: dict[str, list[float]] = {"at once": [], "settled": []}
    print(
        f"{'shapes':>9}{'at once s':>12}{'settled s':>12}{'worst s':>10}{'RSS MiB':>10}   of {STARTS} starts each"
    )
    for shapes in SHAPES:
        with tempfile.TemporaryDirectory(prefix="yunhe-bench-") as folder:
            home = Path(folder)
            with server(home, free_port()) as served:
                _add_pool(served)
                served.stop()
            _fill(home, shapes)
            with server(home, free_port()) as served:
                runs = {"at once": _starts(served)}
                _settle(served)
                runs["settled"] = _starts(served)
                resident, _ = served.memory_mib()
        for name, taken in runs.items():
            medians[name].append(statistics.median(taken))
        worst = max(max(taken) for taken in runs.values())
        print(
            f"{shapes:>9,}{medians['at once'][-1]:>12.2f}{medians['settled'][-1]:>12.2f}{worst:>10.2f}{resident:>10.0f}",
            flush=True,
        )
    missed = [
        f"{name}: {taken[-1]:.2f} s with {SHAPES[-1]:,} shapes, {taken[0]:.2f} s with none"
        for name, taken in medians.items()
        if max(taken) > LIMIT_S or max(taken) > FLAT * taken[0]
    ]
    for line in missed:
        print(f"✗ {line}")
    return int(bool(missed))


def _add_pool(served: ServerProcess) -> None:
    options = {"cpus": str(POOL_CPUS), "memory": "64GB"}
    with Client(served.url, served.key) as client:
        list(client.add_pool(PoolSpec(name="bench", kind="fake", target="bench", options=options)))


def _starts(served: ServerProcess) -> list[float]:
    """Return how long each of some fitting jobs took from the answer to its submission until it ran."""
    taken: list[float] = []
    with Client(served.url, served.key) as client:
        for _ in range(STARTS):
            began = time.perf_counter()
            job = client.submit(FITTING)
            while client.job(job.id).state in {JobState.PENDING, JobState.STARTING}:
                time.sleep(0.01)
            taken.append(time.perf_counter() - began)
    return taken


def _settle(served: ServerProcess) -> None:
    """Return when the server has looked at everything, that is, when it idles."""
    until = time.monotonic() + SETTLE_WITHIN_S
    while time.monotonic() < until:
        used, began = served.cpu_s(), time.perf_counter()
        time.sleep(3)
        if (served.cpu_s() - used) / (time.perf_counter() - began) < SETTLED_CPU:
            return


def _fill(home: Path, shapes: int) -> None:
    database, now = Database(f"sqlite:///{home / 'yunhe.db'}"), time.time()
    for start in range(0, shapes, 5000):
        orders = [_order(now, number) for number in range(start, min(start + 5000, shapes))]
        with database.engine.connect() as connection, connection.begin():
            store.insert_jobs(connection, orders, now)
    database.close()


def _order(now: float, number: int) -> JobOrder:
    asks = Resources(cpu_millis=1000 * (POOL_CPUS + 1) + number, memory_mib=1024)
    demand = Demand(
        job_id=JobId(new_id("job", now)), project_id=ProjectId("default"), alternatives=(Alternative(asks),)
    )
    return JobOrder(
        demand=demand, name="large", submitted_by="bench", steps=(Step(name="run", script="true"),)
    )


if __name__ == "__main__":
    sys.exit(main())
