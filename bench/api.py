"""The API: submissions a second, latency under ten thousand jobs, memory, and the first decision after a start."""

import sqlite3
import statistics
import tempfile
import time
from pathlib import Path
from uuid import uuid4

import msgspec

from bench.load import Latencies, Request, Source, latencies, rate
from bench.server_process import ServerProcess, free_port, server
from yunhe.control.pools.model import PoolSpec, Step
from yunhe.entrypoints.client import Client
from yunhe.entrypoints.wire import Batch
from yunhe.kernel.ids import JobId, ProjectId, new_id
from yunhe.kernel.resources import Resources
from yunhe.scheduling.decision.model import Alternative, Demand
from yunhe.scheduling.orchestration.jobs import store
from yunhe.scheduling.orchestration.jobs.model import JobOrder
from yunhe.scheduling.orchestration.jobs.states import JobState
from yunhe.storage.database import Database
from yunhe.trading.applications.model import Submission
from yunhe.trading.demand.model import ResourceSpec, Task

ROUNDS = 5
ROUND_S = 2.0
BATCH = 100
QUEUED = 10_000
RUNNING = 200
OFFERED_PER_S = 50.0
LATENCY_S = 8.0
STORED = 100_000

WAITING = Submission(
    task=Task(name="waits", run="true", envs={"NUMBER": "1"}, resources=ResourceSpec(cpus=512, memory="1GB"))
)
LASTING = Submission(task=Task(name="lasts", run="sleep 86400", resources=ResourceSpec(cpus=1, memory="1GB")))
JSON = ("Content-Type", "application/json")


def main() -> None:
    """Print the tables."""
    with tempfile.TemporaryDirectory(prefix="yunhe-bench-") as folder:
        submissions(Path(folder) / "submissions")
        crowded(Path(folder) / "crowded")
        first_decision(Path(folder) / "stored")


def submissions(home: Path) -> None:
    """Print submissions per second as a ratio to an endpoint that does nothing."""
    with server(home, free_port()) as served:
        _add_pool(served)
        print(f"idle server   {_memory(served)}")
        kinds: dict[str, tuple[Source, int]] = {
            "no-op": (_noop, 1),
            "submit": (_submit, 1),
            f"batch of {BATCH}": (_submit_batch, BATCH),
        }
        rates: dict[str, list[float]] = {name: [] for name in kinds}
        for _ in range(ROUNDS):
            for name, (source, jobs) in kinds.items():
                rates[name].append(jobs * rate(served.port, served.key, source, ROUND_S))
        base = statistics.median(rates["no-op"])
        print(
            f"{'':14}{'per second':>12}{'ratio to no-op':>16}   median of {ROUNDS} interleaved rounds of {ROUND_S:g} s"
        )
        for name, values in rates.items():
            middle = statistics.median(values)
            print(f"{name:14}{middle:12.0f}{middle / base:16.2f}   {min(values):.0f} … {max(values):.0f}")
        print(f"after {_count(home)} jobs   {_memory(served)}")


def crowded(home: Path) -> None:
    """Print latency with ten thousand jobs waiting and two hundred running."""
    with server(home, free_port()) as served:
        _add_pool(served)
        with Client(served.url, served.key) as client:
            running = client.submit_batch([LASTING] * RUNNING)
            for start in range(0, QUEUED, 500):
                client.submit_batch([WAITING] * min(500, QUEUED - start))
            _await_running(client)
        asked = [str(job.id) for job in running]
        sources: dict[str, Source] = {"no-op": _noop, "mixed": lambda number: _mixed(number, asked)}
        runs: dict[str, list[Latencies]] = {name: [] for name in sources}
        used, began = served.cpu_s(), time.perf_counter()
        time.sleep(5)
        quiet = (served.cpu_s() - used) / (time.perf_counter() - began)
        for _ in range(ROUNDS):
            for name, source in sources.items():
                runs[name].append(latencies(served.port, served.key, source, OFFERED_PER_S, LATENCY_S))
        print(
            f"\n{QUEUED} queued, {RUNNING} running, {OFFERED_PER_S:g} requests/s offered, {ROUNDS} interleaved runs of {LATENCY_S:g} s"
        )
        print(f"{'':14}{'p50 ms':>10}{'p99 ms':>10}   median over runs")
        for name, measured in runs.items():
            p50, p99 = (statistics.median(run.percentile(p) for run in measured) for p in (50, 99))
            print(
                f"{name:14}{p50:10.1f}{p99:10.1f}   worst run p99 {max(run.percentile(99) for run in measured):.1f}"
            )
        print(f"server   {_memory(served)}   {quiet:.0%} of a core when nobody calls")


