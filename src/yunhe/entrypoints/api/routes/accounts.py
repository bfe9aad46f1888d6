"""Projects, members, secrets, keys and the audit log."""

from collections.abc import AsyncGenerator, AsyncIterator
from typing import Annotated

import msgspec
from litestar import Router, delete, get, patch, post, put
from litestar.params import FromPath, FromQuery, JSONBody, QueryParameter
from litestar.types import ASGIApp

from yunhe.entrypoints.api.caller import ApiRequest, Caller, TheCaller
from yunhe.entrypoints.api.streams import StreamAnswer
from yunhe.entrypoints.wire import (
    Keys,
    KeyWish,
    Members,
    NewProject,
    NewRole,
    Projects,
    Rotation,
    Secrets,
    SecretValue,
)
from yunhe.kernel.chains import ChainHead
from yunhe.kernel.ids import ProjectId
from yunhe.trading.accounts.model import (
    Action,
    AuditLine,
    AuditPage,
    Key,
    Member,
    NewKey,
    Principal,
    Project,
    ProjectChange,
    ProjectState,
    SecretInfo,
)


@get("/me")
async def me(caller: TheCaller) -> Principal:
    """Say who the key belongs to and what they may do."""
    return caller.who


@get("/projects")
async def projects(caller: TheCaller) -> Projects:
    """List the projects the caller may see."""
    return Projects(await caller.platform.accounts.projects(caller.who))


@post("/projects")
async def create_project(data: JSONBody[NewProject], caller: TheCaller) -> Project:
    """Make a project; one that exists is returned as it is."""
    await caller.authorize_everywhere(Action.MEMBERS, data.id)
    return await caller.platform.accounts.create_project(caller.who, data.id)


@get("/projects/{project:str}")
async def project(project: FromPath[str], caller: TheCaller) -> ProjectState:
    """Show a project: each quota with what is used of it, and where its tasks may connect to."""
    await caller.authorize(Action.SEE, ProjectId(project), project)
    return await _state(caller, ProjectId(project))


@patch("/projects/{project:str}")
async def change_project(
    project: FromPath[str], data: JSONBody[ProjectChange], caller: TheCaller
) -> ProjectState:
    """Change quotas and network policy of a project; what is left out stays. Only an admin of the platform may."""
    await caller.authorize_everywhere(Action.MEMBERS, project)
    await caller.platform.accounts.change_project(caller.who, ProjectId(project), data)
    return await _state(caller, ProjectId(project))


async def _state(caller: Caller, project_id: ProjectId) -> ProjectState:
    jobs = await caller.platform.orchestration.count_jobs(project_id)
    return await caller.platform.accounts.project_state(project_id, jobs)


@get("/projects/{project:str}/members")
async def members(project: FromPath[str], caller: TheCaller) -> Members:
    """List who belongs to a project."""
    await caller.authorize(Action.SEE, ProjectId(project), project)
    return Members(await caller.platform.accounts.members(caller.who, ProjectId(project)))


@put("/projects/{project:str}/members/{user:str}")
async def set_member(
    project: FromPath[str], user: FromPath[str], data: JSONBody[NewRole], caller: TheCaller
) -> Member:
    """Give a user, made when new, a role in a project."""
    await caller.authorize(Action.MEMBERS, ProjectId(project), user)
    return await caller.platform.accounts.set_member(caller.who, ProjectId(project), user, data.role)


@delete("/projects/{project:str}/members/{user:str}")
async def remove_member(project: FromPath[str], user: FromPath[str], caller: TheCaller) -> None:
    """Take a user out of a project."""
    await caller.authorize(Action.MEMBERS, ProjectId(project), user)
    await caller.platform.accounts.remove_member(caller.who, ProjectId(project), user)


@get("/projects/{project:str}/secrets")
async def secrets(project: FromPath[str], caller: TheCaller) -> Secrets:
    """List the names of a project's secrets; their values never come out."""
    await caller.authorize(Action.SEE, ProjectId(project), "secrets")
    return Secrets(await caller.platform.accounts.secrets(caller.who, ProjectId(project)))


