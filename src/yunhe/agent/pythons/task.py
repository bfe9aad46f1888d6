"""The Python environment of one task, as its wrapper sees to it: chosen, built if need be, shared, let go."""

from __future__ import annotations

import os
from typing import Any, Callable

from yunhe.agent.files.mounts import flush
from yunhe.agent.pythons import build
from yunhe.agent.pythons.cache import HeldPython, PythonCache, seal
from yunhe.agent.runs.directory import Run
from yunhe.agent.runs.users import become

RunApart = Callable[[Callable[[], bytes]], bytes]
"""Does a piece of work in a process of the task's group; returns its answer, raises its ``OSError``."""

RECORD = "python"
"""Of the run: what its steps, and commands beside them, see of the environment."""


class TaskPython:
    """What a task wants of Python; nothing, where its order does not say."""

    def __init__(self, order: dict[str, Any], run: Run) -> None:
        self._order = order
        self._run = run
        wanted: dict[str, Any] = order.get("python") or {}
        self.wanted = bool(order.get("python"))
        self._version = str(wanted.get("version", ""))
        self._lines: list[str] = wanted.get("requirements", [])
        self._file = str(wanted.get("file", ""))
        self._cache = PythonCache(order["root"], order["python_limit_bytes"]) if self.wanted else None
        self._key = ""
        self._sharable = True
        self._held: HeldPython | None = None

    @property
    def path(self) -> str:
        """Return where it lies; empty while it is not known."""
        return "" if self._held is None else self._held.path

    @property
    def ready(self) -> bool:
        """Return whether it need not be built."""
        return self._held is not None and self._held.ready

    def read(self, run_apart: RunApart) -> None:
        """Read what is to be installed; as the task's user, who may have put a link there."""
        content = "".join(f"{line}\n" for line in self._lines).encode()
        if self._file:
            content = run_apart(self._read_file)
        elif content:
            with open(self._requirements, "wb") as file:
                file.write(content)
                os.fchmod(file.fileno(), 0o444)
        environment, chosen = self._order["environment"], self._order["chosen"]
        self._sharable = not build.names_files(content)
        self._key = build.key_of(self._order["project_id"], self._version, content, environment, chosen)
        if not self._sharable:
            self._key = f"of-{self._run.id}"

    @property
    def _requirements(self) -> str:
        if self._file:
            return os.path.join(self._run.work, self._file)
        return self._run.at("steps", "requirements.txt") if self._lines else ""

    def _read_file(self) -> bytes:
        become(self._order["uid"])
        return build.read_regular(self._requirements, self._file)

    def take(self) -> bool:
        """Have the environment, or the place to build it in; return False while another task builds it."""
        assert self._cache is not None
        self._held = self._cache.take(self._key, self._order["uid"])
        if self._held is None:
            return False
        seen = build.variables(
            self.path, self._version, self._requirements, self._order["environment"]["PATH"]
        )
        self._order["environment"].update(seen)
        self._order["shown"] = {self.path: not self.ready}
        self._run.write_record(RECORD, dict(seen))
        return True

    def share(self, run_apart: RunApart) -> str:
        """Let later jobs of the project use what was built; return why they cannot, else nothing."""
        assert self._cache is not None
        assert self._held is not None
        if not self._sharable:
            return "the requirements name files, so this Python environment is for this job alone."
        try:
            published = self._cache.publish(self._held, int(run_apart(self._seal)))
        except OSError as fault:
            return f"this Python environment is for this job alone: {fault.strerror or fault}"
        if not published:
            return "the node has no room to keep this Python environment (pool option pythons): it is for this job alone."
        return ""

    def _seal(self) -> bytes:
        size_bytes = seal(self.path, self._order["uid"])
        flush(self.path)
        return str(size_bytes).encode()

    def end(self) -> list[str]:
        """Let go of it; return the directories that are to be removed."""
        if self._cache is None:
            return []
        if self._held is not None:
            if self._held.ready:
                self._held.release()
            else:
                self._cache.discard(self._held)
            self._held = None
        return self._cache.removed
