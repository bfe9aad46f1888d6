"""Starting a process of the platform: every built sub-module in dependency order, stopped in reverse."""

import fcntl
import logging
import os
import secrets
import socket
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from typing import TypeVar

import anyio
import msgspec
from prometheus_client import Histogram

from yunhe.control.plugins.in_process import InProcess, in_process
from yunhe.control.plugins.interface import Plugins
from yunhe.control.pools.feeds import CarbonFeeds
from yunhe.control.pools.interface import Pools
from yunhe.control.pools.model import PoolState
from yunhe.control.pools.monitor import PoolMonitor
from yunhe.control.pools.service import PoolService
from yunhe.infrastructure.contract.kind import Kind
from yunhe.kernel.clock import Clock, SteadyClock
from yunhe.kernel.errors import ConflictError
from yunhe.observability.metrics import FINE_BUCKETS_S, REGISTRY, SampledMetrics, measure_lag
from yunhe.observability.redaction import keep_out
from yunhe.observability.supervise import supervise
from yunhe.runtime.decoders import build_decoders
from yunhe.runtime.housekeeping import Housekeeping
from yunhe.runtime.modules import start_order
from yunhe.runtime.notary import Notary
from yunhe.runtime.platform import Platform
from yunhe.runtime.plugin_parts import PluginParts, plugin_parts
from yunhe.runtime.seam import encoded
from yunhe.runtime.settings import ProcessRole, Settings
from yunhe.scheduling.orchestration.interface import Orchestration
from yunhe.scheduling.orchestration.jobs.store import count_by_state
from yunhe.scheduling.orchestration.jobs.workers import Workers
from yunhe.scheduling.orchestration.service import OrchestrationService
from yunhe.scheduling.perception.interface import Perception
from yunhe.scheduling.perception.service import PerceptionService, UsageFeed
from yunhe.storage import leases
from yunhe.storage.audit import newest_time
from yunhe.storage.blobs import Blobs
from yunhe.storage.database import Database
from yunhe.storage.migrate import migrate
from yunhe.storage.notices import Notices
from yunhe.storage.private_files import private_home, write_private
from yunhe.storage.quotas import QuotaBook
from yunhe.storage.vault import Vault
from yunhe.trading.accounts.interface import Accounts
from yunhe.trading.accounts.service import AccountService
from yunhe.trading.applications.interface import Applications
from yunhe.trading.applications.service import ApplicationService
from yunhe.trading.demand.interface import Demands
from yunhe.trading.demand.service import DemandService
from yunhe.trading.trades.interface import Trades
from yunhe.trading.trades.service import Biller, TradeService

T = TypeVar("T")

log = logging.getLogger(__name__)

_DATABASE = Histogram(
    "yunhe_database_transaction_seconds",
    "How long transactions take, with the wait for their turn.",
    ["operation"],
    registry=REGISTRY,
    buckets=FINE_BUCKETS_S,
)


def first_key_path(home: Path) -> Path:
    """Return where the first key is left for whoever set the platform up."""
    return home / "first.key"


@asynccontextmanager
async def running(
    settings: Settings, *, kinds: Mapping[str, Kind] | None = None, clock: Clock | None = None
) -> AsyncGenerator[Platform]:
    """Run every built sub-module of this process's role until the block ends.

    *kinds* are the only kinds of engines in process then, instead of all that are installed. *clock* replaces the
    system's clock.
    """
    private_home(settings.home)
    build_decoders()
    async with AsyncExitStack() as stack:
        url = settings.resolved_database_url()
        if url.startswith("sqlite"):
            stack.enter_context(_only_process(settings.home))
        database = Database(url, reserve_bytes=settings.reserve_bytes, took=_time_transaction)
        stack.callback(database.close)
        await database.wait_until_available()
        await migrate(database)
        if database.is_sqlite:
            await database.write(leases.end_all)
            await database.give_back_room()
        clock = clock or SteadyClock(floor=await database.read(newest_time))
        start = _Start(settings, database, in_process(kinds), clock)
        for name in start_order():
            await stack.enter_async_context(start.submodule(name))
            log.info("sub-module started", extra={"submodule": name})
        await stack.enter_async_context(_loops({"event loop lag": measure_lag}))
        yield start.platform()