def first_decision(home: Path) -> None:
    """Print how long a start takes until the first job is placed, with a hundred thousand in the store."""
    with server(home, free_port()) as served:
        _add_pool(served)
    _fill(home)
    port, began = free_port(), time.perf_counter()
    served = ServerProcess(home, port, "fake")
    try:
        served.wait_ready()
        ready_s = time.perf_counter() - began
        while not _placed(home):
            time.sleep(0.02)
        print(
            f"\n{STORED} jobs in the store: ready after {ready_s:.1f} s, first decision after {time.perf_counter() - began:.1f} s"
        )
        print(f"server   {_memory(served)}   stopped in {served.stop():.1f} s")
    finally:
        served.kill()


def _noop(_: int) -> Request:
    return Request("POST", "/noop", b"{}", (JSON,))


def _submit(_: int) -> Request:
    return Request(
        "POST", "/v1/jobs", msgspec.json.encode(WAITING), (JSON, ("Idempotency-Key", uuid4().hex)), expect=201
    )


def _submit_batch(_: int) -> Request:
    body = msgspec.json.encode(Batch((WAITING,) * BATCH))
    return Request("POST", "/v1/jobs/batch", body, (JSON, ("Idempotency-Key", uuid4().hex)), expect=201)


def _mixed(number: int, jobs: list[str]) -> Request:
    """Return what people ask for: mostly one job, often a list, sometimes why, now and then a new one."""
    job = jobs[number % len(jobs)]
    match number % 10:
        case 0 | 1 | 2 | 3:
            return Request("GET", f"/v1/jobs/{job}")
        case 4 | 5:
            return Request("GET", "/v1/jobs?limit=50")
        case 6:
            return Request("GET", f"/v1/jobs?limit=50&state={JobState.RUNNING}")
        case 7:
            return Request("GET", f"/v1/jobs/{job}/explain")
        case 8:
            return Request("GET", "/v1/cost?by=project")
        case _:
            return _submit(number)


def _add_pool(served: ServerProcess) -> None:
    with Client(served.url, served.key) as client:
        options = {"cpus": str(RUNNING), "memory": f"{RUNNING}GB"}
        list(client.add_pool(PoolSpec(name="bench", kind="fake", target="bench", options=options)))


def _await_running(client: Client) -> None:
    deadline = time.monotonic() + 120
    while sum(1 for _ in client.jobs(states=[JobState.RUNNING])) < RUNNING:
        if time.monotonic() > deadline:
            raise RuntimeError("the jobs that should run do not")
        time.sleep(0.2)


def _fill(home: Path) -> None:
    """Put jobs that wait straight into the store: every other one too large for the pool."""
    database = Database(f"sqlite:///{home / 'yunhe.db'}")
    now = time.time()
    for start in range(0, STORED, 5000):
        orders = [_order(now, number) for number in range(start, min(start + 5000, STORED))]
        with database.engine.connect() as connection, connection.begin():
            store.insert_jobs(connection, orders, now)
    database.close()


def _order(now: float, number: int) -> JobOrder:
    job_id, project = JobId(new_id("job", now)), ProjectId("default")
    asks = Resources(cpu_millis=1000 if number % 2 else 512_000, memory_mib=1024)
    demand = Demand(job_id=job_id, project_id=project, alternatives=(Alternative(asks),))
    return JobOrder(
        demand=demand, name="stored", submitted_by="bench", steps=(Step(name="run", script="sleep 86400"),)
    )


def _placed(home: Path) -> bool:
    with sqlite3.connect(f"file:{home / 'yunhe.db'}?mode=ro", uri=True) as connection:
        return bool(connection.execute("SELECT count(*) FROM orchestration_allocation").fetchone()[0])


def _count(home: Path) -> int:
    with sqlite3.connect(f"file:{home / 'yunhe.db'}?mode=ro", uri=True) as connection:
        return connection.execute("SELECT count(*) FROM orchestration_job").fetchone()[0]


def _memory(served: ServerProcess) -> str:
    resident, proportional = served.memory_mib()
    return f"RSS {resident:.0f} MiB  PSS {proportional:.0f} MiB"


if __name__ == "__main__":
    main()
