"""The folder of real traces, where there is one."""

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="session")
def traces() -> Path:
    """Return the folder of traces, or skip: the data may not be published with the code."""
    folder = Path(os.environ.get("YUNHE_DATA", ROOT.parent / "shared" / "data"))
    if not (folder / "bitbrains-rnd").is_dir():
        pytest.skip(f"no traces in {folder}: set YUNHE_DATA")
    return folder
