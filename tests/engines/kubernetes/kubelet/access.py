"""The test kubelet's way to the API server."""

import json
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import httpx
import yaml

Object = dict[str, Any]
STRATEGIC = {"content-type": "application/strategic-merge-patch+json"}
RETRY_S = 0.2


class Access:
    """Calls that go on trying while the API server is away: a node outlives its restarts."""

    def __init__(self, kubeconfig: Path) -> None:
        content = yaml.safe_load(kubeconfig.read_text())
        cluster, user = content["clusters"][0]["cluster"], content["users"][0]["user"]
        context = ssl.create_default_context(cafile=cluster["certificate-authority"])
        context.load_cert_chain(user["client-certificate"], user["client-key"])
        self._client = httpx.AsyncClient(
            base_url=cluster["server"],
            verify=context,
            timeout=httpx.Timeout(10.0),
            limits=httpx.Limits(max_connections=None),
            trust_env=False,
        )

    async def call(
        self, method: str, path: str, body: Object | None = None, headers: dict[str, str] | None = None
    ) -> httpx.Response:
        """Return the answer, whatever it says; wait for a server that is away or asks for patience."""
        while True:
            try:
                answer = await self._client.request(method, path, json=body, headers=headers)
            except httpx.TransportError:
                await anyio.sleep(RETRY_S)
                continue
            if answer.status_code not in (429, 500, 503):
                if answer.status_code in (400, 403, 422):
                    print(f"{method} {path}: {answer.text}", flush=True)
                return answer
            await anyio.sleep(RETRY_S)

    async def get(self, path: str) -> Object | None:
        """Return an object, or nothing where there is none."""
        answer = await self.call("GET", path)
        return None if answer.status_code == 404 else answer.raise_for_status().json()

    async def changes(self, path: str, selector: str) -> AsyncIterator[tuple[str, Object]]:
        """Yield ``SYNC`` with all there is whenever that was read anew, then every change; never end."""
        while True:
            whole = (await self.call("GET", f"{path}?{selector}")).raise_for_status().json()
            yield "SYNC", whole
            version = whole["metadata"]["resourceVersion"]
            try:
                async for kind, thing in self._watch(f"{path}?{selector}&watch=1&resourceVersion={version}"):
                    if kind == "ERROR":
                        break
                    yield kind, thing
            except httpx.TransportError:
                await anyio.sleep(RETRY_S)

    async def _watch(self, path: str) -> AsyncIterator[tuple[str, Object]]:
        async with self._client.stream("GET", path, timeout=httpx.Timeout(10.0, read=None)) as answer:
            if answer.status_code != 200:
                return
            async for line in answer.aiter_lines():
                event = json.loads(line)
                yield event["type"], event["object"]

    async def close(self) -> None:
        """Let go of the connections."""
        await self._client.aclose()
