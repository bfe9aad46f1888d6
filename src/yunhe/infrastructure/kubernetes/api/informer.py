"""A live copy of one kind of object, kept by list and watch, that neither misses, repeats nor hammers.

It starts with a streaming list where the server has one and pages through a plain list where not. It resumes from
the last version it saw, bookmarks included. A version that has expired, said as a status or inside the stream, means a
new list, compared with what is held: what vanished is told as gone. A silence longer than bookmarks allow is a dead
connection. Between two attempts there is always a pause, longer each time until one has lived.
"""

import logging
import random
from typing import Generic, TypeVar

import anyio
import msgspec

from yunhe.infrastructure.kubernetes.api.answers import ExpiredError, OverloadedError, error_of
from yunhe.infrastructure.kubernetes.api.client import Api
from yunhe.infrastructure.kubernetes.api.shapes import Key, Object
from yunhe.infrastructure.kubernetes.api.store import Store
from yunhe.infrastructure.kubernetes.api.watch import PAGE, EventDecoder, WatchEvent, WatchSource, lines
from yunhe.kernel.backoff import Backoff
from yunhe.kernel.errors import InvalidInputError, PoolUnreachableError, YunheError

T = TypeVar("T", bound=Object)

log = logging.getLogger(__name__)


class Pace(msgspec.Struct, frozen=True, kw_only=True):
    """How fast and how patient an informer is."""

    first_pause_s: float = 0.2
    longest_pause_s: float = 30.0
    lives_after_s: float = 5.0
    """A watch that held this long, or brought anything, was a good one."""
    quiet_s: float = 75.0
    """Servers send a bookmark a minute: a longer silence is a half-open connection."""
    watch_s: int = 600
    """What the server is asked to close a watch after, half as much to all of it at random."""
    empty_closes: int = 3
    """So many watches in a row that end at once and bring nothing mean that their version is stale."""


class NoStreamingListError(YunheError):
    """The server cannot send a list as a watch."""


