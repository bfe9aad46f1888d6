"""What went wrong is said once, with its remedy, for people and for programs."""

import json

import pytest

from yunhe.entrypoints.cli.main import COMMANDS
from yunhe.entrypoints.cli.problems import problem_lines, wants_json
from yunhe.entrypoints.cli.shell import run
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
