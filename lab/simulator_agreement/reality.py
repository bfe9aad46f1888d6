"""Two hundred jobs that contend for three pools on this machine, one of which dies on the way."""

import os
import signal
import time
from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from random import Random
from typing import NamedTuple

import anyio

from yunhe.control.pools.model import Pool, PoolSpec
from yunhe.kernel.ids import JobId, PoolId
from yunhe.kernel.money import MICROS, Prices, Tier
from yunhe.runtime.platform import Platform
from yunhe.runtime.settings import Settings
from yunhe.runtime.start import first_key_path, running
from yunhe.scheduling.orchestration.jobs.model import Job
from yunhe.storage import outbox
from yunhe.storage.database import Database
from yunhe.storage.outbox import Event
from yunhe.trading.applications.model import Submission
from yunhe.trading.demand.model import ResourceSpec, Task

POOLS = {"near": (16, 0.05), "mid": (14, 0.06), "far": (12, 0.07)}
"""Name → cores declared, price of a core-hour. Tasks sleep, so that more can be declared than the machine has."""
DIES = "mid"
RETRIES = 2
BURST_EVERY_S = 0.5


class Reality(NamedTuple):
    """What happened."""

    jobs: tuple[Job, ...]
    pools: tuple[Pool, ...]
    """Before one of them died."""
    prices: dict[PoolId, dict[Tier, Prices]]
    log: list[Event]
    died_at: float
    died_after: int
    """The last event before the dead pool was removed."""


def tasks(count: int, seed: int) -> list[Task]:
    """Return tasks that sleep one to three seconds on one to three cores."""
    rng = Random(seed)
    return [
        Task(
            name=f"nap-{number:03d}",
            run=f"exec sleep {rng.uniform(1, 3):.3f}",
            resources=ResourceSpec(cpus=rng.choice((1, 1, 2, 2, 3)), memory="32MB"),
            retries=RETRIES,
        )
        for number in range(count)
    ]


async def really(home: Path, roots: Mapping[str, Path], *, count: int = 200, seed: int = 0) -> Reality:
    """Run the tasks: half at once, the rest in bursts; a third of the way one pool dies and is removed."""
    async with AsyncExitStack() as stack:
        stack.callback(_put_back, roots[DIES])
        platform = await stack.enter_async_context(running(Settings(home=home)))
        wanted = tasks(count, seed)
        who = await platform.accounts.authenticate(first_key_path(home).read_text().strip())
        prices = {name: await _add(platform, name, root) for name, root in roots.items()}
        pools = await platform.pools.pools()
        ids: list[JobId] = []

        async def submit(some: list[Task]) -> None:
            jobs = await platform.applications.submit(who, tuple(Submission(task=task) for task in some))
            ids.extend(job.id for job in jobs)

        await submit(wanted[: count // 2])
        late = wanted[count // 2 :]
        for start in range(0, len(late) // 2, 5):
            await anyio.sleep(BURST_EVERY_S)
            await submit(late[start : start + 5])
        died_after, died_at = await _kill(platform, home, roots[DIES])
        for start in range(len(late) // 2, len(late), 5):
            await anyio.sleep(BURST_EVERY_S)
            await submit(late[start : start + 5])
        with anyio.fail_after(300):
            jobs = [await _ended(platform, job_id) for job_id in ids]
        log = await _log(home)
    by_id = {pool.id: prices[pool.spec.name] for pool in pools}
    return Reality(tuple(jobs), pools, by_id, log, died_at, died_after)


async def _add(platform: Platform, name: str, root: Path) -> dict[Tier, Prices]:
    cores, price = POOLS[name]
    options = {"root": str(root), "cpus": str(cores)}
    async for check in platform.pools.add(PoolSpec(name=name, kind="local", options=options)):
        if not check.ok:
            raise RuntimeError(f"{name}: {check.step}: {check.detail}")
    pool = await platform.pools.pool(name)
    asked = Prices(cpu_core_hour_micros=round(price * MICROS), memory_gib_hour_micros=1000)
    return (await platform.trades.publish_prices(pool.id, asked)).tiers


async def _kill(platform: Platform, home: Path, root: Path) -> tuple[int, float]:
    """Kill the agent's daemon, let it stay away, and take the pool out, as an operator would whose machine burnt."""
    _burn(root)
    await platform.pools.remove(DIES, force=True)
    return len(await _log(home)), time.time()


def _burn(root: Path) -> None:
    os.kill(int((root / "agent.lock").read_text()), signal.SIGKILL)
    root.rename(_burnt(root))
    root.touch()  # where no directory can be made, no agent comes back


def _burnt(root: Path) -> Path:
    return root.with_name("burnt")


def _put_back(root: Path) -> None:
    """Let whoever cleans up find the dead agent's directory where it was."""
    if _burnt(root).exists():
        root.unlink()
        _burnt(root).rename(root)


async def _log(home: Path) -> list[Event]:
    """Return every event so far."""
    database = Database(f"sqlite:///{home / 'yunhe.db'}")
    try:
        return await database.read(lambda connection: outbox.read_all(connection, after=0, limit=1_000_000))
    finally:
        database.close()


async def _ended(platform: Platform, job_id: JobId) -> Job:
    return [change async for change in platform.orchestration.changes(job_id)][-1]
