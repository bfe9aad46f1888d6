"""A database of each kind with the schema of this version."""

from collections.abc import AsyncGenerator

import pytest

from yunhe.storage.database import Database
from yunhe.storage.migrate import migrate


@pytest.fixture
async def database(database_url: str) -> AsyncGenerator[Database]:
    database = Database(database_url)
    await migrate(database)
    yield database
    database.close()
