"""``python -m lab.soak``: small jobs at a steady rate for hours on a platform of real processes; says what grows.

Every sample is appended to a file at once, so a run that is ended early can be judged by ``--read FILE``. Run as root, with
PostgreSQL installed (or ``--sqlite``: one server process, SQLite).
"""

import argparse
import json
import signal
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import anyio

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))

from faults.campaign import Plan, campaign
from lab.soak.growth import judge, table
from lab.soak.platform import SUCCEEDED, Soak
from support import postgres
from yunhe.storage.database import Database

SAMPLE_EVERY_S = 30.0


async def soak(run: Soak, given: argparse.Namespace) -> dict[str, int]:
    """Submit and sample until the time is over or a signal comes; return how many jobs ended how."""
    ended: dict[str, int] = {}
    async with anyio.create_task_group() as serving:
        for server in run.servers:
            serving.start_soon(server.run)
        async with run.connected():
            await run.add_pools()
            began = time.monotonic()
            async with anyio.create_task_group() as working:
                working.start_soon(_sample, run, began, given)
                with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
                    working.start_soon(_cancel_after, working, run, began, given)
                    async for _ in signals:
                        working.cancel_scope.cancel()
            with anyio.CancelScope(shield=True):
                ended = await run.drained()
        for server in run.servers:
            await server.stop()
    return ended


async def _cancel_after(
    working: anyio.abc.TaskGroup, run: Soak, began: float, given: argparse.Namespace
) -> None:
    await run.submit_at(given.rate, began + given.minutes * 60)
    working.cancel_scope.cancel()


async def _sample(run: Soak, began: float, given: argparse.Namespace) -> None:
    database = Database(run.database_url)
    try:
        for number in range(1_000_000):
            await anyio.sleep(max(0.0, began + number * given.every - time.monotonic()))
            figures = await run.sample(database)
            with given.samples.open("a") as file:
                file.write(json.dumps({"time_s": time.monotonic() - began, **figures}) + "\n")
    finally:
        database.close()


@contextmanager
def _database(given: argparse.Namespace) -> Generator[str]:
    if given.sqlite:
        yield ""
        return
    with postgres.postgres_server() as folder:
        yield postgres.new_database(folder, "soak")


def _read(path: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def main() -> None:
    """Run a soak, or read one; exit 1 where something grows or a job did not succeed."""
    parser = argparse.ArgumentParser(prog="python -m lab.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=120.0)
    parser.add_argument("--rate", type=float, default=2.0, help="jobs per second")
    parser.add_argument("--every", type=float, default=SAMPLE_EVERY_S, help="seconds between samples")
    parser.add_argument("--samples", type=Path, default=Path("soak.jsonl"), help="where samples are appended")
    parser.add_argument("--sqlite", action="store_true", help="one server process on SQLite")
    parser.add_argument("--read", type=Path, help="judge the samples of this file; run nothing")
    given = parser.parse_args()
    failed = 0
    if given.read is None:
        given.samples.write_text("")
        plan = Plan(seed=0, jobs=0, failpoints=(), random_kills=0)
        with _database(given) as url, campaign(plan, url, Soak) as run:
            print(f"samples in {given.samples}, platform in {run.base}", flush=True)
            ended = anyio.run(soak, run, given)
            print(f"{run.submitted} jobs submitted; ended: {ended}", flush=True)
            deaths = {server.name: server.deaths for server in run.servers if server.deaths}
            print(f"servers that died: {deaths or 'none'}")
            failed = run.submitted - ended.get(SUCCEEDED, 0) + len(deaths)
    samples = _read(given.read or given.samples)
    print(table(samples))
    sys.exit(int(bool(failed) or any(row.grows for row in judge(samples))))


if __name__ == "__main__":
    main()
