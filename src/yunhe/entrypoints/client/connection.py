"""Sending calls: errors come back as errors, and what may be repeated is repeated."""

import random
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager
from typing import Any, TypeVar

import msgspec

from yunhe.entrypoints.client.errors import error_of, unreachable
from yunhe.entrypoints.client.sse import ServerEvent, parse_events
from yunhe.entrypoints.client.transport import (
    Answer,
    ApiCall,
    NoConnectionError,
    Transport,
    TransportError,
)
from yunhe.kernel.backoff import Backoff
from yunhe.kernel.errors import TooManyRequestsError

T = TypeVar("T")

FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 5.0
REPEATABLE = frozenset({"GET", "HEAD", "PUT", "DELETE"})


class RetryPolicy:
    """How long to keep trying, and how long to pause before the next try."""

    def __init__(self, budget_s: float) -> None:
        self._left_s = budget_s
        self._backoff = Backoff(FIRST_PAUSE_S, LONGEST_PAUSE_S)

    def next_pause_s(self, at_least_s: float = 0.0) -> float | None:
        """Return how long to wait before another try; None: it has been long enough, or would be."""
        if self._left_s <= at_least_s:
            return None
        pause_s = self._backoff.next_s() * random.uniform(0.75, 1.25)  # noqa: S311 - spreads clients, guards nothing
        pause_s = max(pause_s, at_least_s)
        self._left_s -= pause_s
        return pause_s


class ApiConnection:
    """A server, reached over a transport."""

    def __init__(self, transport: Transport, url: str, patience_s: float) -> None:
        self.transport = transport
        self.url = url
        self._patience_s = patience_s

    async def ask(self, call: ApiCall, kind: type[T], *, repeatable: bool = False) -> T:
        """Send *call* and return its answer as *kind*."""
        body = await self.read(call, repeatable=repeatable)
        return msgspec.json.decode(body, type=kind)

    async def read(self, call: ApiCall, *, repeatable: bool = False) -> bytes:
        """Send *call* and return the body of its answer."""
        async with self.open(call, repeatable=repeatable) as answer:
            return await answer.read()

    @asynccontextmanager
    async def open(
        self, call: ApiCall, *, repeatable: bool = False, stream: bool = False
    ) -> AsyncGenerator[Answer, None]:
        """Send *call* until it is answered, as often as that is safe; the body is read inside the block."""
        patience = RetryPolicy(self._patience_s)
        while True:
            sending = self.transport.send(call, stream=stream)
            try:
                answer = await sending.__aenter__()
            except TransportError as error:
                again = isinstance(error, NoConnectionError) or repeatable or call.method in REPEATABLE
                pause_s = patience.next_pause_s() if again else None
                if pause_s is None:
                    raise unreachable(self.url, error) from error
                await self.transport.sleep(pause_s)
                continue
            try:
                if answer.status < 400:
                    yield answer
                    return
                refusal = error_of(answer.status, await answer.read())
            except TransportError as error:  # the answer broke off
                raise unreachable(self.url, error) from error
            finally:
                await sending.__aexit__(None, None, None)
            refused = isinstance(refusal, TooManyRequestsError)  # before anything was done
            again = refused or (answer.status == 503 and (repeatable or call.method in REPEATABLE))
            pause_s = patience.next_pause_s(_asked_to_wait_s(answer) if refused else 0.0) if again else None
            if pause_s is None:
                raise refusal
            await self.transport.sleep(pause_s)

    async def events(self, call: ApiCall) -> AsyncGenerator[ServerEvent, None]:
        """Yield the server-sent events of one answer; a connection that drops raises ``ServerUnreachableError``."""
        async with self.open(call, stream=True) as answer, aclosing(parse_events(answer.chunks())) as events:
            async for event in events:
                if event.name == "problem":
                    raise error_of(500, event.data)
                yield event


def _asked_to_wait_s(answer: Answer) -> float:
    """Return how long the server asks to wait; at least a second where it does not say."""
    try:
        return float(answer.headers.get("retry-after", "1"))
    except ValueError:
        return 1.0


def query(**values: Any) -> tuple[tuple[str, str], ...]:
    """Return the parameters that are set, each as the server reads it."""
    pairs: list[tuple[str, str]] = []
    for name, value in values.items():
        items = value if isinstance(value, (list, tuple)) else (value,)
        for item in items:
            if isinstance(item, bool):
                pairs.append((name, str(item).lower()))
            elif item not in (None, ""):
                pairs.append((name, str(item)))
    return tuple(pairs)
