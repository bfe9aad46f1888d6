"""``yunhe run``: from a task to its end, telling on the way where, what next and what it cost."""

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

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
from yunhe.entrypoints.cli.commands.jobs.run_options import (
    AllFilesOption,
    CpusOption,
    DetachOption,
    DryRunOption,
    EnvOption,
    ExplainFieldsOption,
    FilesArgument,
    GpusOption,
    ImageOption,
    InfraOption,
    MemoryOption,
    NameOption,
    NearOption,
    NoWaitOption,
    PolicyOption,
    PoolOption,
    RetriesOption,
    RunOptions,
    RuntimeOption,
    SchemaOption,
    SecretOption,
    TierOption,
    TimeoutOption,
    WaitOption,
    patience_s,
)
from yunhe.entrypoints.cli.session.connection import connected, pools_by_id, refuse_unknown_pools
from yunhe.entrypoints.cli.session.context import Context, current_context
from yunhe.entrypoints.cli.session.task_files import Overrides, tasks_from
from yunhe.entrypoints.cli.session.task_options import with_task_options
from yunhe.entrypoints.cli.session.uploads import submissions_of, tell_left_out
from yunhe.entrypoints.cli.terminal.follow import (
    NOTHING_FITS,
    exit_code,
    follow,
    follow_all,
    give_up_after,
    tell_ending,
)
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
from yunhe.entrypoints.cli.views.fields import tell_fields
from yunhe.entrypoints.cli.views.jobs import jobs_table
from yunhe.entrypoints.cli.views.plan import Pools, plan_page
from yunhe.entrypoints.cli.views.plans import listed_page, saved_page
from yunhe.entrypoints.client import Client
from yunhe.kernel.ids import ProjectId
from yunhe.scheduling.decision.model import GraphWaiting, Plan, Waiting
from yunhe.scheduling.orchestration.jobs.model import Job
from yunhe.trading.applications.model import SavedPlan, Submission
from yunhe.trading.demand.model import Task
from yunhe.trading.demand.schema import task_schema

app = PlainApp()
TOGETHER = 100
"""So many tasks are considered together before they run; of more, each alone."""


