"""``yunhe project``: who pays and who may see."""

import time
from typing import Annotated

import msgspec
import typer

from yunhe.entrypoints.cli.commands.access import quotas
from yunhe.entrypoints.cli.session.connection import connected
from yunhe.entrypoints.cli.session.context import current_context, load_config, save_config
from yunhe.entrypoints.cli.terminal.screen import (
    Format,
    OutputOption,
    PlainApp,
    YesOption,
    confirm,
    err,
    local_time,
    out,
    print_json,
    table,
)
from yunhe.kernel.errors import NotFoundError
from yunhe.kernel.quotas import QuotaName
from yunhe.trading.accounts.model import Role

app = PlainApp(no_args_is_help=True, help="Projects: who pays and who may see.")
NameArgument = Annotated[str, typer.Argument(metavar="PROJECT", help="A project's name.")]
UserArgument = Annotated[
    str, typer.Argument(metavar="USER", help="A user's name; * as PROJECT is all of them.")
]


@app.command()
def ls(*, output: OutputOption = Format.TABLE) -> None:
    """List the projects you may see; the one in use has a mark."""
    context = current_context()
    with connected(context) as client:
        projects = client.projects()
    if output is Format.JSON:
        print_json(projects)
        return
    now = time.time()
    rows = [
        ["*" if project.id == context.project else "", project.id, local_time(project.created_at, now=now)]
        for project in projects
    ]
    out().print(table(["", "PROJECT", "SINCE"], rows))


@app.command()
def create(name: NameArgument, *, output: OutputOption = Format.TABLE) -> None:
    """Make a project; one that exists stays as it is."""
    with connected() as client:
        project = client.create_project(name)
    if output is Format.JSON:
        print_json(project)
    else:
        err().print(f"✓ project {project.id}   use it   yunhe project use {project.id}")


@app.command()
def show(name: NameArgument, *, output: OutputOption = Format.TABLE) -> None:
    """Show a project's quotas, what is used of each, and where its tasks may connect to."""
    with connected() as client:
        state = client.project(name)
    if output is Format.JSON:
        print_json(state)
        return
    out().print(quotas.project_view(state))
    out().print(f"tasks connect to   {quotas.egress_text(state)}")


@app.command("set")
def set_(  # noqa: PLR0913 - each is an option
    name: NameArgument,
    *,
    max_queued: quotas.QueuedOption = "",
    max_running: quotas.RunningOption = "",
    max_upload_file_bytes: quotas.UploadFileOption = "",
    max_upload_bytes_per_day: quotas.UploadDayOption = "",
    max_blob_bytes: quotas.BlobOption = "",
    max_log_bytes: quotas.LogOption = "",
    max_job_log_bytes: quotas.JobLogOption = "",
    max_requests_per_s: quotas.RequestsOption = "",
    egress: quotas.EgressOption = None,
    output: OutputOption = Format.TABLE,
) -> None:
    """Change quotas and network policy of a project; what is not said stays. Administrators may.

    Examples:
      yunhe project set vision --max-queued 1000 --max-running 20
      yunhe project set vision --max-blob-bytes 50GB --max-log-bytes default
      yunhe project set vision --egress 10.0.0.0/8 --egress 192.0.2.7:443
    """
    change = quotas.change_of(
        {
            QuotaName.QUEUED: max_queued,
            QuotaName.RUNNING: max_running,
            QuotaName.UPLOAD_FILE_BYTES: max_upload_file_bytes,
            QuotaName.UPLOAD_BYTES_PER_DAY: max_upload_bytes_per_day,
            QuotaName.BLOB_BYTES: max_blob_bytes,
            QuotaName.LOG_BYTES: max_log_bytes,
            QuotaName.JOB_LOG_BYTES: max_job_log_bytes,
            QuotaName.REQUESTS_PER_S: max_requests_per_s,
        },
        egress,
    )
    with connected() as client:
        state = client.set_project(name, change)
    if output is Format.JSON:
        print_json(state)
    else:
        err().print(f"✓ project {name} is set   see it   yunhe project show {name}")


@app.command()
def use(name: NameArgument) -> None:
    """Work in a project from now on."""
    with connected() as client:
        known = [str(project.id) for project in client.projects()]
    if name not in known:
        raise NotFoundError(
            f"There is no project {name!r} that you may see.", remedy=f"There are: {', '.join(known)}."
        )
    config = load_config()
    save_config(config.holding(config.current, msgspec.structs.replace(config.context(), project=name)))
    err().print(f"✓ working in project {name}")


@app.command()
def members(name: NameArgument, *, output: OutputOption = Format.TABLE) -> None:
    """List who belongs to a project."""
    with connected() as client:
        found = client.members(name)
    if output is Format.JSON:
        print_json(found)
    else:
        out().print(table(["USER", "ROLE"], [[member.name, member.role] for member in found]))


@app.command()
def add(
    name: NameArgument,
    user: UserArgument,
    *,
    role: Annotated[Role, typer.Option(help="viewer, member, operator or admin.")] = Role.MEMBER,
    output: OutputOption = Format.TABLE,
) -> None:
    """Give a user (made when new) a role in a project.

    Examples:
      yunhe project add vision mei --role member
      yunhe token create laptop --user mei
    """
    with connected() as client:
        member = client.set_member(name, user, role)
    if output is Format.JSON:
        print_json(member)
    else:
        err().print(
            f"✓ {member.name} is {member.role} in {name}   key   yunhe token create NAME --user {user}"
        )


@app.command()
def rm(name: NameArgument, user: UserArgument, *, yes: YesOption = False) -> None:
    """Take a user out of a project."""
    if not confirm(f"Take {user} out of {name}?", yes=yes):
        raise typer.Abort
    with connected() as client:
        client.remove_member(name, user)
    err().print(f"✓ {user} is not in {name}")
