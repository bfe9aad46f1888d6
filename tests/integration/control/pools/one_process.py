"""The pools of one server process, with the fake kind as a test wants it, and nothing around them."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from yunhe.control.plugins.in_process import in_process
from yunhe.control.pools.model import PoolSpec
from yunhe.control.pools.service import PoolService
from yunhe.infrastructure.contract.kind import Kind
from yunhe.kernel.clock import system_clock
from yunhe.runtime.plugin_parts import plugin_parts
from yunhe.runtime.settings import Settings
from yunhe.storage.blobs import Blobs
from yunhe.storage.database import Database
from yunhe.storage.migrate import migrate
from yunhe.storage.vault import Vault


@asynccontextmanager
async def pools_of_one_process(
    database_url: str, folder: Path, kind: Kind
) -> AsyncGenerator[tuple[PoolService, Database]]:
    """Run them; pools of kind ``fake`` are of *kind*."""
    database = Database(database_url)
    await migrate(database)
    blobs, vault = Blobs(database, system_clock, 1 << 20), Vault.at(folder / "vault.key")
    settings = Settings(home=folder)
    plugins = plugin_parts(settings, database, vault, in_process({"fake": kind}), system_clock)
    service = PoolService(database, blobs, system_clock, plugins.kinds)
    async with service.running():
        yield service, database
    database.close()


async def added(service: PoolService, spec: PoolSpec) -> None:
    """Add a pool."""
    async for _ in service.add(spec):
        pass
