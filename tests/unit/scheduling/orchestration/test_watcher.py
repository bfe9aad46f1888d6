"""The watcher looks at a pool once at a time, however often it is wanted and not wanted."""

from typing import Any, cast

import anyio
import pytest

from yunhe.control.pools.interface import Pools
from yunhe.control.pools.model import Observation, Observed, Phase
from yunhe.kernel.errors import NotFoundError
from yunhe.kernel.ids import AllocationId, PoolId
from yunhe.scheduling.orchestration.jobs import watcher as watcher_module
from yunhe.scheduling.orchestration.jobs.watcher import Watcher

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
    watcher = Watcher(cast("Pools", cast("Any", pool)), lambda _allocation_id: None)
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
    watcher = Watcher(cast("Pools", cast("Any", pool)), lambda _allocation_id: None)
    for _ in range(2):
        async with anyio.create_task_group() as tasks:
            before = watcher.looks_begun(LAB)
            watcher.want(tasks, LAB)
            while watcher.looks_begun(LAB) == before:
                await anyio.sleep(0.001)
            watcher.unwant(LAB)


class PoolThatIsRemoved:
    """Tells of an allocation that runs; then nobody knows the pool any more."""

    def __init__(self) -> None:
        self.looks = 0

    async def observe(self, pool_id: PoolId, *, beyond: int, wait_s: float) -> Observation:
        self.looks += 1
        if self.looks > 1:
            raise NotFoundError("There is no pool lab.")
        runs = Observed(allocation_id=AllocationId("a"), phase=Phase.RUNNING, token=1)
        return Observation(version=1, allocations=(runs,))


async def test_what_was_last_seen_on_a_pool_is_forgotten_when_the_pool_is_removed() -> None:
    poked: list[AllocationId] = []
    watcher = Watcher(cast("Pools", cast("Any", PoolThatIsRemoved())), poked.append)
    async with anyio.create_task_group() as tasks:
        watcher.want(tasks, LAB)
        with anyio.fail_after(5):
            while len(poked) < 2:
                await anyio.sleep(0.001)
        assert watcher.seen(LAB, AllocationId("a")) is None
        assert poked == ["a", "a"]
        watcher.unwant(LAB)
        tasks.cancel_scope.cancel()


class PoolOfChanges:
    """Answers each look with the next observation, and remembers what it was asked; the last answer never comes."""

    def __init__(self, *answers: Observation) -> None:
        self._answers = list(answers)
        self.asked: list[int] = []

    async def observe(self, pool_id: PoolId, *, beyond: int, wait_s: float) -> Observation:
        self.asked.append(beyond)
        if not self._answers:
            await anyio.sleep_forever()
        return self._answers.pop(0)


def in_phase(name: str, phase: Phase) -> Observed:
    return Observed(allocation_id=AllocationId(name), phase=phase, token=1)


async def watched(
    pool: PoolOfChanges, *, looks: int
) -> tuple[dict[str, Observed | None], list[AllocationId]]:
    """Return what a watcher has seen of a, b and c after so many answered looks, and whom it poked."""
    poked: list[AllocationId] = []
    watcher = Watcher(cast("Pools", cast("Any", pool)), poked.append)
    seen: dict[str, Observed | None] = {}
    async with anyio.create_task_group() as tasks:
        watcher.want(tasks, LAB)
        with anyio.fail_after(5):
            while len(pool.asked) <= looks:
                await anyio.sleep(0.001)
        seen = {name: watcher.seen(LAB, AllocationId(name)) for name in "abc"}
        tasks.cancel_scope.cancel()
    return seen, poked


async def test_changes_are_folded_into_what_was_seen_and_wake_only_whom_they_concern() -> None:
    everything = Observation(version=5, allocations=tuple(in_phase(name, Phase.RUNNING) for name in "abc"))
    change = Observation(
        version=7, since=5, allocations=(in_phase("b", Phase.EXITED),), gone=(AllocationId("c"),)
    )
    pool = PoolOfChanges(everything, change)
    seen, poked = await watched(pool, looks=2)
    assert pool.asked == [-1, 5, 7]
    assert seen == {"a": in_phase("a", Phase.RUNNING), "b": in_phase("b", Phase.EXITED), "c": None}
    assert sorted(poked[:3]) == ["a", "b", "c"]
    assert sorted(poked[3:]) == ["b", "c"]


async def test_changes_after_a_later_version_than_asked_for_are_not_folded_but_all_is_asked_for() -> None:
    everything = Observation(version=5, allocations=(in_phase("a", Phase.RUNNING),))
    gap = Observation(version=9, since=8, allocations=(in_phase("b", Phase.RUNNING),))
    pool = PoolOfChanges(everything, gap)
    seen, _ = await watched(pool, looks=2)
    assert pool.asked == [-1, 5, -1]
    assert seen == {"a": in_phase("a", Phase.RUNNING), "b": None, "c": None}


async def test_everything_is_asked_for_again_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watcher_module, "RESYNC_S", 0.0)
    everything = Observation(version=5, allocations=(in_phase("a", Phase.RUNNING),))
    pool = PoolOfChanges(everything, everything)
    await watched(pool, looks=2)
    assert pool.asked == [-1, -1, -1]
