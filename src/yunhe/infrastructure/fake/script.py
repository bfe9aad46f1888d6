"""The few shell commands the fake understands, with the meaning they have in ``sh``.

One command a line; blank lines and ``# comments`` are skipped::

    echo WORDS               echo WORDS > FILE         echo WORDS >> FILE
    cat FILE                 touch FILE                test WORD = WORD
    sleep SECONDS            true                      false
    exit CODE                nproc                     trap "" TERM
    sh FILE                  trap 'COMMAND; COMMAND' TERM

A word is plain letters, digits and ``_ . / : , = + % @ -``, or anything in double quotes but a backslash, a
backtick or a double quote; ``$NAME`` or ``${NAME}`` in double quotes is read from the environment; in single quotes
nothing is. What handles the polite signal is run instead of what the script waited for. All else is refused
with ``InvalidInputError``, so that a script which works here means the same on a real host. ``cat`` without a file
copies standard input, which only a command beside an allocation has.

An order whose environment sets ``FAKE_RUN_S``, ``FAKE_EXIT`` or ``FAKE_OUTPUT`` may hold any scripts: they are not
read, and the allocation prints, sleeps and exits as the environment says.
"""

import re
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass

from yunhe.infrastructure.contract.model import LaunchOrder, Step
from yunhe.infrastructure.fake.directory import FakeDirectory
from yunhe.kernel.errors import InvalidInputError

_TOKEN = re.compile(r"""\s*(?:(>>?)|"([^"\\`]*)"|([\w./:,=+%@-]+)|(\#.*)|'([^']*)')(?=\s|$)""")
_NAME = re.compile(r"\$(?:\{([A-Za-z_]\w*)\}|([A-Za-z_]\w*))", re.ASCII)
_BEHAVIOUR = ("FAKE_OUTPUT", "FAKE_RUN_S", "FAKE_EXIT")
_ARGUMENTS = {
    "echo": range(1000),
    "cat": range(2),
    "touch": range(1, 2),
    "test": range(3, 4),
    "sleep": range(1, 2),
    "true": range(1),
    "false": range(1),
    "exit": range(2),
    "nproc": range(1),
    "trap": range(2, 3),
    "sh": range(1, 2),
}


