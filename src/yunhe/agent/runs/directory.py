"""One allocation's directory: what lies where, and who may enter.

``claim.json``    the order, without scripts and secrets; made by exclusive create, before anything runs
``start.json``    the wrapper's identity; made by exclusive create, before the first step is executed
``stop.json``     the wish to end it; ``exit.json`` how it ended, both written whole or not at all
``owner.json``    whose it is, where files came before the claim; ``uploads.json`` which archives are in place
``reaped``        counters of what the wrapper has reaped; ``samples`` the agent's one-second ring
``log/``          output in segments, each named by the offset of its first byte
``steps/``        the scripts; ``tmp/`` and ``work/`` belong to the project's user, nobody else may enter
"""

from __future__ import annotations

import os
import time
from typing import Any

from yunhe.agent.durable import create_json, read_json, replace_json, sync_directory


class Run:
    """Paths and records of one allocation."""

    def __init__(self, runs: str, allocation_id: str) -> None:
        self.id = allocation_id
        self.path = os.path.join(runs, allocation_id)

    def at(self, *names: str) -> str:
        """Return a path inside the directory."""
        return os.path.join(self.path, *names)

    @property
    def work(self) -> str:
        """Return the directory the task runs in."""
        return self.at("work")

    @property
    def log(self) -> str:
        """Return the directory of the log's segments."""
        return self.at("log")

    def exists(self) -> bool:
        """Return whether the directory is there."""
        return os.path.isdir(self.path)

    def make(self, uid: int) -> None:
        """Make the directory with its parts; making it again changes nothing."""
        for name, mode in (("", 0o711), ("log", 0o700), ("steps", 0o711)):
            os.makedirs(self.at(name), exist_ok=True)
            os.chmod(self.at(name), mode)
        for name in ("work", "tmp"):
            os.makedirs(self.at(name), mode=0o700, exist_ok=True)
            if os.geteuid() == 0:
                os.chown(self.at(name), uid, uid)
            os.chmod(self.at(name), 0o700)
        sync_directory(os.path.dirname(self.path))

    def write_steps(self, steps: list[dict[str, str]], uid: int) -> None:
        """Write each script to its file, for the project's user to execute."""
        for number, step in enumerate(steps):
            path = self.step_path(number)
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            with os.fdopen(handle, "w", encoding="utf-8", newline="") as file:
                file.write(step["script"])
                if os.geteuid() == 0:
                    os.fchown(file.fileno(), uid, uid)
                os.fchmod(file.fileno(), 0o500)

    def step_path(self, number: int) -> str:
        """Return where the script of a step lies."""
        return self.at("steps", f"{number:02d}")

    def claim(self, order: dict[str, Any]) -> bool:
        """Claim the right to run this allocation, durably; return False if somebody has it already."""
        return create_json(self.at("claim.json"), order)

    def record(self, name: str) -> dict[str, Any] | None:
        """Return the record *name*, or None while there is none."""
        return read_json(self.at(f"{name}.json"))

    def write_record(self, name: str, value: dict[str, Any]) -> None:
        """Write the record *name*, durably and whole."""
        replace_json(self.at(f"{name}.json"), value)

    def create_record(self, name: str, value: dict[str, Any]) -> bool:
        """Write the record *name* unless it exists; return whether this call made it."""
        return create_json(self.at(f"{name}.json"), value)

    def remove(self, trash: str) -> str:
        """Move the directory out of sight at once; return where it went, for somebody to remove at leisure."""
        gone = os.path.join(trash, f"{self.id}.{time.monotonic_ns()}")
        if self.exists():
            os.rename(self.path, gone)
        return gone
