"""Each request has an ID: the caller's own when it is sane, else a new one; every answer carries it."""

import re
import time

from litestar.datastructures import MutableScopeHeaders
from litestar.types import ASGIApp, Message, Receive, Scope, Send

from yunhe.kernel.ids import new_id

HEADER = "X-Request-Id"
_KEY = "yunhe.request_id"
_SANE = re.compile(rb"[A-Za-z0-9._:-]{1,64}")


def request_id_of(scope: Scope) -> str:
    """Return the ID of the request that *scope* belongs to."""
    found: object = scope["state"].get(_KEY, "")
    return str(found)


def with_request_ids(app: ASGIApp) -> ASGIApp:
    """Return *app* with an ID on each request and answer."""

    async def numbered(scope: Scope, receive: Receive, send: Send) -> None:
        given = next((value for name, value in scope["headers"] if name == b"x-request-id"), b"")
        request_id = given.decode() if _SANE.fullmatch(given) else new_id("req", time.time())
        scope.setdefault("state", {})[_KEY] = request_id

        async def send_numbered(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableScopeHeaders.from_message(message)[HEADER] = request_id
            await send(message)

        await app(scope, receive, send_numbered)

    return numbered
