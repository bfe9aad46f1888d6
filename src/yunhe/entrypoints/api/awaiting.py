"""What a server answers while it waits for its database: that it waits, so that nobody takes it for dead."""

import anyio
from litestar import HttpMethod, Litestar, Response, get, route
from litestar.datastructures import State

from yunhe.entrypoints.api.problems import ERROR_HANDLERS
from yunhe.entrypoints.api.request_ids import with_request_ids
from yunhe.entrypoints.api.routes.platform import health
from yunhe.entrypoints.wire import Readiness
from yunhe.kernel.errors import DatabaseUnavailableError
from yunhe.runtime.modules import start_order

WAITING = "waiting for the database"


@get("/ready")
async def not_ready() -> Response[Readiness]:
    """Say that requests cannot be served yet, and why."""
    return Response(Readiness(ready=False, modules=dict.fromkeys(start_order(), WAITING)), status_code=503)


@route("/{path:path}", http_method=list(HttpMethod))
async def try_later() -> None:
    """Tell any other request to come again."""
    raise DatabaseUnavailableError("The server waits for its database.", remedy="Try again in a moment.")


def create_waiting_app() -> Litestar:
    """Return the API of a process that has no database yet."""
    app = Litestar(
        route_handlers=[health, not_ready, try_later],
        state=State({"stopping": anyio.Event()}, deep_copy=False),
        exception_handlers=ERROR_HANDLERS,
        openapi_config=None,
        logging_config=None,
    )
    app.asgi_handler = with_request_ids(app.asgi_handler)
    return app
