"""Registration: a plugin tells the platform where it is, again and again, and says goodbye."""

import logging
from collections.abc import Mapping
from typing import Literal

import anyio
import httpx
import msgspec

from yunhe.infrastructure.contract.manifest import Manifest

AGAIN_AFTER_S = 1.0
"""Until the platform answers, and whenever it does not."""
ANSWER_WITHIN_S = 5.0
GOODBYE_WITHIN_S = 3.0

log = logging.getLogger(__name__)


class Registered(msgspec.Struct, frozen=True):
    """What the platform answers a registration, which is also a heartbeat."""

    heartbeat_s: float
    state: Literal["active", "superseded"]


class Announcement(msgspec.Struct, frozen=True):
    """What a plugin tells of one of its instances."""

    manifest: Manifest
    address: str
    certificate: str
    token: str


class PlatformLink:
    """Keeps one instance known to a platform; a platform that is down is asked again for ever."""

    def __init__(self, environment: Mapping[str, str], announcement: Announcement, instance: str) -> None:
        base = environment["YUNHE_URL"].rstrip("/")
        self._url = f"{base}/v1/plugins/{announcement.manifest.name}/instances/{instance}"
        self._headers = {
            "Authorization": f"Bearer {environment.get('YUNHE_PLUGIN_KEY', '')}",
            "Content-Type": "application/json",
        }
        self._body = msgspec.json.encode(announcement)

    async def until_superseded(self) -> None:
        """Register and send heartbeats; return when another instance has taken over."""
        known = False
        async with httpx.AsyncClient(timeout=ANSWER_WITHIN_S) as client:
            while True:
                registered = await self._tell(client)
                if registered is None:
                    known = False
                    await anyio.sleep(AGAIN_AFTER_S)
                    continue
                if registered.state == "superseded":
                    log.info("another instance has taken over")
                    return
                if not known:
                    known = True
                    log.info("registered at %s", self._url)
                await anyio.sleep(registered.heartbeat_s)

    async def say_goodbye(self) -> None:
        """Let the platform send no more calls; it is not waited for long."""
        with anyio.move_on_after(GOODBYE_WITHIN_S):
            async with httpx.AsyncClient(timeout=GOODBYE_WITHIN_S) as client:
                try:
                    await client.delete(self._url, headers=self._headers)
                except httpx.HTTPError as error:
                    log.warning("could not say goodbye to the platform: %s", error)

    async def _tell(self, client: httpx.AsyncClient) -> Registered | None:
        try:
            answer = await client.put(self._url, content=self._body, headers=self._headers)
            if answer.is_success:
                return msgspec.json.decode(answer.content, type=Registered)
            problem = f"it answered {answer.status_code}: {answer.text[:300]}"
        except (httpx.HTTPError, msgspec.DecodeError) as error:
            problem = str(error) or type(error).__name__
        log.warning("the platform does not take the registration: %s", problem)
        return None
