"""Whatever fails behind one engine ends that engine alone: the others and the platform go on, and it comes back."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from integration.control.pools.one_process import added, pools_of_one_process
from yunhe.control.pools.model import PoolSpec, PoolState
from yunhe.control.pools.monitor import PoolMonitor
from yunhe.infrastructure.contract.engine import Engine
from yunhe.infrastructure.contract.kind import Target
from yunhe.infrastructure.fake.engine import FakeEngine
from yunhe.infrastructure.fake.kind import FakeKind
from yunhe.kernel.clock import system_clock
from yunhe.kernel.ids import PoolId

pytestmark = pytest.mark.anyio
LAB = PoolSpec(name="lab", kind="fake", target="lab")
OTHER = PoolSpec(name="other", kind="fake", target="other")


class FragileKind(FakeKind):
    """Has a task behind each engine, as real ones have, which a test can make fail."""

    def __init__(self) -> None:
        super().__init__()
        self.opened: list[str] = []
        self.open = 0
        self.breaks: dict[str, anyio.Event] = {}

    @asynccontextmanager
    async def connect(self, target: Target) -> AsyncGenerator[Engine, None]:
        site = self.site(target)
        self.opened.append(target.address)
        self.open += 1
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._break, self.breaks.setdefault(target.address, anyio.Event()))
                yield FakeEngine(site.pool, site.faults)
                tasks.cancel_scope.cancel()
        finally:
            self.open -= 1

    async def _break(self, when: anyio.Event) -> None:
        await when.wait()
        raise RuntimeError("what nobody foresaw")


async def test_a_task_that_fails_behind_one_engine_ends_neither_the_others_nor_the_platform(
    database_url: str, tmp_path: Path
) -> None:
    kind = FragileKind()
    async with pools_of_one_process(database_url, tmp_path, kind) as (service, _):
        for spec in (LAB, OTHER):
            await added(service, spec)
        kind.breaks.pop("lab").set()
        with anyio.fail_after(10):
            while kind.open != 1:
                await anyio.sleep(0.01)
        for pool in await service.pools():
            await service.look(pool.id, pool.spec)
            assert (await service.pool(pool.id)).state is PoolState.READY
        assert kind.opened == ["lab", "other", "lab"]


async def test_a_pool_that_cannot_be_looked_at_goes_offline_and_the_looks_at_others_go_on(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with pools_of_one_process(database_url, tmp_path, FakeKind()) as (service, database):
        for spec in (LAB, OTHER):
            await added(service, spec)
        look, broken = service.look, (await service.pool("lab")).id

        async def look_or_break(pool_id: PoolId, spec: PoolSpec, *, closely: bool = False) -> None:
            if pool_id == broken:
                raise RuntimeError("a fault of ours")
            await look(pool_id, spec, closely=closely)

        monkeypatch.setattr(service, "look", look_or_break)
        before = (await service.pool("other")).seen_at
        keeper = PoolMonitor(database, service, "keeper", system_clock)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(keeper.run)
            with anyio.fail_after(15):
                while (await service.pool("lab")).state is PoolState.READY:
                    await anyio.sleep(0.05)
                while (await service.pool("other")).seen_at == before:
                    await anyio.sleep(0.05)
            tasks.cancel_scope.cancel()
        assert "a fault of ours" in (await service.pool("lab")).reason
        assert (await service.pool("other")).state is PoolState.READY
