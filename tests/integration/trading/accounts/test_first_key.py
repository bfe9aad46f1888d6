"""The first key: whoever sets a platform up has one that opens, however often it dies on the way."""

from collections.abc import AsyncGenerator

import anyio
import pytest
from cryptography.fernet import Fernet

from yunhe.kernel.clock import system_clock
from yunhe.kernel.errors import UnauthenticatedError
from yunhe.storage.database import Database
from yunhe.storage.migrate import migrate
from yunhe.storage.vault import Vault
from yunhe.trading.accounts.service import AccountService

pytestmark = pytest.mark.anyio


@pytest.fixture
async def accounts(database_url: str) -> AsyncGenerator[list[AccountService]]:
    """Return accounts as three processes on one database have them."""
    databases = [Database(database_url) for _ in range(3)]
    await migrate(databases[0])
    yield [AccountService(database, Vault(Fernet.generate_key()), system_clock) for database in databases]
    for database in databases:
        database.close()


async def test_dying_once_the_key_is_left_leaves_no_platform_without_a_key(
    accounts: list[AccountService],
) -> None:
    left: list[str] = []

    def die(key: str) -> None:
        left.append(key)
        raise RuntimeError("killed")

    with pytest.raises(RuntimeError, match="killed"):
        await accounts[0].bootstrap(die)
    with pytest.raises(UnauthenticatedError):
        await accounts[0].authenticate(left[0])
    await accounts[0].bootstrap(left.append)
    assert (await accounts[0].authenticate(left[1])).name == "admin"


async def test_processes_that_start_at_once_make_one_first_user(accounts: list[AccountService]) -> None:
    left: list[str] = []
    async with anyio.create_task_group() as tasks:
        for service in accounts:
            tasks.start_soon(service.bootstrap, left.append)
    assert len(left) == 1
    assert (await accounts[-1].authenticate(left[0])).name == "admin"
