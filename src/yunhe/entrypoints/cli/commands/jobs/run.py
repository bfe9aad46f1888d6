"""``yunhe run``: from a task to its end, telling on the way where, what next and what it cost."""

import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from yunhe.entrypoints.cli.commands.jobs.planning import (
    ParetoOption,
    PlanOption,
    RenderOption,
    SaveOption,
    read_plan,
    refuse_tasks_beside_plan,
    render_plan,
    save_plan,
    show_pareto,
    show_together,
)
from yunhe.entrypoints.cli.session.connection import connected, pools_by_id
from yunhe.entrypoints.cli.session.context import Context, current_context
from yunhe.entrypoints.cli.session.task_files import Overrides, tasks_from
from yunhe.entrypoints.cli.session.task_options import with_task_options
from yunhe.entrypoints.cli.session.uploads import submission_of
from yunhe.entrypoints.cli.terminal.follow import exit_code, follow, follow_all, tell_ending
from yunhe.entrypoints.cli.terminal.screen import (
    Format,
    OutputOption,
    PlainApp,
    ProjectOption,
    YesOption,
    confirm,
    err,
    hints,
    out,
    print_json,
)
from yunhe.entrypoints.cli.views.jobs import jobs_table
from yunhe.entrypoints.cli.views.plan import plan_page
from yunhe.entrypoints.cli.views.plans import saved_page
from yunhe.entrypoints.client import Client
from yunhe.kernel.ids import ProjectId
from yunhe.scheduling.decision.model import Plan, Waiting
from yunhe.scheduling.orchestration.jobs.model import Job
from yunhe.trading.applications.model import SavedPlan, Submission
from yunhe.trading.demand.model import Task
from yunhe.trading.demand.schema import task_schema

app = PlainApp()


@app.command()
@with_task_options
def run(  # noqa: PLR0913 - each is an option
    context: typer.Context,
    files: Annotated[
        list[str] | None, typer.Argument(metavar="FILE… | -- COMMAND", help="Task files.")
    ] = None,
    *,
    name: Annotated[str, typer.Option(help="What to call the job.")] = "",
    cpus: Annotated[str, typer.Option(help="Cores: 2, 4+, 500m.")] = "",
    memory: Annotated[str, typer.Option(help="Memory: 16 (GiB), 512MB.")] = "",
    gpus: Annotated[str, typer.Option(help="Accelerators: A100:2, or a count.")] = "",
    image: Annotated[str, typer.Option(help="A container image to run in: python:3.12.")] = "",
    env: Annotated[list[str] | None, typer.Option("--env", "-e", help="NAME=value; may be repeated.")] = None,
    secret: Annotated[list[str] | None, typer.Option(help="A secret's name; may be repeated.")] = None,
    tier: Annotated[str, typer.Option(help="high, medium or low.")] = "",
    policy: Annotated[
        str, typer.Option(help="cheapest, nearest, fastest, greenest, lowest-latency or balanced.")
    ] = "",
    near: Annotated[str, typer.Option(help="A place: cn-north or @39.9,116.4.")] = "",
    pool: Annotated[str, typer.Option(help="Only this pool.")] = "",
    retries: Annotated[int | None, typer.Option(help="How often to try again.")] = None,
    timeout: Annotated[str, typer.Option(help="The longest one attempt may take: 10m, 2h.")] = "",
    project: ProjectOption = "",
    detach: Annotated[bool, typer.Option("--detach", "-d", help="Submit and come back at once.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show where it would run; start nothing.")
    ] = False,
    pareto: ParetoOption = False,
    save: SaveOption = None,
    plan: PlanOption = None,
    render: RenderOption = "",
    schema: Annotated[bool, typer.Option("--schema", help="Print the JSON schema of a task.")] = False,
    yes: YesOption = False,
    output: OutputOption = Format.TABLE,
    fields: dict[str, Any],
) -> None:
    """Run a task: a YAML file, several, or one command after --.

    Shows what was considered, asks, sends what the task needs, follows its output and tells what it cost.
    The exit code is the job's. Ctrl-C leaves the job running.

    Examples:
      yunhe run examples/hello.yaml
      yunhe run train.yaml --cpus 4 --env EPOCHS=3 -y
      yunhe run -- python -c 'print(6 * 7)'
      yunhe run --detach a.yaml b.yaml
      yunhe plan --pareto train.yaml
      yunhe plan --save night.plan a.yaml b.yaml
      yunhe run --plan night.plan
    """
    if schema:
        print_json(task_schema())
        return
    verbatim: list[str] = list(context.obj or ())
    overrides = Overrides(
        name=name,
        cpus=cpus,
        memory=memory,
        gpus=gpus,
        image=image,
        pool=pool,
        envs=tuple(env or ()),
        secrets=tuple(secret or ()),
        tier=tier,
        policy=policy,
        near=near,
        retries=retries,
        timeout=timeout,
        fields=fields,
    )
    given = list(files or ())[: len(files or ()) - len(verbatim)]
    wishes = RunOptions(detach=detach, dry_run=dry_run, yes=yes, output=output)
    wishes = replace(wishes, pareto=pareto, save=save, plan=plan, render=render)
    _serve(given, verbatim, overrides, current_context(project), wishes)