@put("/projects/{project:str}/secrets/{name:str}")
async def set_secret(
    project: FromPath[str], name: FromPath[str], data: JSONBody[SecretValue], caller: TheCaller
) -> SecretInfo:
    """Keep a secret, encrypted."""
    await caller.authorize(Action.SECRETS, ProjectId(project), name)
    return await caller.platform.accounts.set_secret(caller.who, ProjectId(project), name, data.value)


@delete("/projects/{project:str}/secrets/{name:str}")
async def delete_secret(project: FromPath[str], name: FromPath[str], caller: TheCaller) -> None:
    """Forget a secret."""
    await caller.authorize(Action.SECRETS, ProjectId(project), name)
    await caller.platform.accounts.delete_secret(caller.who, ProjectId(project), name)


@get("/keys")
async def keys(caller: TheCaller) -> Keys:
    """List one's own keys; an admin of the platform sees all."""
    return Keys(await caller.platform.accounts.keys(caller.who))


@post("/keys")
async def create_key(data: JSONBody[KeyWish], caller: TheCaller) -> NewKey:
    """Make a key; its text is in this answer and never shown again. It ends with the key it is made with."""
    if data.user not in ("", caller.who.name) or data.scope.plugin:
        await caller.authorize_everywhere(Action.MEMBERS, data.user or data.scope.plugin)
    return await caller.platform.accounts.create_key(
        caller.who, data.name, user=data.user, expires_in_s=data.expires_in_s, scope=data.scope
    )


@post("/keys/{key_id:str}/rotate", status_code=200)
async def rotate_key(key_id: FromPath[str], data: JSONBody[Rotation], caller: TheCaller) -> NewKey:
    """Give a key another text, shown this once; the old one stays good for a while. Its children stay."""
    return await caller.platform.accounts.rotate_key(
        caller.who, key_id, overlap_s=data.overlap_s, expires_in_s=data.expires_in_s
    )


@delete("/keys/{key_id:str}", status_code=200)
async def revoke_key(
    key_id: FromPath[str], caller: TheCaller, *, keep_children: FromQuery[bool] = False
) -> Key:
    """End a key and every key made with it; an admin may keep those (``keep_children``): they then end with the admin's."""
    if keep_children:
        await caller.authorize_everywhere(Action.MEMBERS, key_id)
    return await caller.platform.accounts.revoke_key(caller.who, key_id, keep_children=keep_children)


@get("/audit")
async def audit(
    caller: TheCaller,
    cursor: FromQuery[str | None] = None,
    limit: Annotated[int, QueryParameter(ge=1, le=1000)] = 50,
) -> AuditPage:
    """List who did, or was refused, what and when; newest first."""
    await caller.authorize_everywhere(Action.AUDIT, "audit")
    return await caller.platform.accounts.audit(caller.who, cursor=cursor, limit=limit)


@get("/audit/head")
async def audit_head(caller: TheCaller) -> ChainHead:
    """Show the signed head of the audit log; who keeps it notices when a line before it is changed or cut off."""
    return await caller.platform.notary.head("audit")


@get("/audit/export", media_type="application/x-ndjson")
async def audit_export(caller: TheCaller, request: ApiRequest) -> ASGIApp:
    """Export the audit log, one line a line; where older lines were removed, the signed cut comes first."""
    await caller.authorize_everywhere(Action.AUDIT, "audit")
    await caller.platform.notary.head("audit")  # what was done until now is in the chain
    lines = _exported(await caller.platform.notary.cut(), caller.platform.accounts.audit_lines())
    return StreamAnswer(lines, "application/x-ndjson", request.app.state.stopping)


async def _exported(cut: ChainHead | None, lines: AsyncIterator[AuditLine]) -> AsyncGenerator[bytes, None]:
    if cut is not None:
        yield msgspec.json.encode(cut) + b"\n"
    async for line in lines:
        yield msgspec.json.encode(line) + b"\n"


router = Router(
    "/",
    route_handlers=[
        me,
        projects,
        create_project,
        project,
        change_project,
        members,
        set_member,
        remove_member,
        secrets,
        set_secret,
        delete_secret,
        keys,
        create_key,
        rotate_key,
        revoke_key,
        audit,
        audit_head,
        audit_export,
    ],
    tags=["accounts"],
)
