"""A local agent for each test."""

from collections.abc import AsyncGenerator, Generator
from pathlib import Path

import pytest

from support.agent_roots import agent_root
from yunhe.infrastructure.host.engine import HostEngine
from yunhe.infrastructure.host.target import LocalHost


@pytest.fixture
def root() -> Generator[Path, None, None]:
    with agent_root() as root:
        yield root


@pytest.fixture
async def engine(root: Path) -> AsyncGenerator[HostEngine, None]:
    async with HostEngine(LocalHost(root=str(root))) as engine:
        yield engine
