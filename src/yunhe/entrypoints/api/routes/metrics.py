"""The metrics of this process, for Prometheus; a key of an operator of the platform opens them."""

from typing import Any

from litestar import Response, Router, get
from litestar.connection import ASGIConnection
from litestar.datastructures import State
from litestar.handlers import BaseRouteHandler

from yunhe.entrypoints.api.caller import authenticate, known_parameters
from yunhe.runtime.platform import Platform
from yunhe.trading.accounts.model import EVERY_PROJECT, Action

TEXT = "text/plain; version=0.0.4"
"""Prometheus's text form; the character set is added by the framework."""


async def require_operator(connection: ASGIConnection[Any, Any, Any, Any], _: BaseRouteHandler) -> None:
    """Let pass who may see how the platform itself does."""
    platform: Platform = connection.app.state.platform
    who = await authenticate(connection)
    await platform.accounts.authorize(who, Action.METRICS, EVERY_PROJECT, "metrics")


@get("/metrics", media_type="text/plain", security=[{"key": []}])
async def metrics(state: State) -> Response[bytes]:
    """Return what this process knows of itself, in Prometheus's text form."""
    platform: Platform = state.platform
    return Response(await platform.metrics.exposition(), media_type=TEXT)


router = Router("/", route_handlers=[metrics], guards=[require_operator, known_parameters], tags=["platform"])
