"""Usage by the minute is kept as long as was said, and no longer."""

import time
from pathlib import Path

import anyio
import pytest
import sqlalchemy as sa

from integration.scheduling.orchestration.stage import with_a_pool
from yunhe.infrastructure.fake.kind import FakeKind
from yunhe.runtime.limits import Retention
from yunhe.runtime.settings import Settings
from yunhe.runtime.start import running
from yunhe.scheduling.perception.store import USAGE
from yunhe.storage.database import Database

pytestmark = pytest.mark.anyio
DAY_S = 86_400.0


async def test_minutes_older_than_the_retention_go_and_younger_stay(
    database_url: str, tmp_path: Path
) -> None:
    settings = Settings(
        home=tmp_path, database_url=database_url, retention=Retention(usage_days=2, sweep_s=0.1)
    )
    now = int(time.time() // 60)
    ages = {"old": 2 * 1440 + 5, "young": 2 * 1440 - 5, "new": 0}
    async with running(settings, kinds={"fake": FakeKind()}) as platform:
        database = Database(database_url)
        rows = [{"allocation_id": name, "minute": now - age, "body": b"{}"} for name, age in ages.items()]
        await database.write(lambda connection: connection.execute(USAGE.insert(), rows))
        await with_a_pool(platform)
        left = {"old"}
        with anyio.fail_after(20):
            while "old" in left:
                await anyio.sleep(0.1)
                left = await database.read(lambda c: set(c.scalars(sa.select(USAGE.c.allocation_id))))
        assert left == {"young", "new"}
        database.close()
