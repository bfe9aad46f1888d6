"""The REST API: each route gives its order, or puts its question, to the sub-module that owns the row."""

import anyio
from litestar import Litestar, Router
from litestar.datastructures import State
from litestar.di import Provide
from litestar.types import ControllerRouterHandler

from yunhe.entrypoints.api import document
from yunhe.entrypoints.api.bodies import BODY_LIMIT_BYTES, StrictRequest
from yunhe.entrypoints.api.caller import known_parameters, provide_caller, require_key
from yunhe.entrypoints.api.problems import ERROR_HANDLERS
from yunhe.entrypoints.api.rates import RequestRates
from yunhe.entrypoints.api.request_ids import with_request_ids
from yunhe.entrypoints.api.routes import (
    accounts,
    costs,
    job_exec,
    job_forward,
    job_streams,
    jobs,
    metrics,
    plans,
    platform,
    plugins,
    pools,
    uploads,
)
from yunhe.runtime.platform import Platform
from yunhe.runtime.settings import ProcessRole


def create_app(of: Platform) -> Litestar:
    """Return the API of one process; ``state.stopping`` set ends its streams."""
    worker = of.settings.role is ProcessRole.WORKER
    routes: list[ControllerRouterHandler] = [platform.router, metrics.router]
    if not worker:
        routes += [
            document.router,
            _version_1(of.settings.upload_limit_bytes),
            Router("/v1", route_handlers=[job_exec.router, job_forward.router, plugins.instances]),
        ]
    app = Litestar(
        route_handlers=routes,
        state=State(
            {"platform": of, "stopping": anyio.Event(), "rates": RequestRates(of.settings.limits)},
            deep_copy=False,
        ),
        exception_handlers=ERROR_HANDLERS,
        openapi_config=None if worker else document.CONFIG,
        request_class=StrictRequest,
        request_max_body_size=BODY_LIMIT_BYTES,
        logging_config=None,
    )
    app.asgi_handler = with_request_ids(app.asgi_handler)  # outside of routing: a 404 has an ID too
    return app


def _version_1(upload_limit_bytes: int) -> Router:
    return Router(
        "/v1",
        route_handlers=[
            plans.router,
            jobs.router,
            job_streams.router,
            uploads.router(upload_limit_bytes),
            pools.router,
            plugins.router,
            accounts.router,
            costs.router,
        ],
        guards=[require_key, known_parameters],
        dependencies={"caller": Provide(provide_caller, sync_to_thread=False)},
        security=[{"key": []}],
    )
