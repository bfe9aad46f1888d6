"""Ray's dashboard over HTTP: each call answers or raises within its time, in our words."""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import TypeVar

import httpx
import msgspec

from yunhe.infrastructure.ray.target import RayTarget
from yunhe.infrastructure.ray.wire import (
    FilesAnswer,
    NodesAnswer,
    RayJob,
    RayNode,
    RayNodeStats,
    RaySubmission,
    RayVersion,
    SummaryAnswer,
)
from yunhe.kernel.errors import (
    ForbiddenError,
    NotFoundError,
    PoolUnreachableError,
    TooLargeError,
    UnauthenticatedError,
    UnsupportedError,
)

CALL_WITHIN_S = 30.0
UPLOAD_WITHIN_S = 300.0
MAX_PACKAGE_BYTES = 100 * 1024 * 1024
"""What Ray's dashboard takes in one request."""
MOST_NODES = 10_000

_Answer = TypeVar("_Answer")


class RayClient:
    """Calls of one dashboard."""

    def __init__(self, target: RayTarget, transport: httpx.AsyncBaseTransport | None = None) -> None:
        self.url = target.url
        self._http = httpx.AsyncClient(
            base_url=target.url,
            headers=target.headers(),
            verify=target.verify(),
            timeout=CALL_WITHIN_S,
            transport=transport,
        )

    async def close(self) -> None:
        """Let go of the connections."""
        await self._http.aclose()

    async def version(self) -> RayVersion:
        """Return what answers there; refuse what is not a Ray dashboard."""
        response = await self._send("GET", "/api/version")
        if response.status_code != 404:
            self._check(response)
        try:
            return msgspec.json.decode(response.content, type=RayVersion)
        except msgspec.MsgspecError:
            raise UnsupportedError(
                f"What answers at {self.url} is not a Ray dashboard.",
                remedy="Give the address that ray start --head prints for the dashboard, port 8265 as a rule.",
            ) from None

    async def asks_for_token(self) -> bool:
        """Return whether somebody without a token is turned away."""
        request = self._http.build_request("GET", "/api/jobs/")
        request.headers.pop("Authorization", None)
        try:
            return (await self._http.send(request)).status_code in (401, 403)
        except httpx.TransportError as error:
            raise self._unreachable(error) from error

    # Jobs

    async def jobs(self) -> list[RayJob]:
        """Return every job that Ray knows."""
        return _decode(await self._call("GET", "/api/jobs/"), list[RayJob])

    async def submit(self, submission: RaySubmission) -> bool:
        """Submit a job; return False if its ID is taken, which changes nothing."""
        response = await self._send("POST", "/api/jobs/", content=msgspec.json.encode(submission))
        if response.is_error and "already exists" in response.text:
            return False
        self._check(response)
        return True

    async def stop(self, submission_id: str) -> None:
        """Have Ray signal a job; one that has ended is left alone."""
        response = await self._send("POST", f"/api/jobs/{submission_id}/stop")
        if response.status_code != 404:
            self._check(response)

    async def delete(self, submission_id: str) -> None:
        """Have Ray forget an ended job."""
        response = await self._send("DELETE", f"/api/jobs/{submission_id}")
        if response.status_code != 404:
            self._check(response)

    # Packages

    async def put_package(self, name: str, data: bytes) -> None:
        """Keep *data* in Ray under *name*, unless it is there; Ray drops what no job uses within ten minutes."""
        if len(data) > MAX_PACKAGE_BYTES:
            raise TooLargeError(
                f"A package of {len(data)} bytes is over what Ray's dashboard takes, {MAX_PACKAGE_BYTES}.",
                remedy="Leave large data out of what is sent, and have the task fetch it.",
            )
        if not await self.touch_package(name):
            self._check(
                await self._send("PUT", f"/api/packages/gcs/{name}", content=data, timeout_s=UPLOAD_WITHIN_S)
            )

    async def touch_package(self, name: str) -> bool:
        """Return whether Ray has the package; asking keeps it for another ten minutes."""
        response = await self._send("GET", f"/api/packages/gcs/{name}")
        if response.status_code == 404:
            return False
        self._check(response)
        return True

    # Nodes

    async def nodes(self) -> list[RayNode]:
        """Return the nodes with what Ray may give away on them."""
        params = {"detail": "1", "limit": str(MOST_NODES)}
        return _decode(await self._call("GET", "/api/v0/nodes", params), NodesAnswer).nodes

    async def stats(self) -> list[RayNodeStats]:
        """Return what is measured on each node."""
        response = await self._call("GET", "/nodes", {"view": "summary"})
        return _decode(response, SummaryAnswer).data.summary

    # Files below the log directory of a node

    async def list_files(self, node_id: str, pattern: str) -> list[str]:
        """Return the names that match *pattern*; those of directories end in a slash."""
        response = await self._call("GET", "/api/v0/logs", {"node_id": node_id, "glob": pattern})
        answer = _decode(response, FilesAnswer)
        return sorted(name for names in answer.data.result.values() for name in names)

    async def read_file(self, node_id: str, name: str, *, lines: int = -1) -> bytes:
        """Return a file, or its last *lines*; raise ``NotFoundError`` if it or its node is not there."""
        async with self.stream_file(node_id, name, lines=lines) as chunks:
            return b"".join([chunk async for chunk in chunks])

    @asynccontextmanager
    async def stream_file(
        self, node_id: str, name: str, *, lines: int = -1
    ) -> AsyncGenerator[AsyncIterator[bytes]]:
        """Hold the bytes of a file as they come."""
        params = {
            "node_id": node_id,
            "filename": name,
            "lines": str(lines),
            "timeout": str(int(CALL_WITHIN_S)),
        }
        try:
            async with self._http.stream("GET", "/api/v0/logs/file", params=params) as response:
                if response.is_error and await response.aread():
                    self._check_file(response)
                # An error without a word is how older dashboards answer for an empty file.
                yield response.aiter_bytes()
        except httpx.TransportError as error:
            raise self._unreachable(error) from error

    def _check_file(self, response: httpx.Response) -> None:
        if "not found" in response.text or "doesn't exist" in response.text:
            raise NotFoundError(response.text)
        self._check(response)

    # Calling

    async def _call(self, method: str, path: str, params: dict[str, str] | None = None) -> httpx.Response:
        response = await self._send(method, path, params=params)
        self._check(response)
        return response

    async def _send(
        self,
        method: str,
        path: str,
        *,
        params: dict[str, str] | None = None,
        content: bytes | None = None,
        timeout_s: float = CALL_WITHIN_S,
    ) -> httpx.Response:
        headers = {"Content-Type": "application/json"} if method == "POST" else {}
        try:
            return await self._http.request(
                method, path, params=params, content=content, headers=headers, timeout=timeout_s
            )
        except httpx.TransportError as error:
            raise self._unreachable(error) from error

    def _unreachable(self, error: httpx.TransportError) -> PoolUnreachableError:
        words = str(error).rstrip(".") or type(error).__name__
        return PoolUnreachableError(
            f"The Ray dashboard at {self.url} did not answer: {words}.",
            remedy="Check the address and that the dashboard listens there (ray start --head --dashboard-host=0.0.0.0).",
        )

    def _check(self, response: httpx.Response) -> None:
        if not response.is_error:
            return
        if response.status_code == 401:
            raise UnauthenticatedError(
                f"Ray at {self.url} asks for a token.",
                remedy="Write the cluster's token into a file and give it with --option token_file=FILE.",
            )
        if response.status_code == 403:
            raise self._forbidden(response)
        words = response.text.strip().splitlines()[-1:] or [response.reason_phrase]
        if response.status_code == 413:
            raise TooLargeError(f"Ray refuses the size of a request: {words[0]}")
        if response.status_code >= 500:
            raise PoolUnreachableError(f"Ray failed to answer: {words[0]}")
        raise UnsupportedError(f"Ray refuses a request with {response.status_code}: {words[0]}")

    def _forbidden(self, response: httpx.Response) -> ForbiddenError:
        """Tell who may not look from who may not act: Ray's own token opens all or nothing."""
        if response.request.method in ("GET", "HEAD"):
            return ForbiddenError(
                f"Ray at {self.url} refuses our token.",
                remedy="Write the token that the cluster was started with (RAY_AUTH_TOKEN) into the token_file.",
            )
        return ForbiddenError(
            f"Ray at {self.url} lets us look, but we may not {response.request.method} {response.request.url.path}.",
            remedy="Have whoever keeps the proxy before the dashboard let us submit jobs, or give the dashboard's own"
            " address.",
        )


def _decode(response: httpx.Response, kind: type[_Answer]) -> _Answer:
    try:
        return msgspec.json.decode(response.content, type=kind)
    except msgspec.MsgspecError as error:
        path = response.request.url.path
        raise UnsupportedError(f"Ray's answer to {path} is not one we know: {error}.") from None
