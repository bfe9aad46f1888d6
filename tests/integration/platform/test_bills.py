"""Bills from real meter readings: by tier, in a ledger that nobody can rewrite and anybody can check."""

import subprocess
import sys
from pathlib import Path

import anyio
import msgspec
import pytest
import sqlalchemy as sa
from sqlalchemy import exc

from integration.platform.stage import finished, with_a_pool
from yunhe.infrastructure.fake.kind import FakeKind
from yunhe.kernel.errors import InvalidInputError
from yunhe.kernel.ids import ProjectId
from yunhe.kernel.money import Prices, Tier
from yunhe.runtime.platform import Platform
from yunhe.runtime.settings import Settings
from yunhe.runtime.start import running
from yunhe.storage.database import Database
from yunhe.trading.accounts.model import Principal
from yunhe.trading.applications.model import Submission
from yunhe.trading.demand.model import Task
from yunhe.trading.trades.model import CostQuery, LedgerEntry, MaskedEntry

pytestmark = pytest.mark.anyio


async def run_one(platform: Platform, who: Principal, project: str, tier: Tier) -> str:
    task = Task(run="sleep 0.3\n", tier=tier)
    (job,) = await platform.applications.submit(who, (Submission(task=task, project_id=ProjectId(project)),))
    await finished(platform, job)
    with anyio.fail_after(60):
        while not (await platform.trades.costs(CostQuery(job_id=job.id))).lines:
            await anyio.sleep(0.05)
    return job.id


@pytest.mark.feature("T20")
async def test_prices_fall_with_the_tier_and_bills_show_it(tmp_path: Path, database_url: str) -> None:
    async with running(
        Settings(home=tmp_path, database_url=database_url), kinds={"fake": FakeKind()}
    ) as platform:
        who = await with_a_pool(platform)
        pool = await platform.plugins.pool("lab")
        book = await platform.trades.price_list(pool.id)
        assert book is not None
        cpu = {tier: book.tiers[tier].cpu_core_hour_micros for tier in Tier}
        assert cpu[Tier.HIGH] > cpu[Tier.MEDIUM] > cpu[Tier.LOW] > 0
        same = Prices(cpu_core_hour_micros=100)
        for wrong in ({Tier.MEDIUM: same}, {Tier.LOW: Prices(cpu_core_hour_micros=200)}):
            with pytest.raises(InvalidInputError) as refused:
                await platform.trades.publish_prices(pool.id, same, wrong)
            assert any("cpu_core_hour_micros" in field.field for field in refused.value.fields)
        assert await platform.trades.price_list(pool.id) == book
        jobs = {tier: await run_one(platform, who, "default", tier) for tier in Tier}
        lines = {line.key: line for line in (await platform.trades.costs(CostQuery())).lines}
        assert {tier: lines[job].tier for tier, job in jobs.items()} == {tier: tier.value for tier in Tier}
        entries = [line async for line in platform.trades.export() if isinstance(line, LedgerEntry)]
        for entry in entries:
            price = book.tiers[entry.tier]
            expected = round(entry.reserved.cpu_us * price.cpu_core_hour_micros / 3.6e9)
            expected += round(entry.reserved.memory_mib_ms * price.memory_gib_hour_micros / (1024 * 3.6e6))
            assert abs(entry.reserved_micros - expected) <= 1


@pytest.mark.feature("R31")
async def test_the_ledger_is_append_only_chained_and_verifiable_by_any_party(
    tmp_path: Path, database_url: str
) -> None:
    async with running(
        Settings(home=tmp_path, database_url=database_url), kinds={"fake": FakeKind()}
    ) as platform:
        who = await with_a_pool(platform)
        await platform.accounts.create_project(who, ProjectId("rival"))
        for project in ("default", "rival", "default"):
            await run_one(platform, who, project, Tier.HIGH)
        whole = [line async for line in platform.trades.export()]
        ours = [line async for line in platform.trades.export((ProjectId("default"),))]
    assert [type(line) for line in ours] == [LedgerEntry, MaskedEntry, LedgerEntry]
    assert b"rival" not in msgspec.json.encode(ours)
    for name, lines in (("whole", whole), ("ours", ours)):
        path = tmp_path / f"{name}.ndjson"
        path.write_bytes(b"".join(msgspec.json.encode(line) + b"\n" for line in lines))
        assert verify_offline(path) == 0
        path.write_bytes(path.read_bytes().replace(b'"amount_micros":', b'"amount_micros":1', 1))
        assert verify_offline(path) != 0
    database = Database(database_url)
    for statement in ("UPDATE trade_ledger SET amount_micros = 0", "DELETE FROM trade_ledger"):
        with pytest.raises(exc.DBAPIError, match="append-only"):
            await database.write(lambda connection, s=statement: connection.execute(sa.text(s)))
    database.close()


def verify_offline(path: Path) -> int:
    command = [sys.executable, "-m", "yunhe.entrypoints.cli", "ledger", "verify", str(path)]
    return subprocess.run(command, capture_output=True, check=False, timeout=60).returncode
