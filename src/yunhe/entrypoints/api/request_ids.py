"""Each request has an ID, the caller's own when it is sane; its answer and its lines of the log carry it.

When it is over it has one line in the log and is counted and timed, by the template of its route.
"""

import logging
import re
import time

from litestar.datastructures import MutableScopeHeaders
from litestar.types import ASGIApp, Message, Receive, Scope, Send
from prometheus_client import Counter, Histogram

from yunhe.kernel.buckets import TokenBuckets
from yunhe.kernel.ids import new_id
from yunhe.observability.context import log_ids
from yunhe.observability.metrics import REGISTRY

HEADER = "X-Request-Id"
QUIET_ROUTES = frozenset({"/health", "/ready", "/metrics"})
"""Monitors ask these all the time: their successes are logged at level debug."""
_KEY = "yunhe.request_id"
_SANE = re.compile(rb"[A-Za-z0-9._:-]{1,64}")
_STRANGERS = TokenBuckets(per_s=1.0, burst=100.0)
"""Lines for requests without a key that opens something: a hundred, then one a second."""
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})

_REQUESTS = Counter(
    "yunhe_http_requests_total", "Requests answered.", ["method", "route", "status"], registry=REGISTRY
)
_DURATION = Histogram(
    "yunhe_http_request_duration_seconds",
    "How long requests took; one that is followed takes as long as its caller stays.",
    ["method", "route"],
    registry=REGISTRY,
)

log = logging.getLogger("yunhe.access")


def request_id_of(scope: Scope) -> str:
    """Return the ID of the request that *scope* belongs to."""
    found: object = scope["state"].get(_KEY, "")
    return str(found)


def with_request_ids(app: ASGIApp) -> ASGIApp:
    """Return *app* with an ID on each request and answer, and a line for each."""

    async def numbered(scope: Scope, receive: Receive, send: Send) -> None:
        given = next((value for name, value in scope["headers"] if name == b"x-request-id"), b"")
        request_id = given.decode() if _SANE.fullmatch(given) else new_id("req", time.time())
        scope.setdefault("state", {})[_KEY] = request_id
        status = 500  # unless an answer is begun

        async def send_numbered(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                MutableScopeHeaders.from_message(message)[HEADER] = request_id
            elif message["type"] == "websocket.accept":
                status = 101
            await send(message)

        began = time.perf_counter()
        with log_ids(request_id=request_id):
            try:
                await app(scope, receive, send_numbered)
            finally:
                _note(scope, status, time.perf_counter() - began)

    return numbered


def _note(scope: Scope, status: int, took_s: float) -> None:
    """Log, count and time a request that is over; what no route matches is counted together."""
    template = str(scope.get("path_template") or "")
    route = template or "unmatched"
    method = scope["method"] if scope["type"] == "http" else "GET"
    method = method if method in _METHODS else "other"
    _REQUESTS.labels(method, route, status).inc()
    _DURATION.labels(method, route).observe(took_s)
    level = logging.DEBUG if route in QUIET_ROUTES and status < 400 else logging.INFO
    if "user" not in scope and level > logging.DEBUG and _STRANGERS.wait_s("", time.monotonic()):
        return  # counted above; who has no key does not fill the log
    facts = {"method": method, "route": route, "status": status, "duration_ms": round(took_s * 1000, 1)}
    job_id = scope.get("path_params", {}).get("job_id")
    log.log(level, "request", extra=facts | ({"job_id": job_id} if job_id else {}))
