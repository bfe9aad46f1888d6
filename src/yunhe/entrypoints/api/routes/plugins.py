"""Plugins: list, inspect, start and remove them; and the door at which their processes register."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import msgspec
from litestar import Router, delete, get, post, put
from litestar.connection import ASGIConnection
from litestar.handlers import BaseRouteHandler
from litestar.params import FromPath, FromQuery, JSONBody
from litestar.types import ASGIApp

from yunhe.control.plugins.model import AllowedFolder, Check, Heartbeat, Plugin, Registration
from yunhe.entrypoints.api.caller import (
    ApiRequest,
    Caller,
    TheCaller,
    authenticate,
    key_in,
    known_parameters,
    provide_caller,
)
from yunhe.entrypoints.api.streams import StreamAnswer, begun, event
from yunhe.entrypoints.wire import AllowedFolders, FolderWish, PluginFolder, PluginList
from yunhe.kernel.errors import ConflictError, ForbiddenError
from yunhe.kernel.ids import UserId
from yunhe.runtime.platform import Platform
from yunhe.storage.audit import Actor, act_as
from yunhe.trading.accounts.model import Action, Principal


@get("/plugins")
async def plugins(caller: TheCaller) -> PluginList:
    """List every plugin: its version, vendor, powers and state."""
    found = await caller.platform.plugins.plugins() if caller.who.memberships else ()
    sees_all = await caller.may_everywhere(Action.POOLS)
    return PluginList(found if sees_all else tuple(map(_less_the_processes, found)))


@get("/plugins/{name:str}")
async def plugin(name: FromPath[str], caller: TheCaller) -> Plugin:
    """Show one plugin: its options, its instances, and how each field maps to its engine's."""
    caller.require_a_role()
    found = await caller.platform.plugins.plugin(name)
    return found if await caller.may_everywhere(Action.POOLS) else _less_the_processes(found)


def _less_the_processes(plugin: Plugin) -> Plugin:
    """Return *plugin* without where its processes are: that concerns operators alone."""
    return msgspec.structs.replace(plugin, instances=(), processes=())


@post("/plugins", status_code=200, media_type="text/event-stream")
async def add(data: JSONBody[PluginFolder], caller: TheCaller, request: ApiRequest) -> ASGIApp:
    """Start a plugin from a folder of the server's machine: events ``check``, then ``plugin`` or ``problem``.

    One that runs already in an older version is upgraded: the new one takes over, then the old one leaves.
    """
    await caller.authorize_everywhere(Action.POOLS, data.directory)
    checks = await begun(caller.platform.plugins.host(data.directory, name=data.upgrades))
    return StreamAnswer(
        _added(caller, data, checks), "text/event-stream", request.app.state.stopping, events=True
    )


async def _added(
    caller: Caller, folder: PluginFolder, checks: AsyncGenerator[Check, None]
) -> AsyncGenerator[bytes, None]:
    name, last = "", None
    async with aclosing(checks):
        async for last in checks:
            name = name or last.detail.partition(" ")[0]
            yield event("check", last)
    if last is None or not last.ok:
        why = f"{last.step}: {last.detail}" if last else "nothing could be checked"
        raise ConflictError(
            f"The plugin in {folder.directory} does not serve; {why}.", remedy=last.remedy if last else ""
        )
    yield event("plugin", await caller.platform.plugins.plugin(name))


@get("/plugin-folders")
async def folders(caller: TheCaller) -> AllowedFolders:
    """List the folders of the server's machine that plugins may be started from."""
    await caller.authorize_everywhere(Action.POOLS, "plugin folders")
    return AllowedFolders(await caller.platform.plugins.folders())


@post("/plugin-folders")
async def allow(data: JSONBody[FolderWish], caller: TheCaller) -> AllowedFolder:
    """Let operators start plugins from a folder of the server's machine and those below it; an admin's to say."""
    await caller.authorize_everywhere(Action.MEMBERS, data.directory)
    return await caller.platform.plugins.allow(data.directory)


@delete("/plugin-folders")
async def disallow(caller: TheCaller, directory: FromQuery[str]) -> None:
    """Let no plugin be started from a folder any more; those that run go on until they end."""
    await caller.authorize_everywhere(Action.MEMBERS, directory)
    await caller.platform.plugins.disallow(directory)


@delete("/plugins/{name:str}")
async def remove(name: FromPath[str], caller: TheCaller, *, force: FromQuery[bool] = False) -> None:
    """Call a plugin no more and let it leave; refused while pools are of its kind, unless ``force``."""
    await caller.authorize_everywhere(Action.POOLS, name)
    await caller.platform.plugins.remove(name, force=force)


async def require_registrar(connection: ASGIConnection[Any, Any, Any, Any], _: BaseRouteHandler) -> None:
    """Let pass who may register this plugin: who has its key, or the process that the platform started for it."""
    platform: Platform = connection.app.state.platform
    name = connection.path_params["name"]
    own = await platform.plugins.plugin_of_key(key_in(connection))
    if own is None:
        who = await authenticate(connection)
        await platform.accounts.authorize_plugin(who, name)
    elif own != name:
        raise ForbiddenError(f"This key registers {own} alone.", remedy=f"Register as {own}.")
    else:
        who = Principal(user_id=UserId(""), name=f"plugin {own}", key_id="", memberships=())
        act_as(Actor(who.name))
    connection.scope["user"] = who


@put("/plugins/{name:str}/instances/{instance:str}")
async def register(
    name: FromPath[str], instance: FromPath[str], data: JSONBody[Registration], request: ApiRequest
) -> Heartbeat:
    """Register an instance of a plugin, and again with every heartbeat; one that is superseded should leave."""
    caller = provide_caller(request)
    return await caller.platform.plugins.register(name, instance, data)


@delete("/plugins/{name:str}/instances/{instance:str}")
async def goodbye(name: FromPath[str], instance: FromPath[str], request: ApiRequest) -> None:
    """Forget an instance that leaves."""
    caller = provide_caller(request)
    await caller.platform.plugins.dismiss(name, instance)


router = Router(
    "/", route_handlers=[plugins, plugin, add, remove, folders, allow, disallow], tags=["plugins"]
)
instances = Router(
    "/",
    route_handlers=[register, goodbye],
    guards=[require_registrar, known_parameters],
    security=[{"key": []}],
    tags=["plugins"],
)
