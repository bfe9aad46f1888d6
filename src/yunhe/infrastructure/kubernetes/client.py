"""One connection to one API server: authenticated, bounded in time, patient where the server asks for patience."""

import ssl
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Any, Self

import anyio
import httpx
import msgspec

from yunhe.infrastructure.kubernetes.answers import OverloadedError, error_of, read_status
from yunhe.infrastructure.kubernetes.credentials import Credentials
from yunhe.infrastructure.kubernetes.kubeconfig import Access
from yunhe.infrastructure.kubernetes.limiter import Limiter
from yunhe.kernel.errors import PoolUnreachableError, UnauthenticatedError

REQUEST_WITHIN_S = 30.0
CONNECT_WITHIN_S = 10.0
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
        self._client: httpx.AsyncClient | None = None
        self._extensions = {"sni_hostname": access.tls_server_name} if access.tls_server_name else {}

    async def __aenter__(self) -> Self:
        self.tls = await self.credentials.tls()
        self._client = httpx.AsyncClient(
            base_url=self.access.server,
            verify=self.tls or True,
            proxy=self.access.proxy_url or None,
            trust_env=False,
            timeout=httpx.Timeout(REQUEST_WITHIN_S, connect=CONNECT_WITHIN_S),
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=None, keepalive_expiry=60.0),
            headers={"accept": JSON, "user-agent": FIELD_MANAGER},
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._client is not None:
            await self._client.aclose()

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
        request.extensions["timeout"] = httpx.Timeout(REQUEST_WITHIN_S, read=quiet_s).as_dict()
        async with self.limiter.place():
            response = await self._send(request, stream=True)
        try:
            if response.status_code != 200:
                await self._refuse(request, response)
            yield response
        except httpx.TransportError as error:
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
        if self._client is None:
            raise PoolUnreachableError("The connection is closed.")
        content = None if body is None else msgspec.json.encode(body)
        own = headers or {}
        if content is not None:
            own["content-type"] = content_type
        return self._client.build_request(
            method, path, params=params, content=content, headers=own, extensions=dict(self._extensions)
        )

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
        assert self._client is not None  # noqa: S101 - _request has refused a closed connection
        for again in (True, False):
            token = await self.credentials.token()
            if token:
                request.headers["authorization"] = f"Bearer {token}"
            try:
                response = await self._client.send(request, stream=stream)
            except httpx.TransportError as error:
                raise self._unreachable(error) from None
            if response.status_code == 401 and again and self.credentials.refused():
                await response.aclose()
                continue
            return response
        raise UnauthenticatedError("The API server refuses fresh credentials.")

    async def _refuse(self, request: httpx.Request, response: httpx.Response) -> None:
        body = await response.aread()
        where = f"{request.method} {request.url.path}"
        raise error_of(read_status(body, response.status_code), where, response.headers)

    def _unreachable(self, error: httpx.TransportError) -> PoolUnreachableError:
        words = str(error) or type(error).__name__
        return PoolUnreachableError(f"{self.access.server} cannot be reached: {words}.")
