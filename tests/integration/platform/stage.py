"""What the platform's tests begin with: a pool, a user, and waiting for a job's end."""

import anyio

from yunhe.control.plugins.model import PoolSpec
from yunhe.kernel.money import Prices
from yunhe.runtime.platform import Platform
from yunhe.runtime.start import first_key_path
from yunhe.scheduling.orchestration.jobs import Job
from yunhe.trading.accounts.model import Principal


async def with_a_pool(platform: Platform, *, cpus: str = "4") -> Principal:
    """Add a fake pool with prices, and return the first user."""
    checks = [
        check
        async for check in platform.plugins.add(
            PoolSpec(name="lab", kind="fake", target="lab", options={"cpus": cpus})
        )
    ]
    assert all(check.ok for check in checks)
    pool = await platform.plugins.pool("lab")
    prices = Prices(cpu_core_hour_micros=50_000_000, memory_gib_hour_micros=10_000_000)
    await platform.trades.publish_prices(pool.id, prices)
    return await platform.accounts.authenticate(first_key_path(platform.settings.home).read_text().strip())


async def finished(platform: Platform, job: Job) -> Job:
    """Return the job once it has ended."""
    with anyio.fail_after(30):
        return [change async for change in platform.orchestration.changes(job.id)][-1]
