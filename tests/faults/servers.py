"""Server processes that are started again whenever they are killed, as a service supervisor would."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import anyio

from yunhe.agent.runs.processes import read_stat

PAUSE_S = 0.1
STOP_WITHIN_S = 30.0


class Server:
    """One ``yunhe serve``."""

    def __init__(self, name: str, arguments: list[str], environment: dict[str, str], log: Path) -> None:
        self.name = name
        self.log = log
        self.pid: int | None = None
        self.last_pid = 0
        self.deaths: list[int] = []
        """The status of every end that nobody had asked for by SIGTERM."""
        self.stopped_with: int | None = None
        self._command = [sys.executable, "-m", "yunhe.entrypoints.cli", "serve", *arguments]
        self._environment = {**os.environ, **environment}
        self._stopping = False
        self._away = False

    async def run(self) -> None:
        """Keep it running until it has been told to stop and has."""
        while self.stopped_with is None:
            status = await self._live_once()
            if self._stopping:
                self.stopped_with = status
            else:
                self.deaths.append(status)
                await anyio.sleep(PAUSE_S)
                while self._away:
                    await anyio.sleep(PAUSE_S)

    async def _live_once(self) -> int:
        with self.log.open("ab") as log:
            process = await anyio.open_process(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self._environment,
                start_new_session=True,
            )
        self.pid = self.last_pid = process.pid
        try:
            return await process.wait()
        finally:
            self.pid = None
            if process.returncode is None:
                process.kill()
                with anyio.CancelScope(shield=True):
                    await process.wait()

    def kill(self) -> bool:
        """Kill it if it lives and moves; return whether it did."""
        if self.pid is None or self.is_frozen():
            return False
        os.kill(self.pid, signal.SIGKILL)
        return True

    async def be_away(self, seconds: float) -> None:
        """Kill it, and have it started again only after *seconds*."""
        self._away = True
        self.kill()
        await anyio.sleep(seconds)
        self._away = False

    def is_frozen(self) -> bool:
        """Return whether it stands still, after a failpoint has stopped it."""
        stat = None if self.pid is None else read_stat(self.pid)
        return stat is not None and stat.state == "T"

    def thaw(self) -> None:
        """Let it go on as if nothing had happened."""
        if self.pid is not None:
            os.kill(self.pid, signal.SIGCONT)

    async def stop(self) -> None:
        """Ask it to stop, and wait until it has."""
        self._stopping = True
        if self.pid is not None:
            os.kill(self.pid, signal.SIGTERM)
        with anyio.move_on_after(STOP_WITHIN_S):
            while self.stopped_with is None:
                await anyio.sleep(0.02)