@app.command()
@with_task_options
def run(  # noqa: PLR0913 - each is an option
    context: typer.Context,
    files: FilesArgument = None,
    *,
    name: NameOption = "",
    cpus: CpusOption = "",
    memory: MemoryOption = "",
    gpus: GpusOption = "",
    image: ImageOption = "",
    runtime: RuntimeOption = "",
    env: EnvOption = None,
    secret: SecretOption = None,
    tier: TierOption = "",
    policy: PolicyOption = "",
    near: NearOption = "",
    pool: PoolOption = "",
    infra: InfraOption = "",
    retries: RetriesOption = None,
    timeout: TimeoutOption = "",
    project: ProjectOption = "",
    detach: DetachOption = False,
    wait: WaitOption = "",
    no_wait: NoWaitOption = False,
    dry_run: DryRunOption = False,
    pareto: ParetoOption = False,
    save: SaveOption = None,
    plan: PlanOption = None,
    render: RenderOption = "",
    explain_fields: ExplainFieldsOption = False,
    all_files: AllFilesOption = False,
    schema: SchemaOption = False,
    yes: YesOption = False,
    output: OutputOption = Format.TABLE,
    fields: dict[str, Any],
) -> None:
    """Run a task: a YAML file, several, or one command after --.

    Shows what was considered, asks, sends what the task needs, follows its output and tells what it cost.
    The exit code is the job's, and 3 when nothing can take it. Ctrl-C leaves the job running.
    SkyPilot's task files are read as they are: docs/reference/skypilot.md says what each field means.

    Examples:
      yunhe run examples/hello.yaml
      yunhe run train.yaml --cpus 4 --env EPOCHS=3 -y
      yunhe run -- python -c 'print(6 * 7)'
      yunhe run --detach a.yaml b.yaml
      yunhe run --wait 5m train.yaml
      yunhe plan --explain-fields train.yaml
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
        runtime=runtime,
        pool=pool,
        infra=infra,
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
    wishes = RunOptions(detach=detach, dry_run=dry_run, yes=yes, output=output, all_files=all_files)
    wishes = replace(wishes, pareto=pareto, save=save, plan=plan, render=render)
    patience = patience_s(wait, no_wait=no_wait, detach=detach)
    wishes = replace(wishes, explain_fields=explain_fields, patience_s=patience)
    _serve(given, verbatim, overrides, current_context(project), wishes)


def _serve(
    files: list[str], command: list[str], overrides: Overrides, context: Context, wishes: RunOptions
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
    sent = not plan_only or wishes.save is not None or bool(wishes.render)
    given = tasks_from(files, command, overrides, plan=plan_only, sent=sent)
    tasks = [one.task for one in given]
    if wishes.explain_fields and wishes.output is Format.JSON:
        print_json([{"task": one.task.name, "fields": one.notes} for one in given])
        return
    tell_fields(given, every=wishes.explain_fields)
    if not sent:
        tell_left_out(tasks, all_files=wishes.all_files)
    if wishes.render:
        render_plan(tasks, wishes.render, context, wishes.output, all_files=wishes.all_files)
    elif wishes.save is not None:
        save_plan(tasks, context, wishes, wishes.save)
    elif wishes.pareto:
        show_pareto(tasks, context, wishes.output)
    elif wishes.dry_run and len(tasks) > 1 and not any(task.components for task in tasks):
        if show_together(tasks, context, wishes.output):
            raise typer.Exit(NOTHING_FITS)
    else:
        run_tasks(tasks, context, wishes)


def run_tasks(tasks: list[Task], context: Context, wishes: RunOptions) -> None:
    """Plan, ask, send, submit and follow *tasks*; leaves by the exit code of what ran."""
    with connected(context) as client:
        pools = pools_by_id(client)
        refuse_unknown_pools(tasks, pools)
        if wishes.dry_run or wishes.patience_s == 0 or wishes.output is not Format.JSON:
            waits = _show_plans(client, tasks, pools, context, wishes)
            if wishes.dry_run or (waits and wishes.patience_s == 0):
                raise typer.Exit(NOTHING_FITS if waits else 0)
            question = "Submit it and let it wait?" if waits else "Run it?"
            if not confirm(question if len(tasks) == 1 else f"Run {len(tasks)} tasks?", yes=wishes.yes):
                raise typer.Abort
        project_id = ProjectId(context.project)
        submissions = submissions_of(client, project_id, tasks, all_files=wishes.all_files)
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


def _show_plans(
    client: Client, tasks: list[Task], pools: Pools, context: Context, wishes: RunOptions
) -> bool:
    """Show where tasks would go, several of them in one table; return whether one has to wait."""
    screen = out() if wishes.dry_run else err()
    submissions = [Submission(task=task, project_id=ProjectId(context.project)) for task in tasks]
    if len(tasks) > 1 and not wishes.dry_run:
        if len(tasks) <= TOGETHER and len({task.policy for task in tasks}) == 1:
            found: Sequence[Plan] = client.plan_together(submissions).decisions
        else:
            found = [client.plan(submission) for submission in submissions]
        if wishes.output is Format.TABLE:
            screen.print(listed_page(found, pools, tasks, f"Considered for {len(tasks)} tasks"))
        return any(isinstance(decision, Waiting) for decision in found)
    decisions: list[Plan] = []
    for submission in submissions:
        task, began = submission.task, time.perf_counter()
        decision = client.plan(submission)
        took = time.perf_counter() - began
        decisions.append(decision)
        if wishes.output is Format.TABLE:
            heading = f"Considered for {task.name} (policy {task.policy}, tier {task.tier})   {took:.2f} s"
            screen.print(plan_page(decision, pools, heading))
    if wishes.output is Format.JSON and wishes.dry_run:
        print_json(decisions[0] if len(decisions) == 1 else decisions)
    return any(isinstance(decision, Waiting | GraphWaiting) for decision in decisions)


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
    if wishes.patience_s:
        give_up_after(client, jobs, wishes.patience_s)
    ended = [follow(client, jobs[0], quiet=as_json)] if len(jobs) == 1 else follow_all(client, jobs)
    if as_json:
        print_json(ended[0] if len(ended) == 1 else ended)
    elif len(ended) == 1:
        tell_ending(client, ended[0])
    else:
        out().print(jobs_table(ended, now=time.time()))
    raise typer.Exit(max(exit_code(job) for job in ended))
