"""Connections to engines: opened on first use, shared, held by one task each until the pool goes."""

import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio
from anyio.abc import TaskGroup, TaskStatus

from yunhe.control.plugins.interface import Kinds
from yunhe.control.pools.model import PoolSpec
from yunhe.infrastructure.contract.engine import Engine
from yunhe.infrastructure.contract.kind import Target
from yunhe.kernel.errors import PoolUnreachableError
from yunhe.kernel.ids import PoolId
from yunhe.observability.context import log_ids

log = logging.getLogger(__name__)


class Connections:
    """Hands out the engine of a pool."""

    def __init__(self, kinds: Kinds) -> None:
        self._kinds = kinds
        self._tasks: TaskGroup | None = None
        self._engines: dict[PoolId, Engine] = {}
        self._closing: dict[PoolId, anyio.Event] = {}
        self._opening: dict[PoolId, anyio.Lock] = {}

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Hold connections until the block ends."""
        async with anyio.create_task_group() as tasks:
            self._tasks = tasks
            try:
                yield
            finally:
                self._tasks = None
                for closing in self._closing.values():
                    closing.set()

    async def engine(self, pool_id: PoolId, spec: PoolSpec) -> Engine:
        """Return the pool's engine, connecting when there is no connection yet."""
        async with self._opening.setdefault(pool_id, anyio.Lock()):
            engine = self._engines.get(pool_id)
            if engine is not None:
                return engine
            if self._tasks is None:
                raise PoolUnreachableError("The platform is stopping.", remedy="Try again when it is back.")
            with log_ids():  # it outlives the request or the job that needs it first
                return await self._tasks.start(self._hold, pool_id, spec)

    async def _hold(
        self, pool_id: PoolId, spec: PoolSpec, *, task_status: TaskStatus[Engine] = anyio.TASK_STATUS_IGNORED
    ) -> None:
        closing = self._closing[pool_id] = anyio.Event()
        held = False
        try:
            async with self._kinds.kind(spec.kind).connect(target_of(spec)) as engine:
                self._engines[pool_id] = engine
                held = True
                task_status.started(engine)
                await closing.wait()
        except Exception:
            if not held:
                raise
            # What fails behind one engine ends that engine alone: the next look connects anew.
            log.exception("connection lost, will be opened again", extra={"pool": spec.name})
        finally:
            self._engines.pop(pool_id, None)
            self._closing.pop(pool_id, None)

    def pool_ids(self) -> set[PoolId]:
        """Return the pools there is a connection to."""
        return set(self._engines)

    def close(self, pool_id: PoolId) -> None:
        """Let go of a pool's connection; what runs there goes on."""
        closing = self._closing.get(pool_id)
        if closing is not None:
            closing.set()


def target_of(spec: PoolSpec) -> Target:
    """Return where a pool's engine is."""
    return Target(address=spec.target, options=spec.options)