def _serve(
    files: list[str], command: list[str], overrides: Overrides, context: Context, wishes: "RunOptions"
) -> None:
    """Run tasks or a saved plan, or only plan, as the caller wishes."""
    if wishes.plan is not None:
        only_shown = wishes.dry_run and not wishes.render
        refuse_tasks_beside_plan([*files, *command], overrides, dry_run=only_shown)
        saved = read_plan(wishes.plan)
        if not wishes.render:
            _run_plan(saved, context, wishes)
        else:
            render_plan(saved, wishes.render, context, wishes.output)
        return
    plan_only = wishes.dry_run or wishes.pareto or bool(wishes.save is not None or wishes.render)
    tasks = tasks_from(files, command, overrides, plan=plan_only)
    if wishes.render:
        render_plan(tasks, wishes.render, context, wishes.output)
    elif wishes.save is not None:
        save_plan(tasks, context, wishes.save, wishes.output)
    elif wishes.pareto:
        show_pareto(tasks, context, wishes.output)
    elif wishes.dry_run and len(tasks) > 1 and not any(task.components for task in tasks):
        show_together(tasks, context, wishes.output)
    else:
        run_tasks(tasks, context, wishes)


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


def run_tasks(tasks: list[Task], context: Context, wishes: RunOptions) -> None:
    """Plan, ask, send, submit and follow *tasks*; leaves by the exit code of what ran."""
    with connected(context) as client:
        if wishes.dry_run or wishes.output is not Format.JSON:
            decisions = _show_plans(client, tasks, context, wishes)
            if wishes.dry_run:
                return
            waits = any(isinstance(decision, Waiting) for decision in decisions)
            question = "Submit it and let it wait?" if waits else "Run it?"
            if not confirm(question if len(tasks) == 1 else f"Run {len(tasks)} tasks?", yes=wishes.yes):
                raise typer.Abort
        submissions = [submission_of(client, ProjectId(context.project), task) for task in tasks]
        jobs = [client.submit(submissions[0])] if len(submissions) == 1 else client.submit_batch(submissions)
        _attend(client, list(jobs), wishes)


def _run_plan(plan: SavedPlan, context: Context, wishes: RunOptions) -> None:
    """Show a saved plan, ask, run it as it is and follow it; leaves by the exit code of what ran."""
    with connected(context) as client:
        if wishes.output is not Format.JSON:
            err().print(saved_page(plan))
            if not confirm("Run it as planned?", yes=wishes.yes):
                raise typer.Abort
        _attend(client, list(client.run_plan(plan)), wishes)


def _show_plans(client: Client, tasks: list[Task], context: Context, wishes: RunOptions) -> list[Plan]:
    pools = {} if wishes.output is Format.JSON else pools_by_id(client)
    decisions: list[Plan] = []
    for task in tasks:
        began = time.perf_counter()
        decision = client.plan(Submission(task=task, project_id=ProjectId(context.project)))
        took = time.perf_counter() - began
        decisions.append(decision)
        if wishes.output is Format.TABLE:
            heading = f"Considered for {task.name} (policy {task.policy}, tier {task.tier})   {took:.2f} s"
            (out() if wishes.dry_run else err()).print(plan_page(decision, pools, heading))
    if wishes.output is Format.JSON:
        print_json(decisions[0] if len(decisions) == 1 else decisions)
    return decisions


def _attend(client: Client, jobs: list[Job], wishes: RunOptions) -> None:
    """Follow what was submitted, unless the caller does not wish to wait."""
    as_json = wishes.output is Format.JSON
    if wishes.detach:
        if as_json:
            print_json(jobs[0] if len(jobs) == 1 else jobs)
        else:
            out().print(jobs_table(jobs, now=time.time()))
            err().print(hints({"follow": f"yunhe logs -f {jobs[0].id}", "stop": f"yunhe stop {jobs[0].id}"}))
        return
    ended = [follow(client, jobs[0], quiet=as_json)] if len(jobs) == 1 else follow_all(client, jobs)
    if as_json:
        print_json(ended[0] if len(ended) == 1 else ended)
    elif len(ended) == 1:
        tell_ending(client, ended[0])
    else:
        out().print(jobs_table(ended, now=time.time()))
    raise typer.Exit(max(exit_code(job) for job in ended))
