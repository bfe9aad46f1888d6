"""A pool that is removed is gone from everywhere: from the looks that are under way, and from other processes."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from integration.control.pools.one_process import added, pools_of_one_process
from yunhe.control.pools import service as pool_service
from yunhe.control.pools.model import PoolSpec
from yunhe.control.pools.service import PoolService
from yunhe.infrastructure.contract.engine import Engine
from yunhe.infrastructure.contract.kind import Target
from yunhe.infrastructure.contract.model import Inventory
from yunhe.infrastructure.fake.engine import FakeEngine
from yunhe.infrastructure.fake.kind import FakeKind
from yunhe.storage.database import Database

pytestmark = pytest.mark.anyio
LAB = PoolSpec(name="lab", kind="fake", target="lab")
OTHER = PoolSpec(name="other", kind="fake", target="other")


class SlowEngine(FakeEngine):
    """Answers what it has only when it is let."""

    kind: "SlowKind"

    async def inventory(self) -> Inventory:
        found = await super().inventory()
        self.kind.asked.set()
        await self.kind.may_answer.wait()
        return found


class SlowKind(FakeKind):
    """Counts its connections, and can hold back its answers."""

    def __init__(self) -> None:
        super().__init__()
        self.open = 0
        self.asked, self.may_answer = anyio.Event(), anyio.Event()
        self.may_answer.set()

    @asynccontextmanager
    async def connect(self, target: Target) -> AsyncGenerator[Engine, None]:
        site = self.site(target)
        engine = SlowEngine(site.pool, site.faults)
        engine.kind = self
        self.open += 1
        try:
            yield engine
        finally:
            self.open -= 1


@asynccontextmanager
async def one_process(
    database_url: str, folder: Path
) -> AsyncGenerator[tuple[SlowKind, PoolService, Database]]:
    kind = SlowKind()
    async with pools_of_one_process(database_url, folder, kind) as (service, database):
        yield kind, service, database


async def until_hung_up(kind: SlowKind, *, left: int = 0) -> None:
    with anyio.fail_after(10):
        while kind.open != left:
            await anyio.sleep(0.02)


async def test_a_look_that_is_under_way_brings_nothing_of_a_removed_pool_back(
    database_url: str, tmp_path: Path
) -> None:
    async with one_process(database_url, tmp_path) as (kind, service, _):
        await added(service, LAB)
        pool = await service.pool("lab")
        kind.asked, kind.may_answer = anyio.Event(), anyio.Event()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(service.look, pool.id, pool.spec)
            await kind.asked.wait()
            await service.remove("lab", force=True)
            kind.may_answer.set()
        assert await service.pools() == ()
        await until_hung_up(kind)


async def test_a_process_hangs_up_on_a_pool_that_another_has_removed(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool_service, "LET_GO_EVERY_S", 0.05)
    async with (
        one_process(database_url, tmp_path) as (worker, working, _),
        one_process(database_url, tmp_path) as (_, answering, _),
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(working.let_go_of_removed)
        for spec in (LAB, OTHER):
            await added(working, spec)
        assert worker.open == 2
        await answering.remove("lab")
        await until_hung_up(worker, left=1)
        tasks.cancel_scope.cancel()
