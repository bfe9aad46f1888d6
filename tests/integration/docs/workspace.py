"""Where a page is followed: the checkout's files, a fresh home, and ``yunhe`` on the path."""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from integration.entrypoints.cli.conftest import free_port
from support.agent_roots import agent_root
from support.doc_pages import Command, File
from support.repository import REPOSITORY

PATIENCE_S = 240.0
_END = re.compile(r"\x1e(\d+) (\d+)\x1e")
"""What the shell prints after each command: its number and its exit code."""
_YUNHE = """\
#!/bin/sh
# As installed, but on a port and with agents that no other platform of this machine uses.
case "$*" in
  up|"up "*) shift; set -- up --port {port} --agent-root {agents} "$@" ;;
  "pool add ssh "*) set -- "$@" --option root=$(cat {agents_over_ssh}) ;;
esac
exec {python} -m yunhe.entrypoints.cli "$@"
"""


@dataclass(frozen=True)
class Workspace:
    """A directory in which the commands of a page are run."""

    folder: Path
    agents: Path
    port: int

    @property
    def home(self) -> Path:
        """Return the home directory of whoever follows the page."""
        return self.folder / "home"

    @property
    def checkout(self) -> Path:
        """Return where the commands are run: the files of the repository, with room for new ones beside them."""
        return self.folder / "yunhe"

    @property
    def programs(self) -> Path:
        """Return the directory of the virtual environment's programs."""
        return self.checkout / ".venv" / "bin"

    def make(self) -> None:
        """Lay out the files."""
        self.home.mkdir(parents=True)
        self.checkout.mkdir()
        for entry in REPOSITORY.iterdir():
            if not entry.name.startswith("."):
                (self.checkout / entry.name).symlink_to(entry)
        self.programs.mkdir(parents=True)
        python = sys.executable
        self.program(
            "yunhe",
            _YUNHE.format(
                port=self.port, agents=self.agents, agents_over_ssh=self.folder / "ssh", python=python
            ),
        )
        self.program("python3", f'#!/bin/sh\nexec {python} "$@"\n')
        (self.programs / "activate").write_text(f"PATH={self.programs}:$PATH\n")
        (self.checkout / ".venv" / ".ready").touch()

    def program(self, name: str, text: str) -> None:
        """Write a program that is found by *name*."""
        (self.programs / name).write_text(text)
        (self.programs / name).chmod(0o755)

    def reach(self, ssh_config: Path, agents: Path) -> None:
        """Let ``ssh`` read *ssh_config*, and agents at the hosts it reaches live at *agents*."""
        self.program("ssh", f'#!/bin/sh\nexec /usr/bin/ssh -F {ssh_config} "$@"\n')
        (self.folder / "ssh").write_text(str(agents))

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run one command."""
        return subprocess.run(
            words,
            cwd=self.checkout,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )

    @property
    def environment(self) -> dict[str, str]:
        """Return the environment of the page's commands."""
        ours = ("YUNHE_", "MAKE", "MFLAGS")  # of the platform, and of a `make test` that runs this
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
        return {
            **inherited,
            "HOME": str(self.home),
            "PATH": f"{self.programs}:{os.environ['PATH']}",
            "PYTHONPATH": ":".join(sys.path),
            "PYTHONUNBUFFERED": "1",
            "COLUMNS": "120",
            "LANG": "C.UTF-8",
        }

    def local(self, text: str) -> str:
        """Return *text* of a page with the addresses of platforms in it replaced by that of ours."""
        return re.sub(
            r"https?://(127\.0\.0\.1|yunhe\.example\.org):8600", f"http://127.0.0.1:{self.port}", text
        )

    def follow(self, steps: Iterable[Command | File]) -> list[str]:
        """Do *steps* in one shell; return each command that did not do what the page shows, and how."""
        numbered = dict(enumerate(steps))
        ended = self._run({number: _script(number, step) for number, step in numbered.items()})
        problems: list[str] = []
        for number, step in numbered.items():
            if isinstance(step, File):
                continue
            printed, code = ended.get(number, ("", None))
            problem = "did not end" if code is None else step.problem(printed, code)
            if problem:
                problems.append(f"line {step.line}: {problem}\n$ {step.text}\n{printed}")
        return problems

    def _run(self, scripts: dict[int, str]) -> dict[int, tuple[str, int | None]]:
        """Return what each script printed and its exit code; None for one that did not end in time."""
        log = self.folder / "printed"
        with log.open("w") as output:
            shell = subprocess.Popen(
                ["bash", "-c", "".join(scripts.values())],
                cwd=self.checkout,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        with contextlib.suppress(subprocess.TimeoutExpired):
            shell.wait(PATIENCE_S)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(shell.pid, signal.SIGKILL)  # what the page left in the background
        shell.wait(10)
        *ends, rest = _END.split(log.read_text())
        texts, numbers, codes = ends[::3], ends[1::3], ends[2::3]
        ended: dict[int, tuple[str, int | None]] = {
            int(number): (text, int(code)) for text, number, code in zip(texts, numbers, codes, strict=True)
        }
        return ended | {len(ended): (rest, None)}


def _script(number: int, step: Command | File) -> str:
    if isinstance(step, File):
        return f"cat > {step.name} <<'END_OF_FILE'\n{step.text}END_OF_FILE\nprintf '\\036{number} 0\\036'\n"
    return f"{step.script}\nprintf '\\036{number} %d\\036' $?\n"


@contextmanager
def workspace(folder: Path, platform: Workspace | None = None) -> Generator[Workspace]:
    """Yield a workspace below *folder*, with a key to *platform*; what the page brings up is stopped afterwards."""
    with agent_root() as agents:
        made = Workspace(folder, agents, platform.port if platform else free_port())
        made.make()
        if platform:
            (made.home / ".yunhe").mkdir()
            shutil.copy(platform.home / ".yunhe" / "config.json", made.home / ".yunhe")
            (made.home / "server").symlink_to(
                platform.home / ".yunhe"
            )  # for pages that act as the server's user
        try:
            yield made
        finally:
            made.run("yunhe", "down")
