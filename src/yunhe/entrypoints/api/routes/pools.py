"""Pools: register, look at, check, drain, remove; and what they charge."""

from collections.abc import AsyncGenerator
from contextlib import aclosing

import msgspec
from litestar import Router, delete, get, patch, post, put
from litestar.params import FromPath, FromQuery, JSONBody
from litestar.types import ASGIApp

from yunhe.control.pools.model import Check, FactChanges, FactList, Pool, PoolSpec
from yunhe.entrypoints.api.caller import ApiRequest, Caller, TheCaller
from yunhe.entrypoints.api.streams import StreamAnswer, begun, event
from yunhe.entrypoints.wire import PoolList, PriceTerms
from yunhe.kernel.errors import ConflictError, FieldProblem, ForbiddenError, NotFoundError
from yunhe.kernel.ids import NodeId
from yunhe.kernel.places import Level
from yunhe.kernel.resources import Resources
from yunhe.scheduling.perception.model import ResourceGraph
from yunhe.trading.accounts.model import Action
from yunhe.trading.trades.model import PriceList


@post("/pools", status_code=200, media_type="text/event-stream")
async def add(data: JSONBody[PoolSpec], caller: TheCaller, request: ApiRequest) -> ASGIApp:
    """Register a pool: a stream of events ``check`` and then ``pool``, or ``problem``.

    The same pool again is a check of it.
    """
    await caller.authorize_everywhere(Action.POOLS, data.name)
    await _require_admin_for_options(caller, data)
    if data.prices is not None:
        await caller.authorize_everywhere(Action.PRICES, data.name)
        await caller.platform.trades.check_prices(data.prices)
    checks = await begun(caller.platform.pools.add(data))
    return StreamAnswer(
        _added(caller, data, checks), "text/event-stream", request.app.state.stopping, events=True
    )


async def _require_admin_for_options(caller: Caller, spec: PoolSpec) -> None:
    """Raise unless the caller may set these options: some run programs on the server, or read its files."""
    kinds = await caller.platform.plugins.plugins()
    held = {name for kind in kinds if kind.name == spec.kind for name in kind.admin_options}
    asked = sorted(held & set(spec.options))
    if asked:
        try:
            await caller.authorize_everywhere(Action.MEMBERS, f"{spec.name} {' '.join(asked)}")
        except ForbiddenError:
            raise ForbiddenError(
                f"Only an administrator sets {', '.join(asked)}: it runs programs on the server or reads its files.",
                remedy="Leave it out, or let an admin add the pool.",
                fields=tuple(
                    FieldProblem(f"options.{name}", "is an administrator's to set") for name in asked
                ),
            ) from None


async def _added(
    caller: Caller, spec: PoolSpec, checks: AsyncGenerator[Check, None]
) -> AsyncGenerator[bytes, None]:
    last: Check | None = None
    async with aclosing(checks):
        async for last in checks:
            yield event("check", last)
    if last is None or not last.ok:
        raise _not_added(spec, last)
    pool = await caller.platform.pools.pool(spec.name)
    if spec.prices is not None:
        await caller.platform.trades.publish_prices(pool.id, spec.prices)
    yield event("pool", pool)


def _not_added(spec: PoolSpec, failed: Check | None) -> ConflictError:
    if failed is None:
        return ConflictError(
            f"Pool {spec.name} was not added: nothing could be checked.", remedy="See yunhe doctor."
        )
    return ConflictError(f"Pool {spec.name} was not added: {failed.failure}", remedy=failed.remedy)


@get("/pools")
async def pools(caller: TheCaller, level: FromQuery[Level | None] = None) -> PoolList:
    """List every pool, or those at one level: end, edge or central."""
    found = await caller.platform.pools.pools() if caller.who.memberships else ()
    asked = tuple(pool for pool in found if level is None or _level(pool) is level)
    if not await caller.may_everywhere(Action.POOLS):
        asked = tuple(map(_less_the_way, asked))
    return PoolList(_with_reserved(asked, await caller.platform.orchestration.reserved()))


def _with_reserved(pools: tuple[Pool, ...], reserved: dict[NodeId, Resources]) -> tuple[Pool, ...]:
    """Return *pools* with what jobs hold on each node."""

    def told(pool: Pool) -> Pool:
        nodes = [
            msgspec.structs.replace(node, reserved=reserved[node.id]) if node.id in reserved else node
            for node in pool.nodes
        ]
        return msgspec.structs.replace(pool, nodes=tuple(nodes))

    return tuple(map(told, pools)) if reserved else pools


def _less_the_way(pool: Pool) -> Pool:
    """Return *pool* without how it is reached: that concerns operators alone."""
    return msgspec.structs.replace(pool, spec=msgspec.structs.replace(pool.spec, target="", options={}))


