"""One connection to one API server: authenticated, bounded in time, patient where the server asks for patience."""

import ssl
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Any, Self

import anyio
import httpx
import msgspec

from yunhe.infrastructure.kubernetes.api.answers import OverloadedError, error_of, read_status
from yunhe.infrastructure.kubernetes.api.connections import ConnectionPool
from yunhe.infrastructure.kubernetes.api.credentials import Credentials
from yunhe.infrastructure.kubernetes.api.kubeconfig import Access
from yunhe.infrastructure.kubernetes.api.limiter import Limiter
from yunhe.kernel.errors import PoolUnreachableError, UnauthenticatedError

REQUEST_WITHIN_S = 30.0
CONNECT_WITHIN_S = 10.0
TIMEOUT: dict[str, float | None] = {
    "connect": CONNECT_WITHIN_S,
    "read": REQUEST_WITHIN_S,
    "write": REQUEST_WITHIN_S,
    "pool": REQUEST_WITHIN_S,
}
FIELD_MANAGER = "yunhe"

JSON = "application/json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"

Params = Mapping[str, str | list[str]]


class Api:
    """Speaks to one API server; enter it before use."""

    def __init__(self, access: Access, *, limiter: Limiter | None = None) -> None:
        self.access = access
        self.limiter = limiter or Limiter()
        self.credentials = Credentials(access)
        self.tls: ssl.SSLContext | None = None
        self._pool: ConnectionPool | None = None
        self._extensions = {"sni_hostname": access.tls_server_name} if access.tls_server_name else {}

    async def __aenter__(self) -> Self:
        self.tls = await self.credentials.tls()
        self._pool = ConnectionPool(self.tls, self.access.proxy_url)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Let go of the connections."""
        pool, self._pool = self._pool, None
        if pool is not None:
            await pool.aclose()

    # Verbs

    async def get(
        self,
        path: str,
        params: Params | None = None,
        *,
        accept: str = JSON,
        within_s: float = REQUEST_WITHIN_S,
    ) -> bytes:
        """Read one object or list."""
        request = self._request("GET", path, params, headers={"accept": accept})
        return await self._answer(request, within_s)

    async def create(self, path: str, body: Any, *, dry_run: bool = False) -> bytes:
        """Create an object that must not exist yet: its name is the claim."""
        params = {"fieldManager": FIELD_MANAGER, **({"dryRun": "All"} if dry_run else {})}
        return await self._answer(self._request("POST", path, params, body=body))

    async def apply(self, path: str, body: Any) -> bytes:
        """Make an object's fields as we want them, and leave to others what is theirs."""
        params = {"fieldManager": FIELD_MANAGER}
        return await self._answer(self._request("PATCH", path, params, body=body, content_type=APPLY_PATCH))

    async def patch(self, path: str, body: Any, *, content_type: str = MERGE_PATCH) -> bytes:
        """Change some fields; a ``resourceVersion`` in *body* is a precondition."""
        params = {"fieldManager": FIELD_MANAGER}
        return await self._answer(self._request("PATCH", path, params, body=body, content_type=content_type))

    async def delete(self, path: str, *, uid: str = "", grace_s: int | None = None) -> bytes:
        """Delete an object, only if it is still the one with *uid*."""
        body: dict[str, Any] = {"propagationPolicy": "Background"}
        if uid:
            body["preconditions"] = {"uid": uid}
        if grace_s is not None:
            body["gracePeriodSeconds"] = grace_s
        return await self._answer(self._request("DELETE", path, None, body=body))

    @asynccontextmanager
    async def stream(
        self, path: str, params: Params | None = None, *, quiet_s: float | None
    ) -> AsyncGenerator[httpx.Response]:
        """Hold an answer that goes on; a silence longer than *quiet_s* raises ``PoolUnreachableError``."""
        request = self._request("GET", path, params, headers={"accept-encoding": "identity"})
        request.extensions["timeout"] = TIMEOUT | {"read": quiet_s}
        async with self.limiter.place():
            response = await self._send(request, stream=True)
        try:
            if response.status_code != 200:
                await self._refuse(request, response)
            yield response
        except httpx.RequestError as error:
            raise self._unreachable(error) from None
        finally:
            await response.aclose()

    # How

    def _request(
        self,
        method: str,
        path: str,
        params: Params | None,
        *,
        body: Any = None,
        content_type: str = JSON,
        headers: dict[str, str] | None = None,
    ) -> httpx.Request:
        own = {"accept": JSON, "accept-encoding": "gzip", "user-agent": FIELD_MANAGER} | (headers or {})
        content = None
        if body is not None:
            content = msgspec.json.encode(body)
            own["content-type"] = content_type
        extensions = {"timeout": TIMEOUT, **self._extensions}
        url = f"{self.access.server}{path}"
        return httpx.Request(method, url, params=params, content=content, headers=own, extensions=extensions)

    async def _answer(self, request: httpx.Request, within_s: float = REQUEST_WITHIN_S) -> bytes:
        """Send until there is an answer: a 429 did nothing and may be repeated, anything else may not."""
        try:
            with anyio.fail_after(within_s):
                while True:
                    try:
                        return await self._once(request)
                    except OverloadedError as error:
                        self.limiter.overloaded(error.retry_after_s)
        except TimeoutError:
            raise PoolUnreachableError(
                f"{self.access.server} did not answer within {within_s:g} s."
            ) from None

    async def _once(self, request: httpx.Request) -> bytes:
        async with self.limiter.place():
            response = await self._send(request, stream=False)
        if response.status_code >= 300:
            await self._refuse(request, response)
        self.limiter.went_well()
        return response.content

    async def _send(self, request: httpx.Request, *, stream: bool) -> httpx.Response:
        for again in (True, False):
            token = await self.credentials.token()
            if token:
                request.headers["authorization"] = f"Bearer {token}"
            try:
                response = await self._through_a_lane(request)
                if not stream:
                    await response.aread()
            except httpx.RequestError as error:
                raise self._unreachable(error) from None
            if response.status_code == 401 and again and self.credentials.refused():
                await response.aclose()
                continue
            return response
        raise UnauthenticatedError("The API server refuses fresh credentials.")

    async def _through_a_lane(self, request: httpx.Request) -> httpx.Response:
        if self._pool is None:
            raise PoolUnreachableError("The connection is closed.")
        response = await self._pool.handle_async_request(request)
        response.request = request
        return response

    async def _refuse(self, request: httpx.Request, response: httpx.Response) -> None:
        body = await response.aread()
        where = f"{request.method} {request.url.path}"
        raise error_of(read_status(body, response.status_code), where, response.headers)

    def _unreachable(self, error: httpx.RequestError) -> PoolUnreachableError:
        words = str(error) or type(error).__name__
        return PoolUnreachableError(f"{self.access.server} cannot be reached: {words}.")
