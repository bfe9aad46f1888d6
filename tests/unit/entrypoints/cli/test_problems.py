"""What went wrong is said once, with its remedy, for people and for programs."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from yunhe.entrypoints.cli.main import COMMANDS
from yunhe.entrypoints.cli.terminal.problems import problem_lines, wants_json
from yunhe.entrypoints.cli.terminal.shell import run
from yunhe.kernel.errors import FieldProblem, InvalidInputError


def test_people_see_the_problem_each_field_and_the_remedy() -> None:
    error = InvalidInputError(
        "The task has 1 problem.",
        remedy="Mend it.",
        fields=(FieldProblem("tier", "must be high", "hihg", "high"),),
    )
    assert problem_lines(error) == [
        "✗ The task has 1 problem.",
        "    tier: must be high (got hihg); did you mean 'high'?",
        "  → Mend it.",
    ]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["ps", "--output", "json"], True),
        (["ps", "-o", "json"], True),
        (["ps", "--output=json"], True),
        (["ps"], False),
        ([], False),
        (["run", "--", "tool", "--output", "json"], False),
    ],
)
def test_json_is_known_before_the_line_is_parsed(arguments: list[str], expected: bool) -> None:
    assert wants_json(arguments) is expected


def test_programs_see_problem_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(COMMANDS, ["run", "--output", "json"]) == 1
    problem = json.loads(capsys.readouterr().err)
    assert problem["code"] == "invalid-input"
    assert problem["detail"] == "Nothing to run was given."
    assert problem["remedy"]


@pytest.fixture
def failing_ps(monkeypatch: pytest.MonkeyPatch) -> Callable[[Exception], None]:
    def fail_with(error: Exception) -> None:
        def refuse(_project: str = "") -> None:
            raise error

        monkeypatch.setattr("yunhe.entrypoints.cli.commands.jobs.ps.current_context", refuse)

    return fail_with


def test_an_unforeseen_error_is_one_line_and_its_traceback_is_in_the_named_file(
    failing_ps: Callable[[Exception], None],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    failing_ps(KeyError("moon"))
    assert run(COMMANDS, ["ps"]) == 1
    said = capsys.readouterr().err
    (log,) = tmp_path.glob("yunhe-fault-*.log")
    assert "Traceback" not in said
    assert "KeyError: 'moon'" in said
    assert str(log) in said
    assert "Traceback" in log.read_text()


def test_what_the_machine_refuses_names_the_path(
    failing_ps: Callable[[Exception], None], capsys: pytest.CaptureFixture[str]
) -> None:
    failing_ps(PermissionError(13, "Permission denied", "/etc/moon"))
    assert run(COMMANDS, ["ps"]) == 1
    assert capsys.readouterr().err.startswith("✗ /etc/moon: Permission denied.\n")


def test_a_group_called_alone_names_what_it_has(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(COMMANDS, ["token"]) == 2
    assert capsys.readouterr().err.startswith("✗ `yunhe token` needs one of: create, rotate, ls, revoke.\n")


def test_a_command_without_its_dashes_is_told_about_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(COMMANDS, ["run", "python3", "-c", "print(1)"]) == 2
    assert "yunhe run -- COMMAND" in capsys.readouterr().err
