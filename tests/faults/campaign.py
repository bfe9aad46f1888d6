"""A campaign: a platform of real processes runs jobs while its processes are killed, and is judged at the end.

The platform is what users have: ``yunhe serve`` processes behind the REST API, two pools of this machine with an agent
each. Kills come from failpoints, armed a few at a time in a seeded order, and at random times from outside.
"""

import os
import random
import shutil
import signal
import socket
import tempfile
import time
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import ClassVar, NamedTuple, TypeVar

import anyio

from faults import workload
from faults.marks import Marks
from faults.servers import Server
from faults.workload import Kind
from support import agent_processes
from support.agent_roots import end_agent
from yunhe.agent.failpoints import ALL as AGENT
from yunhe.control.pools.model import Pool, PoolSpec
from yunhe.entrypoints.client.async_client import AsyncClient
from yunhe.entrypoints.client.errors import ServerUnreachableError
from yunhe.kernel.errors import (
    ConflictError,
    DatabaseUnavailableError,
    PoolUnreachableError,
    UnauthenticatedError,
    UnsupportedError,
)
from yunhe.kernel.ids import BlobId
from yunhe.kernel.money import Prices
from yunhe.observability.failpoints import SERVER
from yunhe.runtime.start import first_key_path
from yunhe.scheduling.orchestration.jobs.driver import LEASE_S
from yunhe.scheduling.orchestration.jobs.model import Job
from yunhe.scheduling.orchestration.jobs.states import FINAL, JobState

T = TypeVar("T")

FAILPOINTS = SERVER + AGENT
AT_THE_START = (
    "first-key-before-commit",
    "first-key-after-commit",
    "pool-after-intent",
    "pool-before-seen",
    "prices-after-commit",
    "chunks-before-commit",
    "chunks-after-commit",
    "archive-before-commit",
    "archive-after-commit",
)
"""Reached only while a platform is set up, so these are armed before it is."""
ARMED_AT_ONCE = 3
FEWEST_UNFINISHED = 8
MOST_UNFINISHED = 30
LOOK_EVERY_S = 0.3
FREEZE_BEYOND_S = 5.0
KILLS = ("server", "server", "server", "daemon", "daemon", "wrapper", "wrapper", "spawner", "bridge")
POOLS = ("north", "south")


class Plan(NamedTuple):
    """What a campaign does."""

    seed: int
    jobs: int
    failpoints: tuple[str, ...]
    random_kills: int
    kill_every_s: tuple[float, float] = (1.0, 5.0)
    freezes: tuple[str, ...] = ()
    """Failpoints at which a worker stands still for longer than its leases last, and then goes on unawares."""


