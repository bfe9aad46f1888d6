"""What the platform's tests begin with: a pool, a user, and waiting for a job's end."""

import anyio

from integration.infrastructure.host.sshd import SshServer
from yunhe.control.pools.model import PoolSpec
from yunhe.kernel.money import Prices
from yunhe.runtime.platform import Platform
from yunhe.runtime.start import first_key_path
from yunhe.scheduling.orchestration.jobs.model import Job
from yunhe.trading.accounts.model import Principal


async def with_a_pool(platform: Platform, *, cpus: str = "4") -> Principal:
    """Add a fake pool with prices, and return the first user."""
    checks = [
        check
        async for check in platform.pools.add(
            PoolSpec(name="lab", kind="fake", target="lab", options={"cpus": cpus})
        )
    ]
    assert all(check.ok for check in checks)
    pool = await platform.pools.pool("lab")
    prices = Prices(cpu_core_hour_micros=50_000_000, memory_gib_hour_micros=10_000_000)
    await platform.trades.publish_prices(pool.id, prices)
    return await platform.accounts.authenticate(first_key_path(platform.settings.home).read_text().strip())


async def finished(platform: Platform, job: Job) -> Job:
    """Return the job once it has ended."""
    with anyio.fail_after(90):
        return [change async for change in platform.orchestration.changes(job.id)][-1]


def over_ssh(server: SshServer, user: str, **options: str) -> PoolSpec:
    """Return the pool that *user* reaches on a test's sshd."""
    target = server.target(user)
    config = server.directory / "ssh_config"
    config.write_text(
        f"Host *\n  UserKnownHostsFile {server.directory / 'known_hosts'}\n  StrictHostKeyChecking yes\n"
    )
    given = {
        "port": str(target.port),
        "identity": str(target.identity_file),
        "root": target.root,
        "python": target.python,
        "ssh_config": str(config),
    }
    return PoolSpec(name=f"far-{user}", kind="ssh", target=target.destination, options=given | options)
