"""Runs the tasks on a pool as a user would, and writes down what came of them without names and times."""

import socketserver
import sqlite3
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Self

import msgspec

from scenarios.same_task.pools import PRICE, EnginePool, Platform
from scenarios.same_task.transcript import TASKS, Lines, Transcript
from yunhe.entrypoints.cli.commands.pools.prices import parse_prices
from yunhe.entrypoints.client import Client
from yunhe.kernel.money import Prices
from yunhe.scheduling.orchestration.jobs.events import JOB_CHANGED
from yunhe.scheduling.orchestration.jobs.model import Attempt, Job
from yunhe.trading.trades.chain import verify
from yunhe.trading.trades.model import LedgerEntry, Quantities

PATIENCE_S = 180.0
BURNT_CORE_S = 2.0
HELD_MIB = 64
WRITTEN_MIB = 16


class History:
    """Every state that each job has been in, as the platform wrote it down when it became true."""

    def __init__(self, home: Path) -> None:
        self._database = f"file:{home / 'yunhe.db'}?mode=ro"

    def states(self, job_id: str) -> list[str]:
        reader = sqlite3.connect(self._database, uri=True, timeout=30)
        try:
            query = "SELECT body FROM outbox_event WHERE topic = ? AND key = ? ORDER BY seq"
            return [
                msgspec.json.decode(body)["state"] for (body,) in reader.execute(query, (JOB_CHANGED, job_id))
            ]
        finally:
            reader.close()

    def ran(self, job_id: str, attempt: int) -> bool:
        return self.states(job_id).count("running") >= attempt


class Starter:
    """Lets each attempt go on once the platform has said that it runs, so that no engine can be too quick to be seen."""

    def __init__(self, history: History, seen_running: Callable[[str], None]) -> None:
        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                job_id, attempt = self.rfile.readline().decode().split()
                until(lambda: history.ran(job_id, int(attempt)), f"{job_id} runs")
                seen_running(job_id)
                self.wfile.write(b"go\n")

        self._server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.address = f"127.0.0.1/{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, name="starter", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


@dataclass(frozen=True)
class Ran:
    """A job that has ended, and what its user saw."""

    job: Job
    exit_code: int
    output: str
    reserved: str


class Recorder:
    """Records tasks on every pool of a platform."""

    def __init__(self, platform: Platform) -> None:
        self._platform = platform
        self._history = History(platform.shell.home)
        self._reserved: dict[str, str] = {}

    def record(self) -> dict[str, Transcript]:
        """Return what each engine did, task by task; the engines work at the same time."""
        made: dict[str, Transcript] = {pool.engine: {} for pool in self._platform.pools}
        with Starter(self._history, self._seen_running) as starter, ThreadPoolExecutor(4) as threads:
            for task in TASKS:
                doing = [
                    (pool, threads.submit(self._run, pool, task, starter)) for pool in self._platform.pools
                ]
                for pool, ran in doing:
                    made[pool.engine][task.stem] = self._lines(pool, task.stem, ran.result())
        return made

    def _run(self, pool: EnginePool, task: Path, starter: Starter) -> Ran:
        shell = replace(self._platform.shell, cwd=task.parent)  # where its workdir is
        words = ("run", "-y", "--pool", pool.name, "--env", f"STARTER={starter.address}", task)
        done = shell(*words, timeout_s=PATIENCE_S)
        with shell.client() as client:
            (job,) = client.jobs(name=task.stem, pool=pool.name)
        return Ran(job, done.returncode, done.stdout, self._reserved.get(job.id, "not asked"))

    def _seen_running(self, job_id: str) -> None:
        """Ask the engine what it holds; stop what is there to be stopped."""
        shell = self._platform.shell
        with shell.client() as client:
            job = client.job(job_id)
        attempt = job.attempts[-1]
        (pool,) = [pool for pool in self._platform.pools if pool.name == attempt.pool_name]
        held = pool.reserved(attempt.allocation_id)
        self._reserved[job_id] = f"{held.cpu_millis} millicores, {held.memory_mib} MiB"
        if job.name == "cancelled":
            done = shell("stop", job_id)
            assert done.returncode == 0, done.stderr

    def _fetched(self, job: Job) -> str:
        """Return every file that the job left as output, as its user gets it."""
        with tempfile.TemporaryDirectory() as folder:
            done = self._platform.shell("cp", f"{job.id}:", folder)
            if done.returncode != 0:
                return f"nothing: {done.stderr.strip()}"
            files = sorted(path for path in Path(folder).rglob("*") if path.is_file())
            told = [f"{path.relative_to(folder)} with: {path.read_text().strip()}" for path in files]
            return ", ".join(told) or "nothing"

    def _lines(self, pool: EnginePool, task: str, ran: Ran) -> Lines:
        lines = {
            "command": f"ends with exit code {ran.exit_code}",
            "states": " → ".join(self._history.states(ran.job.id)),
            "reason": ran.job.reason or "none",
        }
        if task != "overruns":
            lines["engine"] = f"holds {ran.reserved}"
        for attempt in ran.job.attempts:
            lines[f"attempt {attempt.number}"] = f"{attempt.ending}, exit code {attempt.exit_code}"
        for number, line in enumerate(ran.output.splitlines(), start=1):
            lines[f"output {number}"] = line or "(an empty line)"  # not the same as none
        if task == "finishes":
            lines["fetched"] = self._fetched(ran.job)
            lines |= usage(ran.job.attempts[0])
        with self._platform.shell.client() as client:
            lines["bill"] = bill(client, ran.job)
        return lines


