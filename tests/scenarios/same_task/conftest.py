"""One platform with every engine, for all tests here."""

from collections.abc import Generator

import pytest

from scenarios.same_task.pools import Platform, four_pools


@pytest.fixture(scope="session")
def platform(tmp_path_factory: pytest.TempPathFactory, kubernetes_programs: None) -> Generator[Platform]:
    with four_pools(tmp_path_factory.mktemp("same-task") / "home") as platform:
        yield platform
