"""The code blocks of a page, the commands in them, and whether a command printed what the page shows.

The conventions are told in CONTRIBUTING.md, *Pages that run*.
"""

import re
import textwrap
from collections.abc import Generator, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from support.repository import REPOSITORY

RUN = {"console", "python"}
"""What can be run. ``yaml`` is written to the file that its first line names; other blocks are only shown."""
FAILED = "✗"
"""Begins a line of a command that is expected to fail."""
ANYTHING = "…"

KINDS = {
    "ids": r"\b[a-z]+_[0-9a-z]{19}\b|\b[0-9a-f]{64}\b|\b[0-9a-f]{12}\b|\b[0-9a-hjkmnp-tv-z]{8}\b",
    "times": r"\b\d+(\.\d+)? ?(s|min|h|d)\b|\b\d+m\d+s\b|\b\d\d:\d\d(:\d\d)?\b|\b\d{4}-\d\d-\d\d\b",
    "figures": r"used [\d.]+ core-s(, [\d.]+ \w+ peak)?|¥?\b\d[\d.,]*( ?(cores?|[kKMGT]?i?B|%))?(?!\w)",
    "hosts": r"(?<=hello from )\S+",
    "limits": r"cgroup v[12]|rlimits and nice",
}
"""What may differ from one run to the next; a block names those that do in ``<!-- varies: ids, times -->``."""
INTERRUPT = "^C"
"""Stands in the last line of a command that is left with Ctrl-C."""
INTERRUPT_AFTER_S = 3

_BLOCK = re.compile(
    r"(?P<notes>(?:^ *<!--(?:(?!-->).)*-->\n)*)"
    r"^(?P<indent> *)```(?P<kind>\w*)\n(?P<body>.*?)^(?P=indent)```$",
    re.MULTILINE | re.DOTALL,
)
_NOTE = re.compile(r"<!-- *(?P<name>not run|varies|prepare): *(?P<value>.*?) *-->", re.DOTALL)
_FILE = re.compile(r"# (?P<name>[\w-]+\.ya?ml)\b")


@dataclass(frozen=True)
class Command:
    """A command and what the page shows below it."""

    line: int
    text: str
    shown: tuple[str, ...] = ()
    varies: tuple[str, ...] = ()

    @property
    def fails(self) -> bool:
        """Return whether the page shows that it fails."""
        return any(line.lstrip().startswith(FAILED) for line in self.shown)

    @property
    def interrupted(self) -> bool:
        """Return whether the page shows that the reader leaves it with Ctrl-C."""
        return INTERRUPT in self.shown

    @property
    def script(self) -> str:
        """Return what the shell is given."""
        leave = f"timeout -s INT {INTERRUPT_AFTER_S} env --default-signal=INT "
        return f"{leave if self.interrupted else ''}{self.text}"

    def problem(self, printed: str, code: int) -> str:
        """Return how *printed* and *code* differ from the page; empty when they do not."""
        if not self.interrupted and self.fails != bool(code):
            return f"ended with exit code {code}"
        shown = [line for line in self.shown if line != INTERRUPT]
        if shown and not matches(shown, printed.splitlines(), self.varies):
            return "printed something else than the page shows"
        return ""


class File(NamedTuple):
    """A file that the page shows; written when its block is reached."""

    line: int
    name: str
    text: str


@dataclass(frozen=True)
class Block:
    """A code block and the notes right before it."""

    line: int
    kind: str
    body: str
    notes: dict[str, str]

    def steps(self) -> Generator[Command | File]:
        """Yield what is to be done for this block, in order; nothing when it is marked as not run."""
        if "not run" in self.notes:
            return
        if "prepare" in self.notes:
            yield Command(self.line, textwrap.dedent(self.notes["prepare"]))
        if self.kind == "console":
            varies = tuple(filter(None, re.split(r",\s*", self.notes.get("varies", ""))))
            yield from commands(self.body, self.line, varies)
        elif self.kind == "python":
            yield Command(self.line, f"python3 - <<'END_OF_BLOCK'\n{self.body}END_OF_BLOCK")
        elif self.kind == "yaml" and (named := _FILE.match(self.body)):
            yield File(self.line, named["name"], self.body)

    @property
    def idle(self) -> bool:
        """Return whether this block should do something and does not, with no reason given."""
        return (
            self.kind in RUN | {"yaml", "sh", "bash"} and "not run" not in self.notes and not [*self.steps()]
        )


def pages() -> list[Path]:
    """Return every page whose blocks are run."""
    names = ("README.md", "docs/tutorial.md")
    return [*(REPOSITORY / name for name in names), *sorted(REPOSITORY.glob("docs/how-to/*.md"))]


def blocks(text: str) -> list[Block]:
    """Return the code blocks of a page."""
    return [
        Block(
            line=text.count("\n", 0, found.end("notes")) + 1,
            kind=found["kind"],
            body=textwrap.dedent(found["body"]),
            notes={note["name"]: note["value"] for note in _NOTE.finditer(found["notes"])},
        )
        for found in _BLOCK.finditer(text)
    ]


def commands(body: str, line: int, varies: tuple[str, ...] = ()) -> Generator[Command]:
    """Yield the commands of a console block: ``$`` begins one, ``>`` continues it, the rest is its output."""
    text, shown, at = "", list[str](), 0
    for number, each in enumerate(body.splitlines(), line + 1):
        if each.startswith("$ "):
            if text:
                yield Command(at, text, tuple(shown), varies)
            text, shown, at = each[2:], [], number
        elif each.startswith("> ") and not shown:
            text += "\n" + each[2:]
        else:
            shown.append(each)
    if text:
        yield Command(at, text, tuple(shown), varies)


def matches(shown: Iterable[str], printed: Iterable[str], varies: Iterable[str]) -> bool:
    """Return whether *printed* is what the page shows.

    Runs of blanks count as one and empty lines do not count. ``…`` stands for any text in a line; alone in its line,
    for any lines. What is of a kind in *varies* need only be of that kind.
    """
    kinds = {name: re.compile(KINDS[name]) for name in varies}

    def plain(line: str) -> str:
        for name, pattern in kinds.items():
            line = pattern.sub(f"<{name}>", line)
        return " ".join(line.split())

    wanted = ""
    for line in map(plain, shown):
        if line == ANYTHING:
            wanted += r"(?:.*\n)*?"
        elif line:
            wanted += ".*?".join(map(re.escape, line.split(ANYTHING))) + r"\n"
    seen = "".join(f"{line}\n" for line in map(plain, printed) if line)
    return re.fullmatch(wanted, seen) is not None
