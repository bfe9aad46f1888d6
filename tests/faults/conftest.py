"""Fixtures of the fault campaigns."""

from collections.abc import Generator

import pytest

from support.postgres import postgres_server


@pytest.fixture(scope="session")
def postgres() -> Generator[str]:
    with postgres_server() as socket_folder:
        yield socket_folder
