"""Servers with a fault: a copy of the sources with some lines as they were before they were right."""

import shutil
from pathlib import Path
from typing import NamedTuple

import pytest

from support.repository import REPOSITORY


class Fault(NamedTuple):
    """A line below ``src/yunhe``, and what it was before it was right."""

    file: str
    right: str
    wrong: str


def plant(monkeypatch: pytest.MonkeyPatch, folder: Path, *faults: Fault) -> None:
    """Have every server that is started from now on, and the agents it ships, run a copy with *faults*."""
    source = folder / "planted"
    shutil.copytree(REPOSITORY / "src", source, ignore=shutil.ignore_patterns("__pycache__"))
    for fault in faults:
        path = source / "yunhe" / fault.file
        text = path.read_text()
        assert text.count(fault.right) == 1, f"the planted fault has lost its place in {fault.file}"
        path.write_text(text.replace(fault.right, fault.wrong))
    monkeypatch.setenv("PYTHONPATH", str(source))
