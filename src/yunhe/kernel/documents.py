"""Plain documents from outside: YAML read strictly, and a reader that notes every fault and goes on."""

import reprlib
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

import yaml

from yunhe.kernel.errors import MOST_PROBLEMS, FieldProblem

T = TypeVar("T")


class _StrictLoader(yaml.SafeLoader):
    """Plain data only, and a key given twice is refused: one of the two would be lost in silence."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:  # noqa: FBT001, FBT002 - the parent's signature
        seen: set[str] = set()
        for key, _ in node.value:
            if key.tag != "tag:yaml.org,2002:merge" and isinstance(key, yaml.ScalarNode):
                if key.value in seen:
                    raise yaml.constructor.ConstructorError(
                        None, None, f"the key {key.value!r} is given twice", key.start_mark
                    )
                seen.add(key.value)
        return super().construct_mapping(node, deep)


def load_yaml(text: str | bytes) -> list[object]:
    """Return the documents of a YAML text; raise ``ValueError`` with where it cannot be read and why, in one line."""
    try:
        return list(yaml.load_all(text, Loader=_StrictLoader))
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ValueError(_one_line(error)) from error


class ProblemReader:
    """Reads values and notes what is wrong with them."""

    def __init__(self) -> None:
        self.problems: list[FieldProblem] = []

    @property
    def has_enough(self) -> bool:
        """Whether more has been noted than is told: nothing more is."""
        return len(self.problems) > MOST_PROBLEMS

    def note(self, field: str, problem: str, value: object = ..., *, meant: str | None = None) -> None:
        """Take down what is wrong with a field, and what was probably meant."""
        if not self.has_enough:
            shown = None if value is ... else _shown(value)
            self.problems.append(FieldProblem(field, problem, shown, meant))

    def parsed(self, field: str, value: object, parse: Callable[[Any], T], default: T) -> T:
        """Return what *parse* makes of *value*; the ``ValueError`` it raises is noted, and *default* returned."""
        try:
            return parse(value)
        except ValueError as error:
            self.note(field, str(error))
            return default


def _shown(value: object) -> str:
    """Return a short form of *value*, however large: it came from outside."""
    short = reprlib.Repr()
    short.maxlevel, short.maxdict, short.maxlist, short.maxstring = 2, 4, 4, 60
    return short.repr(value)


def kind_of(value: object) -> str:
    """Return what a person calls the kind of *value*."""
    words: dict[type, str] = {
        bool: "true or false",
        dict: "a mapping",
        float: "a number",
        int: "a number",
        list: "a list",
        str: "text",
        tuple: "a list",
        type(None): "nothing",
    }
    return words.get(type(value), f"a {type(value).__name__}")


def _one_line(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        mark = error.problem_mark
        return f"line {mark.line + 1}, column {mark.column + 1}: {error.problem or error.context}."
    return " ".join(str(error).split())[:300]
