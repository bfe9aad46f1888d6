"""Bills of what a fake pool metered: by tier and by the price of the time, in a ledger that nobody can rewrite."""

import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import anyio
import msgspec
import pytest
import sqlalchemy as sa
from sqlalchemy import exc

from integration.scheduling.orchestration.stage import finished, with_a_pool
from yunhe.infrastructure.fake.kind import FakeKind
from yunhe.kernel.errors import InvalidInputError
from yunhe.kernel.ids import PoolId, ProjectId
from yunhe.kernel.money import Prices, Tier
from yunhe.runtime.platform import Platform
from yunhe.runtime.settings import Settings
from yunhe.runtime.start import running
from yunhe.storage.database import Database
from yunhe.trading.accounts.model import Principal
from yunhe.trading.applications.model import Submission
from yunhe.trading.demand.model import Task
from yunhe.trading.trades import store
from yunhe.trading.trades.chain import GENESIS, digest_of, sealed, verify
from yunhe.trading.trades.model import CostQuery, LedgerEntry, LedgerLine, MaskedEntry, PriceList, Quantities

pytestmark = pytest.mark.anyio


async def run_one(platform: Platform, who: Principal, project: str, tier: Tier) -> str:
    task = Task(run="sleep 0.3\n", tier=tier)
    (job,) = await platform.applications.submit(who, (Submission(task=task, project_id=ProjectId(project)),))
    await finished(platform, job)
    with anyio.fail_after(60):
        while not (await platform.trades.costs(CostQuery(job_id=job.id))).lines:
            await anyio.sleep(0.05)
    return job.id


@pytest.mark.feature(
    "T20",
    file="src/yunhe/trading/trades/price.py",
    old="if micros[lower] >= micros[upper]:",
    new="if micros[lower] < 0:",
)
async def test_prices_fall_with_the_tier_and_bills_show_it(tmp_path: Path, database_url: str) -> None:
    async with running(
        Settings(home=tmp_path, database_url=database_url), kinds={"fake": FakeKind()}
    ) as platform:
        who = await with_a_pool(platform)
        pool = await platform.pools.pool("lab")
        book = await platform.trades.price_list(pool.id)
        assert book is not None
        cpu = {tier: book.tiers[tier].cpu_core_hour_micros for tier in Tier}
        assert cpu[Tier.HIGH] > cpu[Tier.MEDIUM] > cpu[Tier.LOW] > 0
        same = Prices(cpu_core_hour_micros=100)
        for wrong in (
            {Tier.MEDIUM: same},
            {Tier.LOW: Prices(cpu_core_hour_micros=200)},
            {Tier.MEDIUM: Prices(), Tier.LOW: Prices()},
        ):
            with pytest.raises(InvalidInputError) as refused:
                await platform.trades.publish_prices(pool.id, same, wrong)
            assert any("cpu_core_hour_micros" in field.field for field in refused.value.fields)
        with pytest.raises(InvalidInputError) as refused:
            await platform.trades.publish_prices(pool.id, Prices(cpu_core_hour_micros=1))
        assert [field.field for field in refused.value.fields] == ["high.cpu_core_hour_micros"]
        assert await platform.trades.price_list(pool.id) == book
        jobs = {tier: await run_one(platform, who, "default", tier) for tier in Tier}
        lines = {line.key: line for line in (await platform.trades.costs(CostQuery())).lines}
        assert {tier: lines[job].tier for tier, job in jobs.items()} == {tier: tier.value for tier in Tier}
        entries = [line async for line in platform.trades.export() if isinstance(line, LedgerEntry)]
        for entry in entries:
            price = book.tiers[entry.tier]
            assert entry.prices == price
            assert entry.used.cpu_us > 0
            assert abs(entry.amount_micros - expected_micros(entry.used, price)) <= 1
            assert abs(entry.reserved_micros - expected_micros(entry.reserved, price)) <= 1
        owed_per_core = {e.tier: e.amount_micros / e.used.cpu_us for e in entries}
        assert owed_per_core[Tier.HIGH] > owed_per_core[Tier.MEDIUM] > owed_per_core[Tier.LOW] > 0
        assert {tier: lines[job].amount_micros for tier, job in jobs.items()} == {
            entry.tier: entry.amount_micros for entry in entries
        }


def expected_micros(quantities: Quantities, price: Prices) -> int:
    """Return what quantities of cores and memory cost, computed another way than the platform does."""
    cores = round(quantities.cpu_us * price.cpu_core_hour_micros / 3.6e9)
    return cores + round(quantities.memory_mib_ms * price.memory_gib_hour_micros / (1024 * 3.6e6))


