"""The watcher looks at a pool once at a time, however often it is wanted and not wanted."""

from typing import Any, cast

import anyio
import pytest

from yunhe.control.plugins.interface import Plugins
from yunhe.control.plugins.model import Observation
from yunhe.kernel.ids import PoolId
from yunhe.scheduling.orchestration.watcher import Watcher

pytestmark = pytest.mark.anyio

LAB = PoolId("lab")


class SlowPool:
    """Answers a look only when told to."""

    def __init__(self) -> None:
        self.looking = self.most = 0
        self.answer = anyio.Event()

    async def observe(self, pool_id: PoolId, *, beyond: int, wait_s: float) -> Observation:
        self.looking += 1
        self.most = max(self.most, self.looking)
        await self.answer.wait()
        self.looking -= 1
        await anyio.sleep(0.001)
        return Observation(version=1, allocations=())


async def test_wanting_a_pool_again_before_its_last_look_is_over_begins_no_second_watch() -> None:
    pool = SlowPool()
    watcher = Watcher(cast("Plugins", cast("Any", pool)), lambda _allocation_id: None)
    async with anyio.create_task_group() as tasks:
        for _ in range(5):
            watcher.want(tasks, LAB)
            await anyio.wait_all_tasks_blocked()
            watcher.unwant(LAB)
        watcher.want(tasks, LAB)
        await anyio.wait_all_tasks_blocked()
        assert pool.most == 1
        watcher.unwant(LAB)
        pool.answer.set()


async def test_a_pool_is_watched_again_after_its_watch_has_ended() -> None:
    pool = SlowPool()
    pool.answer.set()
    watcher = Watcher(cast("Plugins", cast("Any", pool)), lambda _allocation_id: None)
    for _ in range(2):
        async with anyio.create_task_group() as tasks:
            before = watcher.looks_begun(LAB)
            watcher.want(tasks, LAB)
            while watcher.looks_begun(LAB) == before:
                await anyio.sleep(0.001)
            watcher.unwant(LAB)
