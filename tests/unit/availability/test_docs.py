"""The how-to page shows what the commands print, line by line."""

import re
import sys
from pathlib import Path

import pytest

from support.repository import REPOSITORY
from yunhe.entrypoints.cli.main import main

PAGE = REPOSITORY / "docs" / "how-to" / "plan-availability.md"
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
EXAMPLES = [block for kind, block in BLOCKS if kind == "console"]


def squeezed(text: str) -> str:
    return " ".join(text.split())


@pytest.mark.parametrize("example", EXAMPLES, ids=[example.splitlines()[0][2:] for example in EXAMPLES])
def test_the_page_shows_what_is_printed(
    example: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    (tmp_path / "shop.yaml").write_text(
        next(block for kind, block in BLOCKS if kind == "yaml"), encoding="utf-8"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")
    command, *shown = example.splitlines()
    monkeypatch.setattr(sys, "argv", command.removeprefix("$ ").split())
    with pytest.raises(SystemExit):
        main()
    printed = [squeezed(line) for line in capsys.readouterr().out.splitlines()]
    assert shown
    for line in shown:
        assert any(squeezed(line) in real for real in printed), line


def test_the_page_has_an_example_of_every_command_that_plans():
    text = "".join(EXAMPLES)
    for command in ("plan", "frontier", "explain", "simulate"):
        assert f"yunhe availability {command}" in text
