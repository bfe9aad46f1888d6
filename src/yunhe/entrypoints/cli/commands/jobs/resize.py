"""``yunhe resize``: more or less of a machine, while the job runs."""

from typing import Annotated

import typer

from yunhe.entrypoints.cli.session.connection import connected, find_job_id
from yunhe.entrypoints.cli.terminal.screen import (
    Format,
    JobArgument,
    OutputOption,
    PlainApp,
    amount,
    err,
    print_json,
)
from yunhe.entrypoints.cli.views.jobs import asked
from yunhe.kernel.errors import FieldProblem, InvalidInputError
from yunhe.kernel.resources import Resources
from yunhe.trading.demand import amounts

app = PlainApp()


@app.command()
def resize(
    job: JobArgument,
    *,
    cpus: Annotated[str, typer.Option(help="Cores: 2, 0.5 or 500m.")] = "",
    memory: Annotated[str, typer.Option(help="Memory: 16 (GiB), 16GB or 512MB.")] = "",
    output: OutputOption = Format.TABLE,
) -> None:
    """Change a running job's limits in place; its processes go on.

    Examples:
      yunhe resize train --cpus 1.5
      yunhe resize train --cpus 2 --memory 8GB
    """
    wanted = _wanted(cpus, memory)
    with connected() as client:
        changed = client.resize(find_job_id(client, job), wanted)
    if output is Format.JSON:
        print_json(changed)
    else:
        err().print(f"✓ {changed.name} ({changed.id}) now has {amount(asked(changed))}")


def _wanted(cpus: str, memory: str) -> Resources:
    if not (cpus or memory):
        raise InvalidInputError("Nothing to change was given.", remedy="Give --cpus, --memory or both.")
    problems: list[FieldProblem] = []
    millis = mib = 0
    try:
        millis = amounts.cpu_millis(cpus) if cpus else 0
    except ValueError as error:
        problems.append(FieldProblem("--cpus", str(error), cpus))
    try:
        mib = amounts.memory_mib(memory) if memory else 0
    except ValueError as error:
        problems.append(FieldProblem("--memory", str(error), memory))
    if problems:
        raise InvalidInputError("The job was not changed.", fields=tuple(problems))
    return Resources(cpu_millis=millis, memory_mib=mib)
