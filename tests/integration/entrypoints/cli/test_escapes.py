"""Whatever a user may write, no command passes its control characters on to the terminal of another."""

from collections.abc import Callable, Generator
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest

from integration.entrypoints.api.serving import Served, add_fake_pool, serving
from integration.entrypoints.cli.conftest import Shell
from yunhe.entrypoints.cli.session.context import Config, Context
from yunhe.entrypoints.cli.terminal.clean import clean, clean_json
from yunhe.entrypoints.client import Client
from yunhe.kernel.errors import YunheError
from yunhe.kernel.ids import ProjectId
from yunhe.trading.accounts.model import Role
from yunhe.trading.applications.model import Submission
from yunhe.trading.demand.model import ResourceSpec, Task

TITLE = "\x1b]0;owned\x07"
CLEAR = "\x1b[2J"
C1 = "\x9b31m"
REORDER = "\u202eevil"
LINK = "[link=http://evil.example]here[/link]"
EVIL = f"a{TITLE}{CLEAR}{C1}{REORDER}{LINK}\x7f\r"
UNSAFE = ("\x1b]0;", "\x1b[2J", "\x9b", "\u202e", "\x1b]8;", "\x07", "\x7f")
COMMANDS = [
    ("audit", "-n", "200"),
    ("audit", "-n", "200", "--output", "json"),
    ("ps", "--all"),
    ("ps", "--all", "--output", "json"),
    ("token", "ls"),
    ("token", "ls", "--output", "json"),
    ("secret", "ls"),
    ("project", "ls"),
    ("pool", "ls"),
    ("pool", "show", "fake"),
    ("plugin", "ls"),
    ("cost",),
    ("explain", "evil-job"),
    ("logs", EVIL),
    ("doctor",),
]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Generator[Served]:
    with serving(tmp_path_factory.mktemp("home")) as running:
        with running.client() as admin:
            add_fake_pool(admin, cpus="4")
            admin.create_project("blue")
            admin.set_member("blue", "vic", Role.VIEWER)
            with running.client(admin.create_key("vics", user="vic").text) as vic:
                write_everywhere(vic, admin)
        yield running


def write_everywhere(vic: Client, admin: Client) -> None:
    """Write escapes into every field that takes them: what a viewer is denied, and what an admin names."""

    def tried(call: Callable[..., object], *arguments: object, **more: object) -> None:
        with suppress(YunheError, ValueError):
            call(*arguments, **more)

    tried(vic.create_key, EVIL)
    tried(vic.set_secret, "blue", EVIL, "x")
    tried(vic.set_member, "blue", EVIL, Role.VIEWER)
    tried(vic.set_member, EVIL, "vic", Role.ADMIN)
    tried(vic.create_project, EVIL)
    tried(vic.remove_plugin, EVIL)
    tried(vic.create_key, "k", user=EVIL)
    for client in (vic, admin):
        task = Task(
            name=EVIL if client is vic else "evil-job",
            run=f"echo {EVIL!r}",
            envs={"NOTE": EVIL},
            resources=ResourceSpec(cpus=99, memory="1GB"),
        )
        project = ProjectId("blue" if client is vic else "default")
        tried(client.submit, Submission(task=task, project_id=project))
    tried(admin.create_key, EVIL)


def on_terminal(shell: Shell, *words: str) -> str:
    """Return all that a command writes to a terminal."""
    with shell.terminal(*words, TERM="xterm-256color", COLUMNS="200") as terminal:
        return terminal.rest().decode(errors="surrogateescape")


def test_no_command_passes_on_control_characters(served: Served, tmp_path: Path) -> None:
    config = Config().holding("local", Context(url=served.url, key=served.key))
    (tmp_path / "config.json").write_bytes(msgspec.json.encode(config))
    shell = Shell(home=tmp_path, cwd=tmp_path)
    seen = ""
    for words in COMMANDS:
        written = on_terminal(shell, *words)
        seen += written
        found = [repr(mark) for mark in UNSAFE if mark in written]
        assert not found, f"yunhe {' '.join(words)!r} wrote {', '.join(found)}"
    assert "[link=http://evil.example]here[/link]" in seen, "the text itself is shown, as it was written"


def test_cleaning_keeps_words_of_every_script() -> None:
    words = "运河 ¥1.20\tnaïve\nمرحبا a‍b"
    assert clean(words) == words
    assert clean(f"x{EVIL}y") == "x" + "a]0;owned[2J31mevil" + LINK + "y"


def test_json_says_the_same_without_a_control_character() -> None:
    text = clean_json(msgspec.json.encode({"name": EVIL}))
    assert not any(mark in text for mark in UNSAFE)
    assert msgspec.json.decode(text) == {"name": EVIL}