def usage(attempt: Attempt) -> Lines:
    """Return what was metered, as bands around what the task did."""
    meters = attempt.meters
    network = meters.received_bytes, meters.sent_bytes
    began, ended = attempt.started_at or 0.0, attempt.ended_at or 0.0
    written_mib = meters.written_bytes / 2**20
    return {
        "cpu": band(meters.cpu_us / 1e6 / BURNT_CORE_S, 0.5, 1.5, "× what it burnt"),
        "memory": band(meters.memory_peak_mib, HELD_MIB, 2 * HELD_MIB, " MiB at the peak"),
        "disk": band(written_mib, WRITTEN_MIB, 2 * WRITTEN_MIB, " MiB written"),
        "network": "not metered" if network == (None, None) else "metered",
        "time": band(meters.wall_ms / 1000 - (ended - began), -1.5, 1.5, " s beside start to end"),
    }


def band(value: float, least: float, most: float, unit: str) -> str:
    """Return the band if *value* lies in it, else the value itself."""
    return f"{least:g} to {most:g}{unit}" if least <= value <= most else f"{value:.3g}{unit}"


def bill(client: Client, job: Job) -> str:
    """Return whether what is owed is the price times what was metered, to the millionth; what is not, is said."""
    entries = final_entries(client, job)
    prices = parse_prices(PRICE)
    wrong = [entry for entry in entries if entry.amount_micros != owed_micros(entry.used, prices)]
    if wrong:
        return f"{wrong[0].amount_micros} for {wrong[0].used}"
    for attempt in job.attempts:
        mine = [entry.used for entry in entries if entry.allocation_id == attempt.allocation_id]
        billed = sum(used.cpu_us for used in mine), sum(used.memory_mib_ms for used in mine)
        if billed != (attempt.meters.cpu_us, attempt.meters.memory_mib_ms):
            return f"{billed} billed of {attempt.meters}"
    told = client.cost(by="job", job=job.id).amount_micros
    if told != sum(entry.amount_micros for entry in entries) or not verify(client.ledger()).ok:
        return f"{told} told, {[entry.amount_micros for entry in entries]} in the ledger"
    last = sum(entry.final for entry in entries)
    return f"price × metered use to the millionth, {last} last reading{'s' * (last > 1)}"


def final_entries(client: Client, job: Job) -> list[LedgerEntry]:
    """Return the lines of the ledger for a job, once its last reading is among them."""
    entries: list[LedgerEntry] = []

    def complete() -> bool:
        entries[:] = [
            line for line in client.ledger() if isinstance(line, LedgerEntry) and line.job_id == job.id
        ]
        return sum(entry.final for entry in entries) == len(job.attempts)

    until(complete, f"{job.name} is billed")
    return entries


def owed_micros(used: Quantities, prices: Prices) -> int:
    """Return what *used* costs, computed apart from the product: exact fractions, each term rounded half up."""
    hour_us, gib = Fraction(3600 * 10**6), Fraction(2**30)
    terms = (
        used.cpu_us / hour_us * prices.cpu_core_hour_micros,
        used.memory_mib_ms / Fraction(1024 * 3600 * 1000) * prices.memory_gib_hour_micros,
        used.io_bytes / gib * prices.io_gib_micros,
        (used.network_bytes or 0) / gib * prices.network_gib_micros,
    )
    return sum(int(term + Fraction(1, 2)) for term in terms)


def until(holds: Callable[[], bool], what: str) -> None:
    """Wait until it *holds*."""
    give_up = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < give_up, f"not within {PATIENCE_S:g} s: {what}"
        time.sleep(0.1)
