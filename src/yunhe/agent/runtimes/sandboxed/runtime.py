"""Whether this host can run tasks in a sandbox, and what they are told there."""

from __future__ import annotations

import subprocess
import tempfile
from typing import Any

from yunhe.agent.runtimes.guards import Guard, no_namespaces
from yunhe.agent.runtimes.interface import NO_OPTIONS, HostOptions, Runtime
from yunhe.agent.runtimes.sandboxed import runsc

_WITHIN_S = 30.0


class SandboxedRuntime(Runtime):
    """Runs tasks in sandboxes, each with a kernel of its own."""

    name = "sandboxed"
    permit = "sandboxed"

    def __init__(self, agent: str, options: HostOptions = NO_OPTIONS) -> None:
        super().__init__(agent, options)
        self._program = ""
        self.probed = False
        self.reason = "Whether this host can make sandboxes is not known yet."

    def accepts(self, body: dict[str, Any]) -> bool:
        """Accept tasks that ask for this runtime by name."""
        return body.get("runtime") == self.name

    def probe(self) -> None:
        """Run a program in a sandbox."""
        self._program = runsc.find()
        self.reason = no_namespaces() or self._why_not()
        self.probed = True

    def _why_not(self) -> str:
        if not self._program:
            return "This host has no runsc: install gVisor (on Debian the package runsc), then restart the agent."
        with tempfile.TemporaryDirectory(prefix="yunhe-sandbox-") as place:
            try:
                done = subprocess.run(
                    runsc.trial(self._program, place),
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    timeout=_WITHIN_S,
                    check=False,
                )
            except (OSError, subprocess.TimeoutExpired) as fault:
                return f"runsc does not work here: {fault}"
        said = runsc.last_words(done.stdout.decode(errors="replace"))
        return f"runsc does not work here: {said or done.returncode}" if done.returncode else ""

    def order(self, body: dict[str, Any], total: dict[str, Any]) -> dict[str, Any]:
        """Return what makes the sandbox of a task."""
        return {
            **super().order(body, total),
            "program": self._program,
            "namespaces": True,
            "writable": list(self.options.writable),
        }

    def guards(self) -> list[Guard]:
        """Return whether a task can have a kernel of its own here."""
        return [Guard("sandbox with a kernel of its own (gVisor)", self.reason)]
