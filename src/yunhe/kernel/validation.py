"""Turning what somebody sent into a type of ours, with everything that is wrong with it told at once."""

import difflib
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from itertools import islice
from typing import Any, TypeVar

import msgspec
from msgspec import inspect

from yunhe.kernel.errors import MOST_PROBLEMS, FieldProblem, InvalidInputError

T = TypeVar("T")

SECRET = msgspec.Meta(extra_json_schema={"writeOnly": True})
"""Marks a field whose value is never shown, not even to whoever sent it."""

MOST_CHARACTERS_TOLD = 400
"""Of the path to a field, its value or what is wrong with it, in a problem."""
_LONGEST_VALUE_SHOWN = 60
_LONGEST_WORD_GUESSED = 64
"""Longer words are no misspelling of any of ours, and comparing them takes time."""
_MOST_WORDS_COMPARED = 256
_NAMES: dict[type[inspect.Type], str] = {
    inspect.IntType: "a whole number",
    inspect.FloatType: "a number",
    inspect.StrType: "text",
    inspect.BoolType: "true or false",
    inspect.BytesType: "base64 text",
    inspect.NoneType: "nothing",
}
_PYTHON: dict[type[inspect.Type], tuple[type, ...]] = {
    inspect.IntType: (int,),
    inspect.FloatType: (float, int),
    inspect.StrType: (str,),
    inspect.BoolType: (bool,),
    inspect.BytesType: (str, bytes),
    inspect.NoneType: (type(None),),
}


def read_json(data: bytes, kind: type[T]) -> T:
    """Return *data* as *kind*, or raise ``InvalidInputError`` with every field that is wrong."""
    return read(plain_json(data), kind)


def plain_json(data: bytes) -> object:
    """Return the document that *data* holds, or raise ``InvalidInputError``; no text in it has a NUL."""
    try:
        value: object = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidInputError(f"This is not JSON: {error}.", remedy="Send one JSON document.") from None
    if (
        b"\\u0000" in data
    ):  # the only way JSON can write it, but also the end of an escaped backslash and u0000
        found = tuple(
            FieldProblem(path, "has a NUL character")
            for path in islice(_texts_with_nul(value, ""), MOST_PROBLEMS + 1)
        )
        if found:
            raise _refusal(found)
    return value


def _texts_with_nul(value: object, path: str) -> Iterator[str]:
    if isinstance(value, str):
        if "\0" in value:
            yield path or "(whole)"
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _texts_with_nul(item, f"{path}[{index}]")
    elif isinstance(value, dict):
        for name, item in value.items():
            yield from _texts_with_nul(name, path)
            yield from _texts_with_nul(item, _below(path, name))


def read(value: object, kind: type[T], known: tuple[FieldProblem, ...] = ()) -> T:
    """Return plain *value* as *kind*, or raise ``InvalidInputError`` with every field that is wrong.

    Parts of *value* may have been read already: instances of our types in it are taken as they are, and what was
    wrong with them comes as *known*.
    """
    problems = (*known, *islice(_problems(value, _type_info(kind), ""), MOST_PROBLEMS + 1))
    if problems:
        raise _refusal(problems)
    try:
        return msgspec.convert(value, kind)
    except (msgspec.ValidationError, RecursionError) as error:
        raise _refusal((FieldProblem("(whole)", str(error)),)) from None


def nearest(word: str, words: list[str]) -> str | None:
    """Return the one of *words* that somebody who wrote *word* most likely meant."""
    if len(word) > _LONGEST_WORD_GUESSED:
        return None
    found = difflib.get_close_matches(word, words[:_MOST_WORDS_COMPARED], n=1, cutoff=0.6)
    return found[0] if found else None


def most(problems: Iterable[FieldProblem]) -> tuple[FieldProblem, ...]:
    """Return the first problems, as many as are told, each short enough to be read."""
    return tuple(
        FieldProblem(
            brief_text(problem.field),
            brief_text(problem.problem),
            problem.value and brief_text(problem.value),
            problem.did_you_mean and brief_text(problem.did_you_mean),
        )
        for problem in islice(problems, MOST_PROBLEMS)
    )


def how_many(problems: tuple[FieldProblem, ...]) -> str:
    """Return the number of problems as it is told: beyond what is listed, nobody has counted."""
    return str(len(problems)) if len(problems) <= MOST_PROBLEMS else f"more than {MOST_PROBLEMS}"


def _refusal(problems: tuple[FieldProblem, ...]) -> InvalidInputError:
    many = how_many(problems)
    count = "One field is" if len(problems) == 1 else f"{many[0].upper()}{many[1:]} fields are"
    return InvalidInputError(
        f"{count} wrong.", remedy="Fix what is listed and send it again.", fields=most(problems)
    )


def brief_text(text: str, most: int = MOST_CHARACTERS_TOLD) -> str:
    """Return *text*, or its beginning when it is longer than anybody reads."""
    return text if len(text) <= most else text[: most - 1] + "…"


