"""The platform of a soak: its jobs, and what its processes and its database hold now."""

import os
import time
from pathlib import Path
from typing import ClassVar

import anyio
import sqlalchemy as sa

from faults.campaign import Campaign
from faults.servers import Server
from support import agent_processes
from yunhe.scheduling.orchestration.jobs.states import FINAL, JobState
from yunhe.scheduling.orchestration.jobs.tables import JOBS
from yunhe.storage.database import Database
from yunhe.trading.applications.model import Submission
from yunhe.trading.demand.model import ResourceSpec, Task

MIB = 1024 * 1024
DRAIN_WITHIN_S = 120.0
MEMORY = {"RSS": "Rss", "PSS": "Pss", "anonymous": "Anonymous"}
"""Figures of memory and the names the kernel has for them; only anonymous pages do not come and go with the load of the host."""


class Soak(Campaign):
    """A platform with one pool and, on PostgreSQL, a server and two workers; nothing is killed."""

    pools = ("one",)
    pool_options: ClassVar[dict[str, str]] = {"cpus": "4", "memory": "8GB"}

    async def submit_at(self, rate: float, until: float) -> None:
        """Submit jobs at a steady *rate* per second; those that a slow server delays are made up for."""
        began = time.monotonic()
        while time.monotonic() < until:
            number = self.submitted
            task = Task(
                name=f"soak-{number}",
                run=f"echo job {number}\ndate > result\n",
                resources=ResourceSpec(cpus=0.1, memory="32MB"),
                outputs=("result",),
            )
            await self.persist(lambda client, t=task: client.submit(Submission(task=t)))
            self.submitted += 1
            await anyio.sleep(max(0.0, began + self.submitted / rate - time.monotonic()))

    async def drained(self) -> dict[str, int]:
        """Return how many jobs are in which state once all have ended, or two minutes later."""
        database = Database(self.database_url)
        query = sa.select(JOBS.c.state, sa.func.count()).group_by(JOBS.c.state)
        counts: dict[str, int] = {}
        with anyio.move_on_after(DRAIN_WITHIN_S):
            while not counts or not set(counts) <= {str(state) for state in FINAL}:
                rows = await database.read(lambda c: c.execute(query).all())
                counts = {str(row[0]): int(row[1]) for row in rows}
                await anyio.sleep(0.5)
        database.close()
        return counts

    async def sample(self, database: Database) -> dict[str, float]:
        """Return what every process holds, and what is in the database and in the folders."""
        found: dict[str, float] = {"jobs": self.submitted}
        for server in self.servers:
            found |= _of_server(server)
        root = self.roots["one"]
        for name, pids in {
            "agent": agent_processes.daemon(root),
            "spawner": agent_processes.spawner(root),
            "bridges": agent_processes.bridges(root),
        }.items():
            found |= process_figures(name, pids)
        found["agent files"] = _entries(root)
        found["server logs MiB"] = sum(path.stat().st_size for path in self.home.glob("*.log*")) / MIB
        return found | await database.read(_of_database)


def _of_server(server: Server) -> dict[str, float]:
    return process_figures(server.name, [] if server.pid is None else [server.pid])


def process_figures(name: str, pids: list[int]) -> dict[str, float]:
    """Return memory, descriptors and threads of some processes together."""
    figures = [*(f"{kind} MiB" for kind in MEMORY), "descriptors", "threads"]
    found = {f"{name} {figure}": 0.0 for figure in figures}
    for pid in pids:
        folder = Path(f"/proc/{pid}")
        try:
            memory = dict(line.split(":", 1) for line in _lines(folder / "smaps_rollup") if ":" in line)
            found[f"{name} descriptors"] += sum(1 for _ in (folder / "fd").iterdir())
            found[f"{name} threads"] += sum(1 for _ in (folder / "task").iterdir())
        except (FileNotFoundError, ProcessLookupError):
            continue
        for kind, field in MEMORY.items():
            found[f"{name} {kind} MiB"] += int(memory[field].split()[0]) / 1024
    return found


def _lines(path: Path) -> list[str]:
    return path.read_text().splitlines()[1:]


def _entries(root: Path) -> int:
    """Return how many files and folders are below *root*."""
    return sum(len(folders) + len(files) for _, folders, files in os.walk(root))


def _of_database(connection: sa.Connection) -> dict[str, float]:
    size = "SELECT pg_database_size(current_database())"
    if connection.dialect.name == "sqlite":
        size = "SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size()"
    found = {"database MiB": float(connection.scalar(sa.text(size)) or 0) / MIB}
    unfinished = sa.select(sa.func.count()).where(JOBS.c.state.not_in([*FINAL]))
    found["unfinished jobs"] = float(connection.scalar(unfinished) or 0)
    for table in sorted(sa.inspect(connection).get_table_names()):
        counted = sa.select(sa.func.count()).select_from(sa.table(table))
        found[f"rows {table}"] = float(connection.scalar(counted) or 0)
    return found


SUCCEEDED = str(JobState.SUCCEEDED)
