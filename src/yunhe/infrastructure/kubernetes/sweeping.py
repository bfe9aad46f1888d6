"""Removes the marks of what was released long ago: nobody can be late for those any more.

A mark refuses a launch that arrives after its stop. Marks lie in the cluster's own database, which is for everyone, so
they are kept for a while and up to a number only, as other engines keep theirs.
"""

import logging
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import anyio

from yunhe.infrastructure.kubernetes.api.answers import decode
from yunhe.infrastructure.kubernetes.api.client import Api
from yunhe.infrastructure.kubernetes.api.shapes import Key, Meta, Record
from yunhe.infrastructure.kubernetes.api.watch import PAGE, Page
from yunhe.infrastructure.kubernetes.objects import names
from yunhe.infrastructure.kubernetes.objects.phases import epoch
from yunhe.infrastructure.kubernetes.objects.pods import RecordState, collection, path_of
from yunhe.infrastructure.kubernetes.target import ClusterSettings
from yunhe.kernel.clock import Clock
from yunhe.kernel.errors import ConflictError, NotFoundError, YunheError

KEPT_S = 7 * 86_400.0
MOST_KEPT = 20_000
MOST_SWEPT = 1000
"""Of one round; what is left over is the next one's, soon."""
EVERY_S = 600.0
SOON_S = 10.0

log = logging.getLogger(__name__)


class ReleaseMark(NamedTuple):
    """A record of which nothing but the mark is left."""

    released_at: float
    key: Key
    uid: str


class Sweeper:
    """Looks through the marks of one pool now and then."""

    def __init__(self, api: Api, settings: ClusterSettings, clock: Clock) -> None:
        self._api = api
        self._settings = settings
        self._clock = clock

    async def run(self) -> None:
        """Sweep until cancelled; what fails is tried again with the next round."""
        while True:
            try:
                swept = await self.sweep()
            except YunheError as error:
                log.warning("marks are not swept", extra={"problem": str(error)})
                swept = 0
            await anyio.sleep(SOON_S if swept >= MOST_SWEPT else EVERY_S)

    async def sweep(self) -> int:
        """Remove the marks that have served; return how many there were, up to the most of one round."""
        doomed = served_marks(await self._marks(), self._clock())
        for mark in doomed:
            try:
                await self._api.delete(path_of("configmaps", mark.key), uid=mark.uid)
            except (NotFoundError, ConflictError):
                continue  # another process swept it, and somebody may have claimed the name anew
        return len(doomed)

    async def _marks(self) -> list[ReleaseMark]:
        """Return every mark of this pool, page by page."""
        marks: list[ReleaseMark] = []
        token, selector = "", f"{names.STATE}={RecordState.RELEASED}"
        while True:
            params = {"labelSelector": selector, "limit": str(PAGE), **({"continue": token} if token else {})}
            body = await self._api.get(collection("configmaps", self._settings.namespace), params)
            page = decode(body, Page[Record])
            marks += [mark_of(one.metadata) for one in page.items or () if self._is_ours(one.metadata)]
            token = page.metadata.continue_
            if not token:
                return marks

    def _is_ours(self, metadata: Meta) -> bool:
        prefix, namespace = self._settings.prefix, metadata.namespace
        mine = self._settings.namespace or namespace == prefix or namespace.startswith(f"{prefix}-")
        return bool(mine) and metadata.labels.get(names.STATE) == RecordState.RELEASED


def mark_of(metadata: Meta) -> ReleaseMark:
    """Return a mark; one that was never anything else was released when it was made."""
    said = metadata.annotations.get(names.RELEASED_AT) or metadata.creation_timestamp
    return ReleaseMark(epoch(said) or 0.0, metadata.key, metadata.uid)


def served_marks(marks: Iterable[ReleaseMark], now: float) -> Sequence[ReleaseMark]:
    """Return the marks to remove in one round, oldest first: those too old, and the oldest of those too many."""
    by_age = sorted(marks)
    too_many = len(by_age) - MOST_KEPT
    return [
        mark for number, mark in enumerate(by_age) if number < too_many or mark.released_at < now - KEPT_S
    ][:MOST_SWEPT]
