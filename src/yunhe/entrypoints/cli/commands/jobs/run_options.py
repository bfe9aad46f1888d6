"""The options of ``yunhe run`` and ``yunhe plan`` that are no field of the task's placement, and what the caller wishes by them."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from yunhe.entrypoints.cli.session.completing import policy_names, pool_names
from yunhe.entrypoints.cli.terminal.screen import Format
from yunhe.kernel.errors import FieldProblem, InvalidInputError
from yunhe.trading.demand.amounts import duration_s

NameOption = Annotated[str, typer.Option(help="What to call the job.")]
CpusOption = Annotated[str, typer.Option(help="Cores: 2, 4+, 500m.")]
MemoryOption = Annotated[str, typer.Option(help="Memory: 16 (GiB), 512MB.")]
GpusOption = Annotated[
    str, typer.Option(help="Accelerators: A100:2, or a count of the kind that the file names.")
]
ImageOption = Annotated[str, typer.Option(help="A container image to run in: python:3.12.")]
RuntimeOption = Annotated[str, typer.Option(help="sandboxed: in a sandbox with a kernel of its own.")]
EnvOption = Annotated[list[str] | None, typer.Option("--env", "-e", help="NAME=value; may be repeated.")]
SecretOption = Annotated[list[str] | None, typer.Option(help="A secret's name; may be repeated.")]
TierOption = Annotated[str, typer.Option(help="high, medium or low.")]
PolicyOption = Annotated[
    str,
    typer.Option(
        help="cheapest, nearest, fastest, greenest, lowest-latency or balanced.",
        autocompletion=policy_names,
    ),
]
NearOption = Annotated[str, typer.Option(help="A place: cn-north or @39.9,116.4.")]
PoolOption = Annotated[str, typer.Option(help="Only this pool.", autocompletion=pool_names)]
InfraOption = Annotated[
    str, typer.Option(help="In place of the file's infra: aws/us-east-1, k8s, '*' for anywhere.")
]
RetriesOption = Annotated[int | None, typer.Option(help="How often to try again.")]
TimeoutOption = Annotated[str, typer.Option(help="The longest one attempt may take: 10m, 2h.")]
DetachOption = Annotated[bool, typer.Option("--detach", "-d", help="Submit and come back at once.")]
WaitOption = Annotated[
    str, typer.Option(help="Wait so long for a place, then give up: 5m. For ever when not said.")
]
NoWaitOption = Annotated[bool, typer.Option("--no-wait", help="Submit nothing if no pool can take it now.")]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Show where it would run; start nothing.")]
ExplainFieldsOption = Annotated[
    bool, typer.Option("--explain-fields", help="Say of each field of the file what becomes of it.")
]
FilesArgument = Annotated[list[str] | None, typer.Argument(metavar="FILE… | -- COMMAND", help="Task files.")]
AllFilesOption = Annotated[
    bool, typer.Option("--all-files", help="Send also what .gitignore and .yunheignore name.")
]
SchemaOption = Annotated[bool, typer.Option("--schema", help="Print the JSON schema of a task.")]


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """How the caller wants to be served."""

    detach: bool
    dry_run: bool
    yes: bool
    output: Format
    pareto: bool = False
    save: Path | None = None
    plan: Path | None = None
    render: str = ""
    patience_s: float | None = None
    """How long to wait for a place; 0: submit nothing that would wait; None: for ever."""
    explain_fields: bool = False
    all_files: bool = False
    """Whether to send what the ignore files name too."""


def patience_s(wait: str, *, no_wait: bool, detach: bool) -> float | None:
    """Return how long to wait for a place; None: for ever."""
    if wait and (no_wait or detach):
        other = "--no-wait" if no_wait else "--detach"
        raise InvalidInputError(f"--wait and {other} exclude each other.", remedy="Keep one of them.")
    if no_wait:
        return 0.0
    if not wait:
        return None
    try:
        return duration_s(wait)
    except ValueError as error:
        raise InvalidInputError(
            "How long to wait cannot be read.", fields=(FieldProblem("--wait", str(error), wait),)
        ) from error
