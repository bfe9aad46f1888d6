"""README, tutorial and how-to pages do what they show: each command is run and its output compared."""

import re
from collections.abc import Callable, Generator
from pathlib import Path

import pytest

from integration.docs.workspace import Workspace, workspace
from integration.infrastructure.host.sshd import SshServer, ssh_server
from support.doc_pages import Command, blocks, pages
from support.repository import REPOSITORY

pytestmark = pytest.mark.drives("host")

PAGES = pages()
SSH_HOST = "10.0.3.7"
"""The host of the pages; ``ssh`` finds a server of ours under this name."""

every_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
every_page_with_commands = pytest.mark.parametrize(
    "page",
    [page for page in PAGES if any([*block.steps()] for block in blocks(page.read_text()))],
    ids=lambda page: page.stem,
)


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Generator[Workspace]:
    """A platform for every page that does not bring up its own."""
    with workspace(tmp_path_factory.mktemp("platform") / "shared") as made:
        up = made.run("yunhe", "up", "--no-sample")
        assert up.returncode == 0, up.stderr
        yield made


@pytest.fixture
def ssh_host() -> Generator[SshServer]:
    """A host that no page has used yet."""
    with ssh_server() as server:
        yield server


@every_page_with_commands
def test_a_page_does_what_it_shows(page: Path, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    text = page.read_text()
    own = re.search(r"^\$ (make|yunhe) up\b", text, re.MULTILINE)
    shared: Workspace | None = None if own else request.getfixturevalue("platform")
    with workspace(tmp_path / "page", shared) as here:
        if SSH_HOST in text:
            server: SshServer = request.getfixturevalue("ssh_host")
            for each in filter(None, (here, shared)):
                each.reach(server.config(SSH_HOST), server.root_of("root"))
        steps = [step for block in blocks(here.local(text)) for step in block.steps()]
        problems = here.follow(sorted(steps, key=lambda step: isinstance(step, Command)))
    assert not problems, "\n".join(problems)


@every_page
def test_a_block_is_run_or_says_why_not(page: Path, record_property: Callable[[str, str], None]) -> None:
    found = blocks(page.read_text())
    for block in found:
        if reason := block.notes.get("not run"):
            record_property("not run", f"{page.relative_to(REPOSITORY)}:{block.line}: {reason}")
    assert [block.line for block in found if block.idle] == []
    named = re.findall(r"tests/[\w/.]+\w", " ".join(block.notes.get("not run", "") for block in found))
    assert [path for path in named if not (REPOSITORY / path).exists()] == []


def test_both_readmes_have_the_same_headings_and_commands() -> None:
    english, chinese = (blocks((REPOSITORY / name).read_text()) for name in ("README.md", "README.zh-CN.md"))
    assert [block.body for block in chinese] == [block.body for block in english]
    levels = [
        re.findall(r"^#+(?= )", (REPOSITORY / name).read_text(), re.MULTILINE)
        for name in ("README.md", "README.zh-CN.md")
    ]
    assert levels[0] == levels[1]
