"""The agent's runtimes: a folder each, and nothing outside it knows how one works."""

import os
from pathlib import Path

import pytest

from yunhe.agent.runs.directory import Run
from yunhe.agent.runtimes.interface import Runtime, Sandbox
from yunhe.agent.runtimes.table import RUNTIMES, Runtimes, sandbox_of

AGENT = Path("src/yunhe/agent")
TABLE = Path("runtimes/table.py")
SHARED = {"process"}
"""Runtimes whose name is also the word for something that every runtime has."""


@pytest.mark.parametrize("name", sorted(RUNTIMES.keys() - SHARED))
def test_only_the_table_names_a_runtime_outside_its_folder(name: str) -> None:
    told = {
        path.relative_to(AGENT)
        for path in AGENT.rglob("*.py")
        if AGENT / "runtimes" / name not in path.parents and name in path.read_text().lower()
    }
    assert told == {TABLE}


@pytest.mark.parametrize("name", sorted(RUNTIMES))
def test_every_runtime_is_a_folder_with_the_same_files(name: str) -> None:
    files = {path.name for path in (AGENT / "runtimes" / name).glob("*.py")}
    assert {"__init__.py", "runtime.py", "sandbox.py"} <= files
    entry = RUNTIMES[name]
    assert isinstance(entry.runtime, type)
    assert isinstance(entry.sandbox, type)
    assert issubclass(entry.runtime, Runtime)
    assert issubclass(entry.sandbox, Sandbox)
    assert entry.runtime.name == name


def test_an_image_chooses_the_runtime_and_its_absence_the_process() -> None:
    runtimes = Runtimes("/nowhere")
    assert runtimes.of({"image": "busybox"}).name == "container"
    assert runtimes.of({"image": ""}).name == "process"
    assert runtimes.of({}).name == "process"


def test_a_runtime_that_was_not_probed_is_a_missing_power_with_its_reason() -> None:
    assert Runtimes("/nowhere").missing_powers() == {
        "images": "Whether this host has a container engine is not known yet."
    }


def test_a_command_beside_a_container_that_is_not_made_yet_is_refused(tmp_path: Path) -> None:
    run = Run(str(tmp_path), "a1")
    run.make(os.geteuid())
    order = {"runtime": {"name": "container"}, "environment": {}, "chosen": []}
    with pytest.raises(OSError, match="not been made yet"):
        sandbox_of(order, run).attach()
