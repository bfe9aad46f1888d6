"""One allocation's directory: what lies where, and who may enter.

``claim.json``    the order, without scripts and secrets; made by exclusive create, before anything runs
``start.json``    the wrapper's identity; made by exclusive create, before the first step is executed
``first.json``    the first process of its namespaces, where it has any
``stop.json``     the wish to end it; ``exit.json`` how it ended, both written whole or not at all
                  (on a host, room for these is reserved with the claim, and they are written in place)
``owner.json``    whose it is, where files came before the claim; ``uploads.json`` which archives are in place
``reaped``        counters of what the wrapper has reaped; ``samples`` the agent's one-second ring
``log/``          output in segments, each named by the offset of its first byte
``steps/``        the scripts; ``tmp/`` and ``work/`` belong to the project's user, nobody else may enter
``scratch/``      the task's own file system where it has one, from ``scratch.img``; see ``files.scratch``
"""

from __future__ import annotations

import os
import time
from typing import Any

from yunhe.agent.durable import (
    RECORD_BYTES,
    create_json,
    encode_json,
    is_reserved,
    overwrite,
    overwrite_once,
    read_json,
    replace_json,
    reserve,
    sync_directory,
)

RESERVED = ("start.json", "first.json", "stop.json", "exit.json", "step", "reaped")
"""What must be written after the claim, whatever the disk is like then."""
OWN = ("work", "tmp")
"""The directories that belong to the project's user."""


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

    @property
    def scratch(self) -> str:
        """Return where the task's own file system is mounted, if it has one."""
        return self.at("scratch")

    def exists(self) -> bool:
        """Return whether the directory is there."""
        return os.path.isdir(self.path)

    def make(self, uid: int) -> None:
        """Make the directory with its parts; making it again changes nothing."""
        for name, mode in (("", 0o711), ("log", 0o700), ("steps", 0o711)):
            os.makedirs(self.at(name), exist_ok=True)
            os.chmod(self.at(name), mode)
        for name in OWN:
            _make_private(self.at(name), uid)
        sync_directory(os.path.dirname(self.path))

    def make_scratch(self, uid: int) -> None:
        """Make the directories of the task's own file system; making them again changes nothing."""
        os.chmod(self.scratch, 0o711)
        for name in OWN:
            _make_private(os.path.join(self.scratch, name), uid)

    def reserve(self, **sizes: int) -> None:
        """Reserve the room of every record that follows the claim, and of the files in *sizes*; idempotent."""
        for name in RESERVED:
            reserve(self.at(name))
        for name, size_bytes in sizes.items():
            reserve(self.at(name), size_bytes)

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
        path = self.at(f"{name}.json")
        if is_reserved(path):
            overwrite(path, _fitting(value))
        else:
            replace_json(path, value)

    def create_record(self, name: str, value: dict[str, Any]) -> bool:
        """Write the record *name* unless it exists; return whether this call made it."""
        path = self.at(f"{name}.json")
        return overwrite_once(path, value) if is_reserved(path) else create_json(path, value)

    def announce(self, step: str) -> None:
        """Say which step runs; it is news, not a record, so no sync."""
        path = self.at("step")
        if is_reserved(path):
            overwrite(path, step.encode(), sync=False)
            return
        fresh = self.at("step.new")
        with open(fresh, "w", encoding="utf-8") as file:
            file.write(step)
        os.replace(fresh, path)

    def announced(self) -> str:
        """Return the step that was last announced; empty if none was."""
        try:
            with open(self.at("step"), encoding="utf-8") as file:
                return file.read().strip("\0 ")
        except FileNotFoundError:
            return ""

    def remove(self, trash: str) -> str:
        """Move the directory out of sight at once; return where it went, for somebody to remove at leisure."""
        gone = os.path.join(trash, f"{self.id}.{time.monotonic_ns()}")
        if self.exists():
            os.rename(self.path, gone)
        return gone


def _make_private(path: str, uid: int) -> None:
    """Make a directory that only *uid* may enter."""
    os.makedirs(path, mode=0o700, exist_ok=True)
    if os.geteuid() == 0:
        os.chown(path, uid, uid)
    os.chmod(path, 0o700)


def _fitting(value: dict[str, Any]) -> bytes:
    """Return a record in the room that is reserved for it: its detail is what may be long, and is cut."""
    data = encode_json(value)
    while len(data) > RECORD_BYTES and value.get("detail"):
        value = {**value, "detail": value["detail"][: len(value["detail"]) // 2]}
        data = encode_json(value)
    return data
