"""Processes of the host: every host has them."""

from __future__ import annotations

from typing import Any

from yunhe.agent.runtimes.interface import Runtime


class ProcessRuntime(Runtime):
    """Runs tasks among the host's own processes and files."""

    name = "process"

    def accepts(self, body: dict[str, Any]) -> bool:
        """Accept every task that no other runtime has accepted."""
        return True
