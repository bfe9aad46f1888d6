"""Errors say what is wrong and what to do."""

from yunhe.kernel import errors
from yunhe.kernel.errors import BY_CODE, FieldProblem, InvalidInputError, YunheError


def test_an_error_reads_as_problem_then_remedy() -> None:
    error = InvalidInputError("It is wrong.", remedy="Mend it.")
    assert str(error) == "It is wrong. Mend it."
    assert str(InvalidInputError("It is wrong.")) == "It is wrong."


def test_a_field_problem_names_the_field_the_value_and_the_fix() -> None:
    problem = FieldProblem("resources.cpus", "is not a number of cores", "many", "4")
    assert str(problem) == "resources.cpus: is not a number of cores (got many); did you mean '4'?"


def test_every_kind_of_error_has_a_code_of_its_own() -> None:
    kinds = [
        kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, YunheError)
    ]
    assert len({kind.code for kind in kinds}) == len(kinds)
    assert set(BY_CODE.values()) == set(kinds)
    assert all(BY_CODE[kind.code] is kind for kind in kinds)
    assert all(400 <= kind.status < 600 for kind in kinds)
