"""A kind of engine: how the platform finds out that it can connect, and connects."""

import time
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from typing import Protocol

import msgspec

from yunhe.infrastructure.contract.engine import Engine


class Check(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One step of connecting to or checking a pool."""

    step: str
    ok: bool
    detail: str = ""
    remedy: str = ""
    seconds: float = 0.0

    @property
    def failure(self) -> str:
        """What a check that failed says, as a sentence or two."""
        return f'the check "{self.step}" failed. {self.detail.rstrip(". ")}'.strip().rstrip(".") + "."


async def timed(checks: AsyncIterator[Check]) -> AsyncIterator[Check]:
    """Yield *checks*, each with how long it took."""
    began = time.monotonic()
    async for check in checks:
        now = time.monotonic()
        yield msgspec.structs.replace(check, seconds=now - began)
        began = now


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """Where an engine is, in the words of its kind."""

    address: str = ""
    options: dict[str, str] = {}


class Kind(Protocol):
    """Connects to engines of one kind; which options a target may have is in its manifest."""

    def onboard(self, target: Target) -> AsyncIterator[Check]:
        """Yield each step of getting an engine ready there; the first that fails is the last."""
        ...

    def connect(self, target: Target) -> AbstractAsyncContextManager[Engine]:
        """Hold a connection that recovers by itself; raise ``PoolUnreachableError`` if there is none to begin with."""
        ...
