"""The golden transcript: one text for every engine, and the differences that are argued, one by one."""

import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

FOLDER = Path(__file__).parent
GOLDEN = FOLDER / "transcript.txt"
ARGUED = FOLDER / "differences.toml"
ORDER = ("finishes", "fails", "stumbles", "retries", "cancelled", "overruns")
TASKS = tuple(FOLDER / "tasks" / f"{name}.yaml" for name in ORDER)

Lines = dict[str, str]
"""What is told of one task: a word, and what is said under it."""
Transcript = dict[str, Lines]
"""The lines of every task."""

_WIDTH = 12


class Difference(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One line that reads otherwise on one engine, and why that is right."""

    engine: str
    tasks: tuple[str, ...]
    line: str
    instead: str
    """What it says there; empty: the line is not there."""
    why: str


def differences() -> list[Difference]:
    """Return what is argued."""
    said = tomllib.loads(ARGUED.read_text())
    return msgspec.convert(said.get("difference", []), list[Difference])


def render(transcript: Transcript) -> str:
    """Return a transcript as text."""
    blocks = [
        "\n".join([f"{task}: {title(task)}", *(f"  {word:<{_WIDTH}}{text}" for word, text in lines.items())])
        for task, lines in transcript.items()
    ]
    return "\n\n".join(blocks) + "\n"


def read(text: str) -> Transcript:
    """Return the transcript that *text* renders."""
    transcript: Transcript = {}
    for block in text.strip().split("\n\n"):
        head, *lines = block.split("\n")
        transcript[head.partition(":")[0]] = {
            line[2 : 2 + _WIDTH].rstrip(): line[2 + _WIDTH :] for line in lines
        }
    return transcript


def title(task: str) -> str:
    """Return the first line of a task's file: what it is for."""
    return (FOLDER / "tasks" / f"{task}.yaml").read_text().partition("\n")[0].removeprefix("# ")


def compare(golden: Transcript, seen: Mapping[str, Transcript], argued: Iterable[Difference]) -> list[str]:
    """Return what is wrong: a difference that nobody argued for, or an argument for one that is not there."""
    found = {
        (engine, task, line): lines.get(line, "")
        for engine, transcript in seen.items()
        for task in golden.keys() | transcript.keys()
        for lines in [transcript.get(task, {})]
        for line in golden.get(task, {}).keys() | lines.keys()
        if lines.get(line, "") != golden.get(task, {}).get(line, "")
    }
    listed = {(one.engine, task, one.line): one.instead for one in argued for task in one.tasks}
    problems = [
        f"{engine}, {task}, {line}: {text!r} instead of {golden.get(task, {}).get(line, '')!r}, "
        + ("which is argued otherwise" if (engine, task, line) in listed else "and nobody has argued for it")
        for (engine, task, line), text in sorted(found.items())
        if listed.get((engine, task, line)) != text
    ]
    problems += [
        f"{engine}, {task}, {line}: {text!r} is argued for and is not there"
        for (engine, task, line), text in sorted(listed.items())
        if engine in seen and (engine, task, line) not in found
    ]
    return problems