class Campaign:
    """A platform under attack."""

    pools: tuple[str, ...] = POOLS
    pool_options: ClassVar[dict[str, str]] = {"cpus": "1.5", "memory": "4GB"}

    def __init__(self, base: Path, plan: Plan, database_url: str) -> None:
        self.plan = plan
        self.base = base
        self.home = base / "home"
        self.database_url = database_url or f"sqlite:///{self.home / 'yunhe.db'}"
        self.lines = base / "lines"
        self.lines.mkdir()
        self.lines.chmod(0o777)  # every project's user writes here
        self.roots = {name: base / name for name in self.pools}
        self.marks = Marks(base / "marks", [*FAILPOINTS, *map(_frozen, plan.freezes)])
        self._url = ""
        self.servers = self._servers(several=bool(database_url))
        self.jobs: dict[str, Job] = {}
        self.submitted = 0
        self.kills: Counter[str] = Counter()
        self.frozen: list[str] = []
        self.seconds = 0.0
        self._random = random.Random(plan.seed)
        self._fired: set[str] = set()
        self._asked: set[str] = set()
        self._client: AsyncClient | None = None

    def _servers(self, *, several: bool) -> list[Server]:
        roles = {"api": "api", "worker-1": "worker", "worker-2": "worker"} if several else {"server": "all"}
        servers: list[Server] = []
        for name, role in roles.items():
            port = _free_port()
            self._url = self._url or f"http://127.0.0.1:{port}"
            arguments = ["--role", role, "--home", str(self.home), "--port", str(port)]
            arguments += ["--database", self.database_url]
            servers.append(Server(name, arguments, self.marks.environment(), self.base / f"{name}.log"))
        return servers

    @property
    def finished(self) -> int:
        return sum(job.state in FINAL for job in self.jobs.values())

    async def run(self) -> None:
        """Run every job of the plan to its end under every kill of it; then stop the servers."""
        began = time.monotonic()
        async with anyio.create_task_group() as tasks:
            for name in self.plan.failpoints:
                if name in AT_THE_START:
                    self.marks.arm(name)
            for server in self.servers:
                tasks.start_soon(server.run)
            async with self.connected():
                await self.add_pools()
                archive = await self._upload()
                async with anyio.create_task_group() as attack:
                    attack.start_soon(self._arm)
                    attack.start_soon(self._kill_at_random)
                    attack.start_soon(self._freeze)
                    attack.start_soon(self._attend)
                    await self._submit(archive)
                await self.settle()
            async with anyio.create_task_group() as stopping:
                for server in self.servers:
                    stopping.start_soon(server.stop)
        self.seconds = time.monotonic() - began

    # Setting up

    @asynccontextmanager
    async def connected(self) -> AsyncGenerator[None]:
        """Hold a client with the first key, once it is one that opens."""
        while not await self._key_opens():
            await anyio.sleep(0.1)
        key = first_key_path(self.home).read_text().strip()
        self._client = AsyncClient(self._url, key, patience_s=5.0)
        async with self._client:
            yield

    async def _key_opens(self) -> bool:
        try:
            key = first_key_path(self.home).read_text().strip()
        except FileNotFoundError:
            return False
        async with AsyncClient(self._url, key) as client:
            try:
                await client.me()
            except (ServerUnreachableError, UnauthenticatedError):
                return False
        return True

    async def persist(self, call: Callable[[AsyncClient], Awaitable[T]]) -> T:
        """Make a call that is safe to repeat until it is answered: its server or database may be away just now."""
        assert self._client is not None
        while True:
            try:
                return await call(self._client)
            except (ServerUnreachableError, DatabaseUnavailableError):
                await anyio.sleep(0.1)

    async def add_pools(self) -> None:
        for name, root in self.roots.items():
            spec = PoolSpec(
                name=name,
                kind="local",
                options={"root": str(root), "writable": str(self.lines), **self.pool_options},
                prices=Prices(cpu_core_hour_micros=50_000, memory_gib_hour_micros=10_000),
            )

            async def add(client: AsyncClient, spec: PoolSpec = spec) -> bool:
                return any([isinstance(step, Pool) async for step in client.add_pool(spec)])

            while not await self.persist(add):
                await anyio.sleep(0.1)

    async def _upload(self) -> BlobId:
        folder = self.base / "data"
        folder.mkdir()
        (folder / "word").write_text(f"{workload.WORD}\n")
        return await self.persist(lambda client: client.upload_directory("default", folder))

    # Working

    async def _submit(self, archive: BlobId) -> None:
        """Submit jobs as the campaign advances, and more than planned while a failpoint has yet to be reached."""
        while self.submitted < self.plan.jobs or not self._all_fired():
            unfinished = self.submitted - self.finished
            if unfinished >= (MOST_UNFINISHED if self.submitted < self._allowance() else FEWEST_UNFINISHED):
                await anyio.sleep(LOOK_EVERY_S)
                continue
            number = self.submitted
            seconds = self._random.uniform(0.1, 1.5)
            wanted = workload.submission(number, self.lines, archive, seconds)
            key = f"campaign-{number}"
            job = await self.persist(lambda client, w=wanted, k=key: client.submit(w, idempotency_key=k))
            self.jobs[job.id] = job
            self.submitted += 1

    def _allowance(self) -> float:
        """Return how many jobs may have been submitted, so that jobs and failpoints run out together."""
        share = len(self._fired) / len(self.plan.failpoints) if self.plan.failpoints else 1.0
        return MOST_UNFINISHED + (self.plan.jobs - MOST_UNFINISHED) * share

    def _all_fired(self) -> bool:
        freezes = all(self.marks.has_fired(_frozen(name)) for name in self.plan.freezes)
        return freezes and len(self._fired) == len(self.plan.failpoints)

    async def _attend(self) -> None:
        """Look at the jobs; stop and resize those that are for it; until all have ended."""
        async with anyio.create_task_group() as asking:
            while self.finished < self.submitted or self.submitted < self.plan.jobs or not self._all_fired():
                for job in await self.persist(all_jobs):
                    self.jobs[job.id] = job
                    kind = workload.kind_of(int(job.name.partition("-")[2]))
                    if job.state is JobState.RUNNING and job.id not in self._asked:
                        if kind is Kind.STOPPED:
                            self._asked.add(job.id)
                            asking.start_soon(self._stop, job)
                        elif kind is Kind.RESIZED:
                            self._asked.add(job.id)
                            asking.start_soon(self._resize, job)
                await anyio.sleep(LOOK_EVERY_S)

    async def _stop(self, job: Job) -> None:
        await self.persist(lambda client: client.stop(job.id))

    async def _resize(self, job: Job) -> None:
        try:
            await self.persist(lambda client: client.resize(job.id, workload.GROWN))
        except (ConflictError, UnsupportedError, PoolUnreachableError):
            return  # it ended first, or its pool is away just now

    # Attacking

    async def _arm(self) -> None:
        """Arm a few failpoints at a time until each has fired."""
        waiting = [name for name in self.plan.failpoints if name not in AT_THE_START]
        self._random.shuffle(waiting)
        armed = {name for name in self.plan.failpoints if name in AT_THE_START}
        while armed or waiting:
            for name in [name for name in armed if self.marks.has_fired(name)]:
                armed.remove(name)
                self._fired.add(name)
            while waiting and len(armed) < ARMED_AT_ONCE:
                armed.add(waiting[0])
                self.marks.arm(waiting.pop(0))
            await anyio.sleep(0.05)

    async def _kill_at_random(self) -> None:
        while self.kills.total() < self.plan.random_kills and not self._is_over():
            await anyio.sleep(self._random.uniform(*self.plan.kill_every_s))
            kind = self._random.choice(KILLS)
            if kind == "server":
                server = self._random.choice(self.servers)
                self.kills[server.name] += server.kill()
            else:
                root = self._random.choice(list(self.roots.values()))
                self.kills[kind] += self._kill_one(_FOUND[kind](root))

    async def _freeze(self) -> None:
        """Have a worker stand still at each step in turn, while another takes over what it holds."""
        for name in self.plan.freezes:
            self.marks.arm(_frozen(name))
            while not self.marks.has_fired(_frozen(name)):
                await anyio.sleep(0.05)
            await anyio.sleep(LEASE_S + FREEZE_BEYOND_S)
            for server in self.servers:
                if server.is_frozen():
                    server.thaw()
                    self.frozen.append(name)

    def _is_over(self) -> bool:
        return self.submitted >= self.plan.jobs and self._all_fired() and self.finished == self.submitted

    def _kill_one(self, pids: list[int]) -> bool:
        if not pids:
            return False
        try:
            os.kill(self._random.choice(pids), signal.SIGKILL)
        except ProcessLookupError:
            return False
        return True

    # Ending

    async def settle(self) -> None:
        """Leave the platform in peace until nothing is left to do, or what is left stays."""
        with anyio.move_on_after(60.0):
            while any(agent_processes.left_behind(root) for root in self.roots.values()):
                await anyio.sleep(LOOK_EVERY_S)
        for job in await self.persist(all_jobs):
            self.jobs[job.id] = job
        await anyio.sleep(2.0)  # the biller reads twice a second

    def figures(self) -> str:
        deaths = {server.name: len(server.deaths) for server in self.servers}
        unknown = sum(a.ending == "unknown" for job in self.jobs.values() for a in job.attempts)
        return (
            f"seed {self.plan.seed}: {self.submitted} jobs, {len(self._fired)} failpoints fired, "
            f"{self.kills.total()} random kills {dict(self.kills)}, server deaths {deaths}, "
            f"{len(self.frozen)} freezes, {unknown} attempts unknown, {self.seconds:.0f} s in {self.base}"
        )


C = TypeVar("C", bound=Campaign)

_FOUND: dict[str, Callable[[Path], list[int]]] = {
    "daemon": agent_processes.daemon,
    "spawner": agent_processes.spawner,
    "wrapper": agent_processes.wrappers,
    "bridge": agent_processes.bridges,
}


@contextmanager
def campaign(
    plan: Plan, database_url: str = "", kind: Callable[[Path, Plan, str], C] = Campaign
) -> Generator[C]:
    """Prepare a campaign below a folder that projects' users can pass through; one that fails leaves it for a look."""
    base = Path(tempfile.mkdtemp(prefix="yunhe-faults-"))
    base.chmod(0o711)
    prepared = kind(base, plan, database_url)
    try:
        yield prepared
    finally:
        for root in prepared.roots.values():
            if root.exists():
                end_agent(root)
    shutil.rmtree(base)


def _frozen(name: str) -> str:
    return f"{name}:stop"


async def all_jobs(client: AsyncClient) -> list[Job]:
    return [job async for job in client.jobs()]


def _free_port() -> int:
    with socket.socket() as line:
        line.bind(("127.0.0.1", 0))
        return line.getsockname()[1]
