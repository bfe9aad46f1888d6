"""Connections to engines by target: opened on first use, shared, let go when nobody has asked for a while."""

import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import anyio
import msgspec
from anyio.abc import TaskGroup, TaskStatus

from yunhe.infrastructure.contract.engine import Engine
from yunhe.infrastructure.contract.kind import Kind, Target
from yunhe.kernel.errors import PoolUnreachableError

IDLE_S = 300.0

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Held:
    engine: Engine
    users: int
    used_at: float


class Engines:
    """Hands out the engine of a target; what it holds can be lost at any time without harm."""

    def __init__(self, kind: Kind, *, idle_s: float = IDLE_S) -> None:
        self._kind = kind
        self._idle_s = idle_s
        self._tasks: TaskGroup | None = None
        self._held: dict[bytes, _Held] = {}
        self._opening: dict[bytes, anyio.Lock] = {}

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Hold connections until the block ends."""
        async with anyio.create_task_group() as tasks:
            self._tasks = tasks
            try:
                yield
            finally:
                self._tasks = None
                tasks.cancel_scope.cancel()

    @asynccontextmanager
    async def using(self, target: Target) -> AsyncGenerator[Engine]:
        """Use the engine of *target*, connecting when there is no connection yet."""
        held = await self._take(target)
        try:
            yield held.engine
        finally:
            held.users -= 1
            held.used_at = anyio.current_time()

    async def _take(self, target: Target) -> _Held:
        key = msgspec.json.encode(target, order="sorted")
        async with self._opening.setdefault(key, anyio.Lock()):
            held = self._held.get(key)
            if held is None:
                if self._tasks is None:
                    raise PoolUnreachableError("The plugin is stopping.", remedy="Try again.")
                held = await self._tasks.start(self._hold, key, target)
            held.users += 1
            return held

    async def _hold(
        self, key: bytes, target: Target, *, task_status: TaskStatus[_Held] = anyio.TASK_STATUS_IGNORED
    ) -> None:
        held: _Held | None = None
        try:
            async with self._kind.connect(target) as engine:
                held = self._held[key] = _Held(engine, 0, anyio.current_time())
                task_status.started(held)
                await self._until_idle(held)
                self._held.pop(key, None)
        except Exception:
            if held is None:
                raise
            log.exception("the connection to %s ended", target.address)
        finally:
            self._held.pop(key, None)

    async def _until_idle(self, held: _Held) -> None:
        idle_s = 0.0
        while held.users or idle_s < self._idle_s:
            await anyio.sleep(self._idle_s / 4)
            idle_s = anyio.current_time() - held.used_at