@asynccontextmanager
async def waiting_for_database(settings: Settings, came: anyio.Event) -> AsyncGenerator[bool]:
    """Yield whether the database is away; *came* is set when it answers. The wait ends with the block."""
    url = settings.resolved_database_url()
    if url.startswith("sqlite"):
        yield False
        return
    database = Database(url)
    try:
        if await database.is_available():
            yield False
            return
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_wait_for, database, came)
            yield True
            tasks.cancel_scope.cancel()
    finally:
        database.close()


async def _wait_for(database: Database, came: anyio.Event) -> None:
    await database.wait_until_available()
    came.set()


class _Start:
    """Builds each sub-module when its turn comes; by then all it needs is there."""

    def __init__(self, settings: Settings, database: Database, kinds: InProcess, clock: Clock) -> None:
        self._settings = settings
        self._database = database
        self._kinds = kinds
        self._clock = clock
        self._owner = f"{socket.gethostname()[:30]}:{os.getpid()}:{secrets.token_hex(4)}"
        self._works = settings.role is not ProcessRole.API
        self._vault = Vault.at(settings.home / "vault.key", keep_out)
        self._notary = Notary(database, self._vault, clock, settings)
        self._quotas = QuotaBook(
            msgspec.structs.replace(settings.quotas, requests_per_s=settings.limits.project_requests_per_s)
        )
        self._blobs = Blobs(
            database, clock, settings.upload_limit_bytes, self._quotas, settings.files_folder()
        )
        self._notices = Notices(database)
        self._services: dict[type, object] = {}
        self._metrics = SampledMetrics()
        self._metrics.add(
            "yunhe_leases_held",
            "Leases this process holds, by table.",
            "table",
            lambda: database.read(lambda c: leases.count_held(c, owner=self._owner, now=clock())),
        )

    def submodule(self, name: str) -> AbstractAsyncContextManager[None]:
        """Return the block during which the sub-module *name* runs."""
        starters: dict[str, Callable[[], AbstractAsyncContextManager[None]]] = {
            "plugins": self._start_plugins,
            "perception": self._start_perception,
            "orchestration": self._start_orchestration,
            "accounts": self._start_accounts,
            "demand": self._start_demand,
            "trades": self._start_trades,
            "applications": self._start_applications,
        }
        return starters[name]()

    def platform(self) -> Platform:
        """Return what the doors see."""
        return Platform(
            settings=self._settings,
            metrics=self._metrics,
            accounts=self._get(Accounts),
            applications=self._get(Applications),
            orchestration=self._get(Orchestration),
            perception=self._get(Perception),
            plugins=self._get(Plugins),
            pools=self._get(Pools),
            trades=self._get(Trades),
            notary=self._notary,
            is_full=lambda: self._database.is_full,
        )

    def _provide(self, interface: type[T], service: T) -> None:
        self._services[interface] = encoded(interface, service) if self._settings.encode_calls else service

    def _get(self, interface: type[T]) -> T:
        return self._services[interface]  # pyright: ignore[reportReturnType] - keyed by its own type

    @asynccontextmanager
    async def _start_plugins(self) -> AsyncGenerator[None]:
        parts = plugin_parts(self._settings, self._database, self._vault, self._kinds, self._clock)
        self._provide(Plugins, parts.service)
        await parts.kinds.refresh()
        build_decoders()  # of the kinds that are in this process
        loops = {"heartbeats": parts.heartbeats.run}
        if self._settings.role is not ProcessRole.WORKER:
            loops["supervisor"] = parts.supervisor.run
        async with _loops(loops), self._start_pools(parts):
            yield

    @asynccontextmanager
    async def _start_pools(self, plugins: PluginParts) -> AsyncGenerator[None]:
        service = PoolService(self._database, self._blobs, self._clock, plugins.kinds)
        self._provide(Pools, service)
        self._metrics.add("yunhe_pools", "Pools, by state.", "state", partial(_pools_by_state, service))
        async with service.running():
            monitor = PoolMonitor(self._database, service, self._owner, self._clock)
            plugins.heartbeats.on_silence = monitor.take_silence
            loops = {"removed pools": service.let_go_of_removed}
            if self._works:
                loops["keeper"] = monitor.run
                every_s = self._settings.fact_bounds.feed_s / 4
                loops["feeds"] = CarbonFeeds(self._database, self._owner, self._clock, every_s).run
            async with _loops(loops):
                yield

    @asynccontextmanager
    async def _start_perception(self) -> AsyncGenerator[None]:
        pools = self._get(Pools)
        bounds = self._settings.fact_bounds
        self._provide(Perception, PerceptionService(self._database, pools, self._clock, bounds))
        feed = UsageFeed(
            self._database,
            pools,
            self._clock,
            owner=self._owner,
        )
        async with _loops({"usage feed": feed.run} if self._works else {}):
            yield

    @asynccontextmanager
    async def _start_orchestration(self) -> AsyncGenerator[None]:
        perception, pools = self._get(Perception), self._get(Pools)
        service = OrchestrationService(
            self._database, self._blobs, self._notices, perception, pools, self._clock, quotas=self._quotas
        )
        self._provide(Orchestration, service)
        self._metrics.add(
            "yunhe_jobs",
            "Jobs, by state; those that are pending are the queue.",
            "state",
            lambda: self._database.read(count_by_state),
        )
        async with AsyncExitStack() as stack:
            if self._works:
                workers = Workers(
                    self._database,
                    self._notices,
                    self._vault,
                    (perception, pools),
                    self._clock,
                    self._owner,
                    quotas=self._quotas,
                )
                await stack.enter_async_context(workers.running())
            await stack.enter_async_context(_loops({"notices": self._notices.run}))
            yield

    @asynccontextmanager
    async def _start_accounts(self) -> AsyncGenerator[None]:
        service = AccountService(self._database, self._vault, self._clock, self._quotas)
        self._provide(Accounts, service)
        path = first_key_path(self._settings.home)
        await service.bootstrap(lambda key: _leave_key(path, key))
        yield

    @asynccontextmanager
    async def _start_demand(self) -> AsyncGenerator[None]:
        self._provide(Demands, DemandService())
        yield

    @asynccontextmanager
    async def _start_trades(self) -> AsyncGenerator[None]:
        self._provide(Trades, TradeService(self._database, self._get(Perception), self._clock))
        biller = Biller(self._database, self._clock)
        loops = {"biller": biller.run, "notary": self._notary.run} if self._works else {}
        async with _loops(loops):
            yield

    @asynccontextmanager
    async def _start_applications(self) -> AsyncGenerator[None]:
        service = ApplicationService(
            self._blobs,
            self._get(Accounts),
            self._get(Demands),
            self._get(Orchestration),
            self._clock,
        )
        self._provide(Applications, service)
        housekeeping = Housekeeping(
            self._database, self._blobs, self._notary, self._clock, self._settings, self._owner
        )
        async with _loops({"housekeeping": housekeeping.run} if self._works else {}):
            yield


def _time_transaction(operation: str, seconds: float) -> None:
    _DATABASE.labels(operation).observe(seconds)


async def _pools_by_state(pools: Pools) -> dict[str, float]:
    found = Counter(pool.state for pool in await pools.pools())
    return {state.value: found[state] for state in PoolState}


@contextmanager
def _only_process(home: Path) -> Generator[None]:
    """Hold the home's lock: SQLite serves one process, and its leases of before are then surely nobody's."""
    handle = os.open(home / "server.lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConflictError(
                f"Another server runs on {home}.",
                remedy="Stop it first (yunhe down), choose another home, or use PostgreSQL for several processes.",
            ) from None
        yield
    finally:
        os.close(handle)


def _leave_key(path: Path, text: str) -> None:
    write_private(path, f"{text}\n".encode())


@asynccontextmanager
async def _loops(loops: Mapping[str, Callable[[], Awaitable[None]]]) -> AsyncGenerator[None]:
    """Run background loops until the block ends."""
    async with anyio.create_task_group() as tasks:
        for name, loop in loops.items():
            tasks.start_soon(supervise, name, loop)
        try:
            yield
        finally:
            tasks.cancel_scope.cancel()
