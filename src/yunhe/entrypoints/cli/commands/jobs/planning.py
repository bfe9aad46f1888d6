"""What ``yunhe plan`` can say of tasks beyond where one would go: what there is to choose from, several together."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import msgspec
import typer
import yaml

from yunhe.entrypoints.cli.commands.jobs.run_options import RunOptions
from yunhe.entrypoints.cli.session.connection import connected, pools_by_id
from yunhe.entrypoints.cli.session.context import Context
from yunhe.entrypoints.cli.session.task_files import Overrides
from yunhe.entrypoints.cli.session.uploads import submissions_of
from yunhe.entrypoints.cli.terminal.follow import NOTHING_FITS
from yunhe.entrypoints.cli.terminal.screen import Format, err, hints, out, print_json
from yunhe.entrypoints.cli.views.plan import plan_page
from yunhe.entrypoints.cli.views.plans import pareto_page, saved_page, together_page
from yunhe.entrypoints.client import Client
from yunhe.kernel.errors import FieldProblem, InvalidInputError
from yunhe.kernel.ids import ProjectId
from yunhe.scheduling.decision.model import Waiting
from yunhe.storage.private_files import write_private
from yunhe.trading.applications.model import SavedPlan, Submission
from yunhe.trading.demand.model import Task

ParetoOption = Annotated[
    bool, typer.Option("--pareto", help="List the pools that no other beats; start nothing.")
]
SaveOption = Annotated[
    Path | None, typer.Option(metavar="PLAN", help="Write the plan to a file; start nothing.")
]
PlanOption = Annotated[
    Path | None, typer.Option(metavar="PLAN", help="Run a plan that was written with --save.")
]
RenderOption = Annotated[
    str,
    typer.Option(
        metavar="KIND", help="Print the plan as manifests for a cluster of this kind; start nothing."
    ),
]


def _submissions(tasks: Sequence[Task], context: Context) -> list[Submission]:
    return [Submission(task=task, project_id=ProjectId(context.project)) for task in tasks]


def show_pareto(tasks: Sequence[Task], context: Context, output: Format) -> None:
    """Show, task by task, the pools that no other beats."""
    with connected(context) as client:
        plans = [client.pareto(one) for one in _submissions(tasks, context)]
        if output is Format.JSON:
            print_json(plans[0] if len(plans) == 1 else plans)
        else:
            pools = pools_by_id(client)
            for task, plan in zip(tasks, plans, strict=True):
                if isinstance(plan, Waiting):
                    out().print(plan_page(plan, pools, f"Considered for {task.name}"))
                else:
                    out().print(pareto_page(plan, pools, task.name))
    if any(isinstance(plan, Waiting) for plan in plans):
        raise typer.Exit(NOTHING_FITS)


def save_plan(tasks: Sequence[Task], context: Context, wishes: RunOptions, path: Path) -> None:
    """Plan tasks together, send what they need, and write the plan to a file of the user's own."""
    with connected(context) as client:
        plan = _new_plan(client, tasks, context, all_files=wishes.all_files)
    write_private(path, msgspec.json.format(msgspec.json.encode(plan)) + b"\n")
    if wishes.output is Format.JSON:
        print_json(plan)
        return
    out().print(saved_page(plan))
    err().print(hints({"run it": f"yunhe run --plan {path}"}))


def render_plan(
    planned: SavedPlan | Sequence[Task],
    kind: str,
    context: Context,
    output: Format,
    *,
    all_files: bool = False,
) -> None:
    """Print a saved plan, or a new one for tasks, as manifests of a *kind* of cluster: YAML, or a List in JSON."""
    with connected(context) as client:
        if isinstance(planned, SavedPlan):
            plan = planned
        else:
            plan = _new_plan(client, planned, context, all_files=all_files)
        for pool in (client.pool(task.place.pool_name) for task in plan.tasks):
            if pool.spec.kind != kind:
                raise InvalidInputError(
                    f"The plan chose pool {pool.spec.name}, which is of kind {pool.spec.kind}, not {kind}.",
                    remedy="Name a pool of that kind with --pool; see yunhe pool ls.",
                    fields=(FieldProblem("--render", f"is not the kind of pool {pool.spec.name}", kind),),
                )
        manifests = client.render_plan(plan)
    if output is Format.JSON:
        print_json({"apiVersion": "v1", "kind": "List", "items": manifests})
    else:
        sys.stdout.write(yaml.safe_dump_all(manifests, sort_keys=False))


def _new_plan(client: Client, tasks: Sequence[Task], context: Context, *, all_files: bool) -> SavedPlan:
    project_id = ProjectId(context.project)
    return client.save_plan(submissions_of(client, project_id, tasks, all_files=all_files))


def read_plan(path: Path) -> SavedPlan:
    """Return a plan as it was written; refuse a file that is none or that was changed since."""
    try:
        plan = msgspec.json.decode(path.read_bytes(), type=SavedPlan)
    except OSError as error:
        raise InvalidInputError(
            f"{path} cannot be read: {error.strerror}.", remedy="Give a file written by yunhe plan --save."
        ) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidInputError(
            f"{path} is no plan: {error}.", remedy="Give a file written by yunhe plan --save."
        ) from error
    plan.check()
    return plan


def refuse_tasks_beside_plan(files: Sequence[str], overrides: Overrides, *, dry_run: bool) -> None:
    """Refuse what a saved plan leaves no room for: other tasks, and options that would change its own."""
    if dry_run:
        raise InvalidInputError(
            "--plan runs a plan, and nothing was asked to run.", remedy="Use yunhe run --plan FILE."
        )
    if files or overrides != Overrides():
        raise InvalidInputError(
            "A saved plan runs as it is: task files and options over them do not go with --plan.",
            remedy="Leave them out, or plan again with them: yunhe plan FILE… --save PLAN.",
        )


def show_together(tasks: Sequence[Task], context: Context, output: Format) -> bool:
    """Show where several tasks would go together, and what that saves; return whether one has to wait."""
    with connected(context) as client:
        plan = client.plan_together(_submissions(tasks, context))
        if output is Format.JSON:
            print_json(plan)
        else:
            out().print(together_page(plan, pools_by_id(client), tasks))
    return plan.waiting > 0
