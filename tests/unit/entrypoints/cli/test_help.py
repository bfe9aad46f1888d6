"""The first second: help without imports, and a word for whoever mistypes."""

import subprocess
import sys

import pytest

from yunhe.entrypoints.cli.main import COMMANDS, help_text
from yunhe.entrypoints.cli.terminal.shell import run


def test_help_imports_no_command_and_no_framework() -> None:
    script = (
        "import sys; sys.argv = ['yunhe', '--help']\n"
        "from yunhe.entrypoints.cli.main import main; main()\n"
        "heavy = {'typer', 'rich', 'msgspec', 'httpx', 'yaml', 'numpy'} & set(sys.modules)\n"
        "sys.exit(f'imported {heavy}' if heavy else 0)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == help_text()


def test_help_lists_every_command_once_and_fits_80_columns() -> None:
    lines = help_text().splitlines()
    for name in COMMANDS:
        assert sum(line.startswith(f"  {name} ") for line in lines) == 1
    assert max(map(len, lines)) <= 80


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_explains_itself(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(COMMANDS, [name, "--help"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("Usage: yunhe ")
    assert "--help" in said


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("rnu", "run"),
        ("lgs", "logs"),
        ("pools", "pool"),
        ("explian", "explain"),
        ("avail", "availability"),
        ("launch", "run"),
    ],
)
def test_a_mistyped_command_is_met_with_the_likely_one(
    typed: str, meant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(COMMANDS, [typed]) == 2
    said = capsys.readouterr().err
    assert f"✗ There is no command '{typed}'." in said
    assert f"→ Did you mean `yunhe {meant}`?" in said


def test_an_unknown_option_is_refused_with_how_to_call_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(COMMANDS, ["ps", "--everything"]) == 2
    said = capsys.readouterr().err
    assert "--everything" in said
    assert "→ `yunhe ps --help`" in said


def test_plan_has_its_own_name_in_its_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(COMMANDS, ["plan", "--help"]) == 0
    assert "Usage: yunhe plan" in capsys.readouterr().out


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_completion_script_is_printed(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(COMMANDS, ["completion", shell]) == 0
    assert "_YUNHE_COMPLETE" in capsys.readouterr().out


@pytest.mark.parametrize(("words", "wanted"), [("yunhe re", "resize"), ("yunhe run --cp", "--cpus")])
def test_completion_offers_commands_and_options(words: str, wanted: str) -> None:
    position = str(len(words.split()) - 1)
    done = subprocess.run(
        [sys.executable, "-m", "yunhe.entrypoints.cli"],
        env={
            "_YUNHE_COMPLETE": "complete_bash",
            "COMP_WORDS": words,
            "COMP_CWORD": position,
            "PATH": "/usr/bin",
        }
        | _python_path(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert wanted in done.stdout.split(), done.stderr


def _python_path() -> dict[str, str]:
    return {"PYTHONPATH": ":".join(sys.path)}
