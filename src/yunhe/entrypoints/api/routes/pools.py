"""Pools: register, look at, check, drain, remove; and what they charge."""

from collections.abc import AsyncGenerator
from contextlib import aclosing

from litestar import Router, delete, get, post, put
from litestar.params import FromPath, FromQuery, JSONBody
from litestar.types import ASGIApp

from yunhe.control.pools.model import Check, Pool, PoolSpec
from yunhe.entrypoints.api.caller import ApiRequest, Caller, TheCaller
from yunhe.entrypoints.api.streams import StreamAnswer, begun, event
from yunhe.entrypoints.wire import PoolList, PriceTerms
from yunhe.kernel.errors import ConflictError, NotFoundError
from yunhe.kernel.places import Level
from yunhe.scheduling.perception.model import ResourceGraph
from yunhe.trading.accounts.model import Action
from yunhe.trading.trades.model import PriceList


@post("/pools", status_code=200, media_type="text/event-stream")
async def add(data: JSONBody[PoolSpec], caller: TheCaller, request: ApiRequest) -> ASGIApp:
    """Register a pool: a stream of events ``check`` and then ``pool``, or ``problem``.

    The same pool again is a check of it.
    """
    await caller.authorize_everywhere(Action.POOLS, data.name)
    if data.prices is not None:
        await caller.authorize_everywhere(Action.PRICES, data.name)
        await caller.platform.trades.check_prices(data.prices)
    checks = await begun(caller.platform.pools.add(data))
    return StreamAnswer(
        _added(caller, data, checks), "text/event-stream", request.app.state.stopping, events=True
    )


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
    found = await caller.platform.pools.pools()
    return PoolList(tuple(pool for pool in found if level is None or _level(pool) is level))


def _level(pool: Pool) -> Level | None:
    return None if pool.spec.place is None else pool.spec.place.level


@get("/pools/{pool:str}")
async def pool(pool: FromPath[str], caller: TheCaller) -> Pool:
    """Show one pool, by name or ID."""
    return await caller.platform.pools.pool(pool)


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
async def drain(pool: FromPath[str], caller: TheCaller, *, on: FromQuery[bool] = True) -> Pool:
    """Take no new work on a pool (``on=true``), or take it again (``on=false``)."""
    await caller.authorize_everywhere(Action.POOLS, pool)
    return await caller.platform.pools.drain(pool, on=on)


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
    return await caller.platform.perception.graph(pool)


@delete("/pools/{pool:str}")
async def remove(pool: FromPath[str], caller: TheCaller, *, force: FromQuery[bool] = False) -> None:
    """Forget a pool that has no work left; with ``force``, even if it has or does not answer."""
    await caller.authorize_everywhere(Action.POOLS, pool)
    await caller.platform.pools.remove(pool, force=force)


@get("/pools/{pool:str}/prices")
async def prices(pool: FromPath[str], caller: TheCaller) -> PriceList:
    """Show what a pool charges now."""
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
    route_handlers=[add, pools, pool, check, drain, cordon, graph, remove, prices, set_prices],
    tags=["pools"],
)
