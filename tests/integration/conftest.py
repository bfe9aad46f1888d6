"""Fixtures of the integration tests: both databases, and a platform with a fake pool."""

import uuid
from collections.abc import Generator
from pathlib import Path

import pytest

from support import apart
from support.postgres import new_database, postgres_server


@pytest.fixture(scope="session")
def postgres() -> Generator[str]:
    with postgres_server() as socket_folder:
        yield socket_folder


@pytest.fixture(scope="session", autouse=True)
def far_apart(request: pytest.FixtureRequest) -> None:
    if request.config.getoption("--apart"):
        apart.begin(request.getfixturevalue("postgres"))


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'yunhe.db'}"
    return new_database(request.getfixturevalue("postgres"), f"test_{uuid.uuid4().hex[:12]}")