@dataclass(frozen=True, slots=True)
class Sleep:
    """The process wants to be woken after this long."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Read:
    """The process wants the next bytes of its standard input; empty closes it."""


Process = Generator[Sleep | Read, bytes, int]
"""A running script: yields what it waits for, returns its exit code."""


@dataclass(slots=True, kw_only=True)
class World:
    """What a script can touch."""

    envs: Mapping[str, str]
    directory: FakeDirectory
    write: Callable[[bytes], None]
    """Takes its output."""
    cores: Callable[[], int]
    """Tells how many cores it may run on now."""
    ignores_term: bool = False
    on_term: str = ""
    """The commands that handle the polite signal."""


@dataclass(frozen=True, slots=True)
class ScriptCommand:
    """One line: its words before expansion, and the file its output goes to."""

    words: tuple[str, ...]
    target: str = ""
    append: bool = False


def steps_of(order: LaunchOrder) -> tuple[Step, ...]:
    """Return the steps the fake will run for *order*: its own, or what the ``FAKE_…`` variables ask for."""
    if not any(name in order.envs for name in _BEHAVIOUR):
        return order.steps
    lines = ['echo "$FAKE_OUTPUT"'] if "FAKE_OUTPUT" in order.envs else []
    lines += [f"sleep {order.envs.get('FAKE_RUN_S', '0')}", f"exit {order.envs.get('FAKE_EXIT', '0')}"]
    return (Step(name=order.steps[-1].name if order.steps else "run", script="\n".join(lines)),)


def parse(script: str) -> tuple[ScriptCommand, ...]:
    """Return the commands of *script*; refuse what the fake does not understand."""
    lines = (_tokens(line) for line in script.splitlines())
    return tuple(_command(tokens) for tokens in lines if tokens)


def parse_argv(argv: tuple[str, ...]) -> tuple[ScriptCommand, ...]:
    """Return the commands of an argument vector: ``sh -c SCRIPT``, or one command."""
    if argv[:2] == ("sh", "-c") and len(argv) == 3:
        return parse(argv[2])
    return (_checked(ScriptCommand(tuple(word.replace("$", "$$") for word in argv))),)


def run(commands: tuple[ScriptCommand, ...], world: World) -> Process:
    """Run *commands*; the exit code is that of the last, as in ``sh``."""
    status = 0
    for command in commands:
        name, *words = (_expand(word, world.envs) for word in command.words)
        match name, words:
            case "exit", _:
                return int(words[0]) if words else status
            case "sleep", [seconds]:
                yield Sleep(float(seconds))
                status = 0
            case "sh", [path]:
                data = world.directory.read(path)
                status = 127 if data is None else (yield from run(parse(data.decode()), world))
            case "cat", []:
                while data := (yield Read()):
                    world.write(data)
                status = 0
            case _:
                status = _at_once(command, name, words, world)
    return status


def _at_once(command: ScriptCommand, name: str, words: list[str], world: World) -> int:
    """Do a command that does not wait; return its status."""
    match name, words:
        case "echo", _:
            _print(f"{' '.join(words)}\n".encode(), command, world)
        case "nproc", _:
            _print(f"{world.cores()}\n".encode(), command, world)
        case "cat", [path]:
            data = world.directory.read(path)
            if data is None:
                world.write(f"cat: {path}: No such file or directory\n".encode())
                return 1
            _print(data, command, world)
        case "touch", [path]:
            world.directory.write(path, b"", append=True)
        case "trap", _:
            world.ignores_term, world.on_term = not words[0], words[0]
        case "test", [left, "=", right]:
            return int(left != right)
        case _:
            return int(name == "false")
    return 0


def _print(data: bytes, command: ScriptCommand, world: World) -> None:
    if command.target:
        world.directory.write(_expand(command.target, world.envs), data, append=command.append)
    else:
        world.write(data)


def _expand(word: str, envs: Mapping[str, str]) -> str:
    return "$".join(
        _NAME.sub(lambda name: envs.get(name[1] or name[2], ""), part) for part in word.split("$$")
    )


def _tokens(line: str) -> list[re.Match[str]]:
    tokens: list[re.Match[str]] = []
    position = 0
    while line[position:].strip():
        token = _TOKEN.match(line, position)
        if token is None or "$" in _NAME.sub("", token[2] or ""):
            raise _refusal(line)
        position = token.end()
        if token[4] is None:
            tokens.append(token)
    return tokens


def _command(tokens: list[re.Match[str]]) -> ScriptCommand:
    line = "".join(token[0] for token in tokens)
    redirects = [index for index, token in enumerate(tokens) if token[1]]
    if redirects not in ([], [len(tokens) - 2]):
        raise _refusal(line)
    words = tuple(_word(token) for token in tokens if not token[1])
    if not redirects:
        return _checked(ScriptCommand(words))
    if words[0] not in {"echo", "cat", "nproc"}:
        raise _refusal(line)
    return _checked(ScriptCommand(words[:-1], words[-1], append=tokens[-2][1] == ">>"))


def _word(token: re.Match[str]) -> str:
    if token[5] is not None:
        return token[5].replace("$", "$$")
    return token[3] if token[2] is None else token[2]


def handler_of(text: str) -> tuple[ScriptCommand, ...]:
    """Return the commands of a trap, which stand in one line."""
    return parse("\n".join(text.split(";")))


def _checked(command: ScriptCommand) -> ScriptCommand:
    name, *words = command.words or ("",)
    wanted = _ARGUMENTS.get(name)
    understood = wanted is not None and len(words) in wanted
    match name, words:
        case "sleep", [seconds]:
            understood = re.fullmatch(r"\d+(\.\d+)?", seconds) is not None
        case "exit", [code]:
            understood = code.isdecimal() and int(code) < 256
        case "echo", [first, *_]:
            understood = not first.startswith("-")
        case "trap", _:
            understood = words[1:] == ["TERM"] and "trap" not in words[0]
            handler_of(words[0])
        case "test", [_, operator, _]:
            understood = operator == "="
        case _:
            pass
    if not understood:
        raise _refusal(" ".join(command.words))
    return command


def _refusal(line: str) -> InvalidInputError:
    return InvalidInputError(
        f"The fake engine does not understand {line.strip()!r}.",
        remedy="See yunhe.infrastructure.fake.script for what it does, or set FAKE_RUN_S, FAKE_EXIT or FAKE_OUTPUT.",
    )
