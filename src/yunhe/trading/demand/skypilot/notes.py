"""What a translation gathers: a note for each field that was given, and what cannot be read or cannot run."""

import re
from dataclasses import dataclass, field
from typing import Any, cast

from yunhe.kernel.documents import kind_of
from yunhe.kernel.errors import FieldProblem
from yunhe.trading.demand.reader import Document
from yunhe.trading.demand.skypilot.cases import CASES, Effect

LONGEST_SHOWN = 60
_VARIABLE = re.compile(r"\$(?:\{([A-Za-z_][A-Za-z0-9_]*)\}|([A-Za-z_][A-Za-z0-9_]*))")


@dataclass(frozen=True, kw_only=True)
class FieldNote:
    """A field that was given, and what becomes of it."""

    field: str
    value: str
    effect: Effect
    says: str
    case: str = ""
    """Which row of the table; empty where it is a field of ours."""


@dataclass
class FieldNotes:
    """Gathers notes while a document is read."""

    notes: list[FieldNote] = field(default_factory=list[FieldNote])
    problems: list[FieldProblem] = field(default_factory=list[FieldProblem])
    planned_only: dict[str, str] = field(default_factory=dict[str, str])

    def say(self, case: str, path: str, value: object, **words: object) -> None:
        """Note what becomes of the field at *path*; what is refused is a problem, what is planned only is held back."""
        row = CASES[case]
        says = row.says.format(**{"value": value, "name": path.rpartition(".")[2], **words})
        if row.effect is Effect.REFUSED:
            self.problems.append(FieldProblem(path, says, shown(value)))
            return
        if row.effect is Effect.PLANNED:
            self.planned_only[path] = says
        self.notes.append(FieldNote(field=path, value=shown(value), effect=row.effect, says=says, case=case))

    def tell(self, case: str, path: str, value: object, **words: object) -> None:
        """Note a part of a field that is held back as a whole already."""
        says = CASES[case].says.format(**{"value": value, **words})
        self.notes.append(
            FieldNote(field=path, value=shown(value), effect=CASES[case].effect, says=says, case=case)
        )

    def refuse(self, path: str, problem: str, value: object = None) -> None:
        """Note what cannot be read."""
        self.problems.append(FieldProblem(path, problem, None if value is None else shown(value)))

    def mapping(self, path: str, value: object, known: tuple[str, ...] = ()) -> Document:
        """Return a mapping whose keys are text and, where that is said, *known*; else note it."""
        if not isinstance(value, dict):
            self.refuse(path, f"must be a mapping, not {kind_of(value)}", value)
            return {}
        entries = {str(key): entry for key, entry in cast("dict[object, object]", value).items()}
        for key in entries if known else ():
            if key not in known:
                self.refuse(f"{path}.{key}", f"is not a field of {path} ({', '.join(known)})")
        return entries


def shown(value: object) -> str:
    """Return a value in a few words."""
    if isinstance(value, dict):
        text = ", ".join(f"{key}: {entry}" for key, entry in cast("dict[object, object]", value).items())
        text = f"{{{text}}}"
    elif isinstance(value, list):
        text = f"[{', '.join(str(entry) for entry in cast('list[object]', value))}]"
    else:
        text = (
            {True: "true", False: "false", None: ""}.get(cast("Any", value), str(value))
            if isinstance(value, bool | None)
            else str(value)
        )
    line = " ".join(text.split())
    return line if len(line) <= LONGEST_SHOWN else f"{line[: LONGEST_SHOWN - 1]}…"


def filled(value: object, envs: dict[str, str]) -> Any:
    """Return *value* with ``$NAME`` and ``${NAME}`` replaced wherever the variable is known."""
    if isinstance(value, str):
        return _VARIABLE.sub(lambda found: envs.get(found[1] or found[2], found[0]), value)
    if isinstance(value, list):
        return [filled(entry, envs) for entry in cast("list[object]", value)]
    if isinstance(value, dict):
        entries = cast("dict[object, object]", value)
        return {filled(key, envs): filled(entry, envs) for key, entry in entries.items()}
    return value