class Informer(Generic[T]):
    """Keeps a store in step with the cluster; ``run`` it in a task."""

    def __init__(self, api: Api, source: WatchSource[T], *, pace: Pace | None = None) -> None:
        self.store: Store[T] = Store()
        self.problem: YunheError | None = None
        self.failing_since: float | None = None
        self._synced = anyio.Event()
        self._api = api
        self._source = source
        self._decoder = EventDecoder(source.shape)
        self._pace = pace or Pace()
        self._version = ""
        self._streaming_lists = True
        self._empty_closes = 0
        self._backoff = Backoff(self._pace.first_pause_s, self._pace.longest_pause_s)

    @property
    def has_synced(self) -> bool:
        """Whether the store has been filled once."""
        return self._synced.is_set()

    async def wait_synced(self, within_s: float) -> None:
        """Wait until the store has been filled once; raise what stands in the way."""
        with anyio.move_on_after(within_s):
            await self._synced.wait()
        if not self.has_synced:
            raise self.problem or PoolUnreachableError(
                f"{self._source.path} was not listed in {within_s:g} s."
            )

    async def run(self) -> None:
        """Keep the store in step until cancelled."""
        while True:
            began_at, began_version = anyio.current_time(), self._version
            pause_s = 0.0
            try:
                await self._attempt()
            except NoStreamingListError:
                self._streaming_lists = False
            except ExpiredError as error:
                self._version = ""
                self._note(error)
            except OverloadedError as error:
                self._api.limiter.overloaded(error.retry_after_s)
                pause_s = error.retry_after_s
                self._note(error)
            except YunheError as error:
                self._note(error)
            except Exception as error:
                # What one object makes us do wrong must not end the watch of all: it is said, and tried again.
                log.exception("watch failed, will be repeated", extra={"path": self._source.path})
                self._note(PoolUnreachableError(f"{self._source.path} cannot be followed: {error!r}."))
            lived = anyio.current_time() - began_at >= self._pace.lives_after_s
            brought = self._version not in ("", began_version)
            await anyio.sleep(max(pause_s, self._pause_s(good=lived or brought)))

    def _pause_s(self, *, good: bool) -> float:
        """Return how long to wait before the next attempt."""
        if good:
            self._empty_closes = 0
            self._backoff.reset()
        return self._backoff.next_s() * random.uniform(0.5, 1.0)  # noqa: S311 - spreads load, guards nothing

    async def _attempt(self) -> None:
        """Watch from where we are, after a list where there is nowhere to watch from."""
        initial = not self._version
        if initial and not self._streaming_lists:
            await self._list()
            initial = False
        version = self._version
        await self._watch(initial=initial)
        if self._version == version:
            self._empty_closes += 1
        if self._empty_closes >= self._pace.empty_closes:
            raise ExpiredError("The watch closes at once and brings nothing: its version must be stale.")

    async def _list(self) -> None:
        """Page through everything and compare it with what is held."""
        items: dict[Key, T] = {}
        token, limit = "", PAGE
        while True:
            params = self._source.params(limit=str(limit) if limit else "", **{"continue": token})
            try:
                page = self._decoder.page(await self._api.get(self._source.path, params))
            except ExpiredError:
                if not token:
                    raise
                # The rest of the pages is gone: only one whole answer can still be consistent.
                items, token, limit = {}, "", 0
                continue
            items.update({item.metadata.key: item for item in page.items or ()})
            token = page.metadata.continue_
            if not token:
                self._filled(items, page.metadata.resource_version)
                return

    async def _watch(self, *, initial: bool) -> None:
        """Follow events until the server closes; with *initial*, what is there already comes first."""
        fresh: dict[Key, T] | None = {} if initial else None
        try:
            async with self._api.stream(
                self._source.path, self._watch_params(initial=initial), quiet_s=self._pace.quiet_s
            ) as response:
                self._recovered()
                async for line in lines(response):
                    fresh = self._take(self._decoder.event(line), fresh)
        except InvalidInputError as error:
            if initial:
                raise NoStreamingListError(error.problem) from None
            raise
        if fresh is not None:
            raise PoolUnreachableError("The server closed the watch before it had sent everything.")

    def _watch_params(self, *, initial: bool) -> dict[str, str]:
        seconds = random.randint(self._pace.watch_s // 2, self._pace.watch_s)  # noqa: S311
        more = {"watch": "1", "allowWatchBookmarks": "true", "timeoutSeconds": str(seconds)}
        if initial:
            more |= {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
        else:
            more["resourceVersion"] = self._version
        return self._source.params(**more)

    def _take(self, event: WatchEvent, fresh: dict[Key, T] | None) -> dict[Key, T] | None:
        """Take one event in; return what is still gathered for the first filling."""
        match event.type:
            case "BOOKMARK":
                version, complete = self._decoder.bookmark(event)
                if fresh is None:
                    self._version = version
                elif complete:
                    self._filled(fresh, version)
                    return None
            case "ERROR":
                status = self._decoder.status(event)
                error = error_of(status, f"watch {self._source.path}")
                if fresh is not None and status.code != 410:
                    raise NoStreamingListError(error.problem)
                raise error
            case "ADDED" | "MODIFIED" | "DELETED":
                item = self._decoder.object(event)
                if fresh is not None:
                    fresh[item.metadata.key] = item
                    return fresh
                self._version = item.metadata.resource_version
                if event.type == "DELETED":
                    self.store.remove(item)
                else:
                    self.store.put(item)
            case other:
                raise PoolUnreachableError(
                    f"The watch sent an event of type {other!r}, which has no meaning."
                )
        return fresh

    def _filled(self, items: dict[Key, T], version: str) -> None:
        self.store.replace(items, version)
        self._version = version
        self._recovered()
        self._synced.set()

    def _recovered(self) -> None:
        self.problem = None
        self.failing_since = None

    def _note(self, error: YunheError) -> None:
        self.problem = error
        if self.failing_since is None:
            self.failing_since = anyio.current_time()
