"""The options of ``run`` and ``plan`` that say where and when a task may run: one row for each field of the task."""

import inspect
from collections.abc import Callable
from typing import Annotated, Any, NamedTuple

import typer


class TaskOption(NamedTuple):
    """A field of the task, the type of its values, and what the option's help says."""

    field: str
    kind: Any
    help: str
    flags: tuple[str, ...] = ()
    """Where the option is not called like the field."""


_MANY = list[str] | None
_TEXT = str | None
_NUMBER = float | None
_FLAG = bool | None

TASK_OPTIONS = (
    TaskOption("level", _TEXT, "Only pools at this level: end, edge or central."),
    TaskOption("residency", _MANY, "A region that it may not leave; may be repeated."),
    TaskOption("where", _MANY, "A label: disk=ssd, or zone!=b to forbid one; may be repeated."),
    TaskOption(
        "tolerations", _MANY, "A taint to tolerate: key or key=value; may be repeated.", ("--toleration",)
    ),
    TaskOption("architecture", _MANY, "amd64, arm64 …; may be repeated.", ("--architecture", "--arch")),
    TaskOption("groups", _MANY, "A group that it belongs to; may be repeated.", ("--group",)),
    TaskOption(
        "affinity", _MANY, "Beside jobs of a group: GROUP or GROUP@node|pool|region; may be repeated."
    ),
    TaskOption("anti_affinity", _MANY, "Apart from jobs of a group, written the same; may be repeated."),
    TaskOption(
        "spread", _TEXT, "At most one of its members, or of its groups' jobs, in each: node, pool or region."
    ),
    TaskOption(
        "grace", _TEXT, "How long its programs have to save their work when it is stopped or times out: 30s."
    ),
    TaskOption("log_limit", _TEXT, "How much room its output has where it runs: 1GB; 64MB when not said."),
    TaskOption("separate_stderr", _FLAG, "Tell standard error apart in the log: yunhe logs --stream stderr."),
    TaskOption(
        "ports", _MANY, "On which it listens, for `yunhe forward`: 8888; may be repeated.", ("--port",)
    ),
    TaskOption("duration", _TEXT, "How long it is expected to run at speed 1: 90m."),
    TaskOption("deadline", _TEXT, "When it must be done: 2h from now, or a time with its zone."),
    TaskOption("start_after", _TEXT, "When it may start: 30m from now, or a time with its zone."),
    TaskOption("budget_per_hour", _NUMBER, "The most that an hour may cost."),
    TaskOption("reliability", _NUMBER, "The least probability of no failure: 0.99."),
    TaskOption(
        "interruptible",
        _FLAG,
        "May run on capacity that can be taken back.",
        ("--interruptible", "--use-spot"),
    ),
    TaskOption("max_latency", _TEXT, "The longest way to --near and back: 20ms."),
)


def with_task_options(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command with an option for each of these fields; what was given comes to it as ``fields``."""
    shape = inspect.signature(command)
    options = [
        inspect.Parameter(
            option.field,
            inspect.Parameter.KEYWORD_ONLY,
            default=None,
            annotation=Annotated[option.kind, typer.Option(*option.flags, help=option.help)],
        )
        for option in TASK_OPTIONS
    ]

    def called(**given: Any) -> None:
        fields = {option.field: given.pop(option.field) for option in TASK_OPTIONS}
        command(**given, fields={name: value for name, value in fields.items() if value is not None})

    own = [parameter for parameter in shape.parameters.values() if parameter.name != "fields"]
    called.__name__, called.__doc__ = command.__name__, command.__doc__
    called.__signature__ = shape.replace(parameters=[*own, *options])
    called.__annotations__ = {parameter.name: parameter.annotation for parameter in [*own, *options]}
    return called
