"""What every test shares."""

import pytest

pytest.register_assert_rewrite("conformance")


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"