async def test_what_was_used_before_a_price_changed_is_owed_at_the_old_price(
    tmp_path: Path, database_url: str
) -> None:
    async with running(
        Settings(home=tmp_path, database_url=database_url), kinds={"fake": FakeKind()}
    ) as platform:
        who = await with_a_pool(platform)
        pool = await platform.pools.pool("lab")
        (job,) = await platform.applications.submit(who, (Submission(task=Task(run="sleep 2.5\n")),))
        changes: list[PriceList] = []
        for factor in (1000, 1):
            await anyio.sleep(0.7)
            high = Prices(cpu_core_hour_micros=50_000_000 * factor, memory_gib_hour_micros=factor * 10**7)
            changes.append(await platform.trades.publish_prices(pool.id, high))
        await finished(platform, job)
        with anyio.fail_after(60):
            while not (lines := [line async for line in platform.trades.export()]):
                await anyio.sleep(0.05)
    entries = [line for line in lines if isinstance(line, LedgerEntry)]
    assert verify(lines).ok
    assert [entry.price_version for entry in entries] == [1, 2, 3]
    assert [entry.final for entry in entries] == [False, False, True]
    for before, after, change in zip(entries, entries[1:], changes, strict=False):
        assert before.to_ms == after.from_ms
        assert isinstance(before.began_at, float)
        assert before.to_ms == pytest.approx(1000 * (change.since - before.began_at), abs=1)
    first, dear, last = (entry.amount_micros / entry.used.cpu_us for entry in entries)
    assert first == pytest.approx(last, rel=0.01), "the old price, and the same again"
    assert dear == pytest.approx(1000 * first, rel=0.01)


@pytest.mark.feature(
    "R31",
    file="src/yunhe/trading/trades/chain.py",
    old="if digest_of(line) != line.digest:",
    new="if not line.digest:",
)
@pytest.mark.feature(
    "R31",
    file="src/yunhe/trading/trades/chain.py",
    old="if link(line.previous, line.digest) != line.hash:",
    new="if not line.hash:",
)
@pytest.mark.feature(
    "R31",
    file="src/yunhe/trading/trades/chain.py",
    old="if line.previous != previous:",
    new="if not line.previous:",
)
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
        first, *rest = lines
        assert isinstance(first, LedgerEntry)
        assert verify_offline(path, lines) == 0
        for how, line in tampered(first).items():
            assert verify_offline(path, [line, *rest]) != 0, how
    database = Database(database_url)
    taken = "SELECT seq, at, job_id, project_id, pool_id, tier, cpu_us, memory_mib_ms, io_bytes, network_bytes, 999,"
    taken += " reserved_micros, hash, body FROM trade_ledger WHERE seq = 2"
    statements = [
        "UPDATE trade_ledger SET amount_micros = 0",
        "DELETE FROM trade_ledger",
        f"INSERT INTO trade_ledger {taken} ON CONFLICT (seq) DO UPDATE SET amount_micros = 0",
    ]
    if database.is_sqlite:
        columns = ", ".join(column.name for column in store.LEDGER.columns)
        statements += [
            f"INSERT OR REPLACE INTO trade_ledger {taken}",
            f"REPLACE INTO trade_ledger (rowid, {columns}) {taken.replace('SELECT seq', 'SELECT 2, 100')}",
        ]
    for statement in statements:
        with pytest.raises(exc.DBAPIError, match="append-only"):
            await database.write(lambda connection, s=statement: connection.execute(sa.text(s)))
    kept = await database.read(lambda connection: store.read_lines(connection, 0, 10))
    assert kept == whole
    database.close()


def tampered(first: LedgerEntry) -> dict[str, LedgerEntry]:
    """Return the first line changed, with more and more of its hashes computed again."""
    moved = msgspec.structs.replace(first, pool_id=PoolId("pool_other"))
    return {
        "the amount is changed": msgspec.structs.replace(first, amount_micros=first.amount_micros + 1),
        "the pool is changed": moved,
        "its digest fits": msgspec.structs.replace(moved, digest=digest_of(moved)),
        "its hash fits too, and the next line follows the old one": sealed(moved, GENESIS),
    }


def verify_offline(path: Path, lines: Iterable[LedgerLine]) -> int:
    """Write *lines* to *path* and return the exit status of whoever checks them without the platform."""
    path.write_bytes(b"".join(msgspec.json.encode(line) + b"\n" for line in lines))
    command = [sys.executable, "-m", "yunhe.entrypoints.cli", "ledger", "verify", str(path)]
    return subprocess.run(command, capture_output=True, check=False, timeout=60).returncode
