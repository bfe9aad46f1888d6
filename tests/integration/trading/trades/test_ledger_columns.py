"""What has a column of its own in the ledger is what its body says, or the chain does not hold."""

from pathlib import Path

import msgspec
import pytest
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from yunhe.kernel.ids import AllocationId, JobId, PoolId, ProjectId
from yunhe.kernel.money import Prices, Tier
from yunhe.kernel.resources import Resources
from yunhe.scheduling.orchestration.jobs.events import AllocationMetered, Meters
from yunhe.storage.database import Database
from yunhe.storage.migrate import migrate
from yunhe.trading.trades import store
from yunhe.trading.trades.bill import bill
from yunhe.trading.trades.chain import GENESIS, sealed, verify
from yunhe.trading.trades.model import Balance, PriceList
from yunhe.trading.trades.price import tier_prices

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("amount_micros", 999),
        ("reserved_micros", 999),
        ("cpu_us", 0),
        ("memory_mib_ms", 0),
        ("io_bytes", 10**9),
        ("network_bytes", 10**9),
        ("at", 0.0),
        ("job_id", "job_other"),
        ("project_id", "rival"),
        ("pool_id", "pool_other"),
        ("tier", "low"),
        ("hash", "0" * 64),
    ],
)
async def test_the_chain_vouches_for_the_very_columns_that_costs_are_summed_from(
    tmp_path: Path, column: str, value: object
) -> None:
    database = Database(f"sqlite:///{tmp_path / 'yunhe.db'}")
    await migrate(database)
    prices = PriceList(
        pool_id=PoolId("pool_a"),
        version=1,
        since=0.0,
        tiers=tier_prices(Prices(cpu_core_hour_micros=10**9)),
    )
    reading = AllocationMetered(
        allocation_id=AllocationId("alloc_a"),
        job_id=JobId("job_a"),
        project_id=ProjectId("team"),
        pool_id=PoolId("pool_a"),
        tier=Tier.HIGH,
        resources=Resources(cpu_millis=1000, memory_mib=64),
        meters=Meters(wall_ms=5000, cpu_us=4_000_000, memory_mib_ms=300_000),
        final=True,
    )
    (entry,), _ = bill(reading, Balance(), [prices], 1234.5678)
    line = sealed(msgspec.structs.replace(entry, seq=1), GENESIS)
    await database.write(lambda connection: store.append_line(connection, line))
    assert await database.read(lambda connection: store.read_lines(connection, 0, 9)) == [line]

    def tamper(connection: Connection) -> None:
        connection.execute(sa.text("DROP TRIGGER trade_ledger_no_update"))
        connection.execute(sa.update(store.LEDGER).values({column: value}))

    await database.write(tamper)
    assert not verify(await database.read(lambda connection: store.read_lines(connection, 0, 9))).ok
    database.close()