@lru_cache(maxsize=256)
def _type_info(kind: Any) -> inspect.Type:
    return inspect.type_info(kind)


def _problems(value: object, kind: inspect.Type, path: str) -> Iterator[FieldProblem]:
    """Yield everything about *value* that is not *kind*, each with the path to it."""
    if isinstance(kind, inspect.Metadata):
        shown = not (kind.extra_json_schema or {}).get("writeOnly")
        for problem in _problems(value, kind.type, path):
            yield problem if shown else FieldProblem(problem.field, problem.problem)
    elif isinstance(kind, inspect.UnionType):
        yield from _union_problems(value, kind, path)
    elif isinstance(kind, inspect.StructType):
        yield from _struct_problems(value, kind, path)
    elif isinstance(kind, inspect.DictType):
        yield from _dict_problems(value, kind, path)
    elif isinstance(kind, (inspect.VarTupleType, inspect.ListType, inspect.SetType, inspect.FrozenSetType)):
        if not isinstance(value, (list, tuple)):
            yield _wrong(value, "a list", path)
            return
        for index, item in enumerate(value):
            yield from _problems(item, kind.item_type, f"{path}[{index}]")
    elif isinstance(kind, inspect.EnumType):
        choices = [str(member.value) for member in kind.cls]
        if value not in choices:
            meant = nearest(value, choices) if isinstance(value, str) else None
            yield FieldProblem(
                path or "(whole)", f"must be one of {', '.join(choices)}", _shown(value), did_you_mean=meant
            )
    elif not _is_plain(value, kind):
        yield _wrong(value, _NAMES[type(kind)], path)


def _is_plain(value: object, kind: inspect.Type) -> bool:
    expected = _PYTHON.get(type(kind))
    if expected is None:
        return True  # what this module does not know is left to msgspec
    if isinstance(value, bool):
        return bool in expected
    return isinstance(value, expected)


def _union_problems(value: object, union: inspect.UnionType, path: str) -> Iterator[FieldProblem]:
    if any(next(_problems(value, member, path), None) is None for member in union.types):
        return
    if isinstance(value, Mapping):
        for member in union.types:
            if isinstance(member, (inspect.StructType, inspect.DictType)):
                yield from _problems(value, member, path)
                return
    names = [name for member in union.types if (name := _name(member)) != "nothing"]
    yield _wrong(value, " or ".join(names), path)


def _struct_problems(value: object, struct: inspect.StructType, path: str) -> Iterator[FieldProblem]:
    if isinstance(value, struct.cls):
        return
    if not isinstance(value, Mapping):
        yield _wrong(value, "an object with fields", path)
        return
    known = {field.encode_name: field for field in struct.fields}
    for name, item in value.items():
        here = _below(path, name)
        if name in known:
            yield from _problems(item, known[name].type, here)
        elif name != struct.tag_field:
            meant = nearest(str(name), list(known))
            if meant is not None or len(known) > 12:
                yield FieldProblem(here, "there is no such field", did_you_mean=meant)
            else:
                yield FieldProblem(here, f"there is no such field; there are {', '.join(known)}")
    for name, field in known.items():
        if field.required and name not in value:
            yield FieldProblem(_below(path, name), "is missing")


def _dict_problems(value: object, kind: inspect.DictType, path: str) -> Iterator[FieldProblem]:
    if not isinstance(value, Mapping):
        yield _wrong(value, "a mapping", path)
        return
    for name, item in value.items():
        yield from _problems(name, kind.key_type, _below(path, name))
        yield from _problems(item, kind.value_type, _below(path, name))


def _name(kind: inspect.Type) -> str:
    if isinstance(kind, inspect.StructType):
        return "an object with fields"
    if isinstance(kind, inspect.DictType):
        return "a mapping"
    if isinstance(kind, inspect.EnumType):
        return "one of " + ", ".join(str(member.value) for member in kind.cls)
    return _NAMES.get(type(kind), "a list")


def _wrong(value: object, expected: str, path: str) -> FieldProblem:
    return FieldProblem(path or "(whole)", f"must be {expected}", _shown(value))


def _below(path: str, name: object) -> str:
    return f"{path}.{name}" if path else str(name)


def _shown(value: object) -> str:
    text = msgspec.json.encode(_brief(value), enc_hook=str).decode(errors="replace")
    return text if len(text) <= _LONGEST_VALUE_SHOWN else text[: _LONGEST_VALUE_SHOWN - 1] + "…"


def _brief(value: object, depth: int = 4) -> object:
    """Return the beginning of *value*: what is shown of it is short, however large it is."""
    if isinstance(value, str):
        return value[: _LONGEST_VALUE_SHOWN + 1]
    if isinstance(value, dict):
        kept = islice(value.items(), _LONGEST_VALUE_SHOWN if depth else 0)
        return {str(name)[: _LONGEST_VALUE_SHOWN + 1]: _brief(item, depth - 1) for name, item in kept}
    if isinstance(value, list):
        return [_brief(item, depth - 1) for item in value[: _LONGEST_VALUE_SHOWN if depth else 0]]
    return value
