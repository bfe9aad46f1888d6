"""The folder of real traces, where there is one."""

import os
from pathlib import Path

import pytest

from support.repository import REPOSITORY


@pytest.fixture(scope="session")
def traces() -> Path:
    """Return the folder of traces, or skip: the data may not be published with the code."""
    folder = Path(os.environ.get("YUNHE_DATA", REPOSITORY.parent / "shared" / "data"))
    if not (folder / "bitbrains-rnd").is_dir():
        pytest.skip(f"no traces in {folder}: set YUNHE_DATA")
    return folder