def _level(pool: Pool) -> Level | None:
    return None if pool.spec.place is None else pool.spec.place.level


@get("/pools/{pool:str}")
async def pool(pool: FromPath[str], caller: TheCaller) -> Pool:
    """Show one pool, by name or ID; how it is reached is shown to operators alone."""
    caller.require_a_role()
    found = await caller.platform.pools.pool(pool)
    (told,) = _with_reserved((found,), await caller.platform.orchestration.reserved())
    return told if await caller.may_everywhere(Action.POOLS) else _less_the_way(told)


@get("/pools/{pool:str}/facts")
async def facts(pool: FromPath[str], caller: TheCaller) -> FactList:
    """Show what is known of a pool and its nodes, each fact with its source and age, and whether decisions use it."""
    caller.require_a_role()
    return await caller.platform.perception.facts(pool)


@patch("/pools/{pool:str}/facts")
async def tell(pool: FromPath[str], data: JSONBody[FactChanges], caller: TheCaller) -> FactList:
    """Say what is so of a pool: speed, power, carbon, reliability, place, labels …; what is not said stays."""
    await caller.authorize_everywhere(Action.POOLS, pool)
    await caller.platform.pools.tell(pool, data)
    return await caller.platform.perception.facts(pool)


@post("/pools/{pool:str}/check", status_code=200, media_type="text/event-stream")
async def check(pool: FromPath[str], caller: TheCaller, request: ApiRequest) -> ASGIApp:
    """Say what works and what does not: a stream of events ``check`` and then ``pool``, or ``problem``."""
    await caller.authorize_everywhere(Action.POOLS, pool)
    checks = await begun(caller.platform.pools.check(pool))
    return StreamAnswer(
        _checked(caller, pool, checks), "text/event-stream", request.app.state.stopping, events=True
    )


async def _checked(
    caller: Caller, name: str, checks: AsyncGenerator[Check, None]
) -> AsyncGenerator[bytes, None]:
    async with aclosing(checks):
        async for found in checks:
            yield event("check", found)
    yield event("pool", await caller.platform.pools.pool(name))


@post("/pools/{pool:str}/drain", status_code=200)
async def drain(
    pool: FromPath[str], caller: TheCaller, *, on: FromQuery[bool] = True, stop: FromQuery[bool] = False
) -> Pool:
    """Take no new work on a pool (``on=true``), or take it again (``on=false``); with ``stop``, also stop what it has."""
    await caller.authorize_everywhere(Action.POOLS, pool)
    drained = await caller.platform.pools.drain(pool, on=on)
    if on and stop:
        await caller.platform.orchestration.stop_on_pool(drained.id)
    return drained


@post("/pools/{pool:str}/nodes/{node:str}/cordon", status_code=200)
async def cordon(
    pool: FromPath[str], node: FromPath[str], caller: TheCaller, *, on: FromQuery[bool] = True
) -> Pool:
    """Take no new work on one node of a pool (``on=true``), or take it again (``on=false``)."""
    await caller.authorize_everywhere(Action.POOLS, pool)
    return await caller.platform.pools.cordon(pool, node, on=on)


@get("/graph")
async def graph(caller: TheCaller, pool: FromQuery[str] = "") -> ResourceGraph:
    """Show how clusters, nodes and resources belong together, with what is in use; of one pool, or of all."""
    caller.require_a_role()
    return await caller.platform.perception.graph(pool)


@delete("/pools/{pool:str}")
async def remove(pool: FromPath[str], caller: TheCaller, *, force: FromQuery[bool] = False) -> None:
    """Forget a pool that has no work left; with ``force``, even if it has or does not answer."""
    await caller.authorize_everywhere(Action.POOLS, pool)
    await caller.platform.pools.remove(pool, force=force)


@get("/pools/{pool:str}/prices")
async def prices(pool: FromPath[str], caller: TheCaller) -> PriceList:
    """Show what a pool charges now."""
    caller.require_a_role()
    found = await caller.platform.pools.pool(pool)
    listed = await caller.platform.trades.price_list(found.id)
    if listed is None:
        raise NotFoundError(
            f"Nobody has said what {found.spec.name} charges.",
            remedy="An operator sets it: yunhe pool price, or PUT to this address.",
        )
    return listed


@put("/pools/{pool:str}/prices")
async def set_prices(pool: FromPath[str], data: JSONBody[PriceTerms], caller: TheCaller) -> PriceList:
    """Set what a pool charges from now on."""
    await caller.authorize_everywhere(Action.PRICES, pool)
    found = await caller.platform.pools.pool(pool)
    return await caller.platform.trades.publish_prices(found.id, data.high, data.tiers)


router = Router(
    "/",
    route_handlers=[add, pools, pool, facts, tell, check, drain, cordon, graph, remove, prices, set_prices],
    tags=["pools"],
)
