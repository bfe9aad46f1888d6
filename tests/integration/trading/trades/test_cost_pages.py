"""Costs of more than fit a page: the total is of all, and the pages tell each of them once."""

from collections import Counter

import msgspec
import pytest
from sqlalchemy.engine import Connection

from yunhe.kernel.errors import InvalidInputError
from yunhe.kernel.ids import AllocationId, JobId, PoolId, ProjectId
from yunhe.kernel.money import Prices, Tier
from yunhe.kernel.resources import Resources
from yunhe.scheduling.orchestration.jobs.events import AllocationMetered, Meters
from yunhe.storage.database import Database
from yunhe.storage.migrate import migrate
from yunhe.trading.trades import store
from yunhe.trading.trades.bill import bill
from yunhe.trading.trades.chain import sealed, verify
from yunhe.trading.trades.costs_store import report
from yunhe.trading.trades.model import Balance, CostQuery, CostReport, PriceList
from yunhe.trading.trades.price import tier_prices

pytestmark = pytest.mark.anyio

JOBS = 221
PRICES = PriceList(
    pool_id=PoolId("pool_0"),
    version=1,
    since=0.0,
    tiers=tier_prices(Prices(cpu_core_hour_micros=10**9)),
)


def bill_job(connection: Connection, number: int) -> None:
    """Append a line for a job; each uses another amount."""
    seq, previous = store.last_line(connection)
    reading = AllocationMetered(
        allocation_id=AllocationId("alloc_a"),
        job_id=JobId(f"job_{number}"),
        project_id=ProjectId(f"project-{number % 3}"),
        pool_id=PoolId(f"pool_{number % 2}"),
        tier=Tier.HIGH,
        resources=Resources(cpu_millis=1000, memory_mib=64),
        meters=Meters(wall_ms=5000, cpu_us=10_000 * (number + 1)),
        final=False,
    )
    (entry,), _ = bill(reading, Balance(), [PRICES], 1000.0 + number)
    store.append_line(connection, sealed(msgspec.structs.replace(entry, seq=seq + 1), previous))


@pytest.fixture
async def ledger(database_url: str) -> Database:
    database = Database(database_url)
    await migrate(database)

    def fill(connection: Connection) -> None:
        for number in range(JOBS):
            bill_job(connection, number)

    await database.write(fill)
    return database


async def ask(database: Database, query: CostQuery) -> CostReport:
    return await database.read(lambda connection: report(connection, query))


async def test_the_total_is_of_all_jobs_however_few_are_shown(ledger: Database) -> None:
    verdict = verify(await ledger.read(lambda connection: store.read_lines(connection, 0, 1000)))
    reports = [await ask(ledger, CostQuery(by=by)) for by in ("job", "project", "pool")]
    assert [len(told.lines) for told in reports] == [100, 3, 2]
    assert [told.count for told in reports] == [JOBS, 3, 2]
    assert {told.amount_micros for told in reports} == {verdict.amount_micros}
    assert len({told.reserved_micros for told in reports}) == 1
    assert [told.next_cursor is None for told in reports] == [False, True, True]
    one = await ask(ledger, CostQuery(projects=(ProjectId("project-1"),), limit=1))
    by_project = {line.key: line.amount_micros for line in reports[1].lines}
    assert (one.amount_micros, one.count) == (by_project["project-1"], len(range(1, JOBS, 3)))
    nothing = await ask(ledger, CostQuery(job_id=JobId("job_none")))
    assert (nothing.lines, nothing.count, nothing.amount_micros) == ((), 0, 0)
    ledger.close()


@pytest.mark.parametrize("limit", [1, 50, 110, 221, 1000])
async def test_pages_tell_each_job_once_though_it_is_billed_again_meanwhile(
    ledger: Database, limit: int
) -> None:
    query = CostQuery(limit=limit)
    page = first = await ask(ledger, query)
    told = Counter(line.key for line in page.lines)
    amounts = sum(line.amount_micros for line in page.lines)
    while page.next_cursor is not None:
        again = len(told) * 7 % JOBS  # one that was told already, or is yet to be told
        await ledger.write(lambda connection, number=again: bill_job(connection, number))
        page = await ask(ledger, msgspec.structs.replace(query, cursor=page.next_cursor))
        told.update(line.key for line in page.lines)
        amounts += sum(line.amount_micros for line in page.lines)
        assert (page.count, page.amount_micros) == (first.count, first.amount_micros)
    assert told == {f"job_{number}": 1 for number in range(JOBS)}
    assert amounts == first.amount_micros
    ledger.close()


@pytest.mark.parametrize("cursor", ["", "x", "5", "5.", ".5", "-5.5", "5.5.5", "1" * 19 + ".2", "².²"])
async def test_a_cursor_that_is_not_ours_is_refused(ledger: Database, cursor: str) -> None:
    with pytest.raises(InvalidInputError, match="cursor"):
        await ask(ledger, CostQuery(cursor=cursor))
    ledger.close()
