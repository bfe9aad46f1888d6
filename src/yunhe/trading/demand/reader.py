"""How a task is read: YAML into a mapping, and its values by a reader that notes every fault and goes on."""

import re
from collections import Counter
from collections.abc import Callable
from enum import StrEnum
from typing import TypeVar, cast

from yunhe.kernel.documents import ProblemReader, kind_of, load_yaml
from yunhe.kernel.errors import InvalidInputError
from yunhe.kernel.validation import nearest
from yunhe.trading.demand.planned import ALIASES, UnsupportedField

NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
DOCUMENT_LIMIT_BYTES = 1024 * 1024
MOST_ENTRIES = 1000

Document = dict[str, object]
Schema = dict[str, object]
_Choice = TypeVar("_Choice", bound=StrEnum)


def read_yaml(text: str | bytes) -> Document:
    """Return the mapping a YAML text holds, or refuse what is not one mapping."""
    documents = read_documents(text)
    if len(documents) != 1:
        raise InvalidInputError(
            f"One task is wanted; this text holds {len(documents)}.", remedy="Write one text per task."
        )
    return documents[0]


def read_documents(text: str | bytes) -> list[Document]:
    """Return the mappings a YAML text holds, one for each of its documents; refuse what is anything else."""
    if len(text) > DOCUMENT_LIMIT_BYTES:
        raise InvalidInputError(
            f"A task may be {DOCUMENT_LIMIT_BYTES // 1024} KiB of YAML; this is {len(text) // 1024} KiB.",
            remedy="Move data to files and send them with file_mounts.",
        )
    try:
        documents = load_yaml(text)
    except ValueError as error:
        raise InvalidInputError(
            f"This is not YAML that can be read: {error}", remedy="Fix it, then run it again."
        ) from error
    found = [document for document in documents if document is not None]
    wrong = [document for document in found if not isinstance(document, dict)]
    if wrong or not found:
        raise InvalidInputError(
            f"A task is a mapping of fields; this is {kind_of(wrong[0]) if wrong else 'nothing'}.",
            remedy="Begin with `run: |` and the script.",
        )
    if len(found) > MOST_ENTRIES:
        raise InvalidInputError(
            f"A file holds at most {MOST_ENTRIES} documents; this one holds {len(found)}.",
            remedy="Write several files.",
        )
    return cast("list[Document]", found)


class Reader(ProblemReader):
    """Reads the values that the fields of a task may have."""

    def meant(self, word: str, known: list[str]) -> str | None:
        """Return the known word that *word* was probably meant to be, as long as it would be told."""
        alias = ALIASES.get(word.lower())
        if alias in known or self.has_enough:
            return alias
        return nearest(word.lower(), known)

    def mapping(self, field: str, value: object) -> Document:
        """Return a mapping, without what cannot be a field's name; else note it."""
        if isinstance(value, dict):
            entries = cast("dict[object, object]", value)
            for key in [key for key in entries if not isinstance(key, str)]:
                self.note(field, "has a key that is not text; put it in quotes", key)
            if len(entries) > MOST_ENTRIES:
                self.note(field, f"has {len(entries)} entries; at most {MOST_ENTRIES} are allowed")
                return {}
            return {key: entry for key, entry in entries.items() if isinstance(key, str)}
        self.note(field, f"must be a mapping, not {kind_of(value)}", value)
        return {}

    def fields(
        self, prefix: str, entries: Document, readers: "Readers", planned: dict[str, UnsupportedField]
    ) -> dict[str, object]:
        """Read each entry by its reader; what is planned or unknown is noted."""
        read: dict[str, object] = {}
        for key, value in entries.items():
            path = f"{prefix}{key}"
            if key in planned:
                if value != planned[key].neutral and value is not None:
                    self.note(path, f"is not supported yet: {planned[key].instead}", value)
            elif key not in readers:
                meant = self.meant(key, list(readers))
                self.note(path, "is not a field of a task", meant=meant)
            elif value is not None:
                read[key] = readers[key](self, path, value)
        return read

    def text(self, field: str, value: object) -> str:
        """Return text; else note it."""
        if isinstance(value, str):
            return value
        self.note(field, f"must be text, not {kind_of(value)}", value)
        return ""

    def name(self, field: str, value: object) -> str:
        """Return a name that a job, a pool or a component may have; else note it, with the nearest that may."""
        name = self.text(field, value)
        if name and not NAME.fullmatch(name):
            slug = re.sub(r"[^a-z0-9._-]+", "-", name.lower()).strip("-._")[:64]
            self.note(
                field,
                "must be at most 64 of a-z, 0-9, '-', '_' and '.', beginning with a letter or digit",
                name,
                meant=slug if NAME.fullmatch(slug) else None,
            )
        return name

    def texts(self, field: str, value: object) -> tuple[str, ...]:
        """Return a list of texts, none of them twice; else note it."""
        if not isinstance(value, list | tuple):
            self.note(field, f"must be a list, not {kind_of(value)}", value)
            return ()
        entries = cast("list[object]", value)
        if len(entries) > MOST_ENTRIES:
            self.note(field, f"has {len(entries)} entries; at most {MOST_ENTRIES} are allowed")
            return ()
        texts = tuple(self.text(f"{field}[{index}]", entry) for index, entry in enumerate(entries))
        for text in sorted(text for text, count in Counter(texts).items() if text and count > 1):
            self.note(field, "names this twice", text)
        return texts

    def amount(self, field: str, value: object, judge: Callable[[str | float], object]) -> str | float | None:
        """Return a value that *judge* accepts, as it was written; else note it."""
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            self.note(field, f"must be a number or text, not {kind_of(value)}", value)
            return None
        try:
            judge(value)
        except ValueError as error:
            self.note(field, str(error), value)
            return None
        return value

    def flag(self, field: str, value: object) -> bool:
        """Return true or false; else note it."""
        if isinstance(value, bool):
            return value
        self.note(field, "must be true or false", value)
        return False

    def choice(self, field: str, value: object, choices: type[_Choice], default: _Choice) -> _Choice:
        """Return one of *choices*; else note it."""
        words = [str(choice) for choice in choices]
        if isinstance(value, str) and value in words:
            return choices(value)
        meant = self.meant(value, words) if isinstance(value, str) else None
        self.note(field, f"must be one of {', '.join(words)}", value, meant=meant)
        return default


Readers = dict[str, Callable[[Reader, str, object], object]]
