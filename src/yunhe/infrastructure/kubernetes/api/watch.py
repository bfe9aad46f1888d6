"""A watch: events as they come over the wire, one line of JSON each, decoded only as far as they are needed."""

from collections.abc import AsyncIterator
from typing import Generic, TypeVar

import httpx
import msgspec

from yunhe.infrastructure.kubernetes.api.answers import Status, decode, unreadable
from yunhe.infrastructure.kubernetes.api.shapes import Bare, ListMeta, Object
from yunhe.kernel.errors import PoolUnreachableError, YunheError

T = TypeVar("T", bound=Object)

INITIAL_EVENTS_END = "k8s.io/initial-events-end"
PAGE = 500


class WatchEvent(msgspec.Struct, frozen=True):
    """One line of a watch."""

    type: str
    object: msgspec.Raw


class Page(msgspec.Struct, Generic[T], frozen=True):
    """One page of a list."""

    metadata: ListMeta = ListMeta()
    items: list[T] | None = None


class WatchSource(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    """What to list and watch, and what to read of it."""

    path: str
    shape: type[T]
    label_selector: str = ""
    field_selector: str = ""

    def params(self, **more: str) -> dict[str, str]:
        """Return the selectors and *more* as query parameters."""
        chosen = {"labelSelector": self.label_selector, "fieldSelector": self.field_selector, **more}
        return {name: value for name, value in chosen.items() if value}


class EventDecoder(Generic[T]):
    """Decodes the events and pages of one source."""

    def __init__(self, shape: type[T]) -> None:
        self._event = msgspec.json.Decoder(WatchEvent)
        self._object = msgspec.json.Decoder(shape)
        self._page = msgspec.json.Decoder(Page[shape])

    def event(self, line: bytes) -> WatchEvent:
        """Return the event on a line; a line that is none means that the stream cannot be trusted any more."""
        try:
            return self._event.decode(line)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise PoolUnreachableError(f"The watch sent what is no event: {error}.") from None

    def object(self, event: WatchEvent) -> T:
        """Return the object of an event."""
        try:
            return self._object.decode(event.object)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise YunheError(f"An object of the cluster has a form that is not known: {error}.") from None

    def bookmark(self, event: WatchEvent) -> tuple[str, bool]:
        """Return a bookmark's version, and whether all that was there has been sent."""
        metadata = decode(bytes(event.object), Bare).metadata
        return metadata.resource_version, metadata.annotations.get(INITIAL_EVENTS_END) == "true"

    def status(self, event: WatchEvent) -> Status:
        """Return what went wrong inside the stream."""
        return decode(bytes(event.object), Status)

    def page(self, body: bytes) -> Page[T]:
        """Return a page of a list."""
        try:
            return self._page.decode(body)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise unreadable(body, error) from None


async def lines(response: httpx.Response) -> AsyncIterator[bytes]:
    """Yield each whole line of a stream; what is cut off at its end is dropped, for it will be sent again."""
    rest = b""
    async for chunk in response.aiter_raw():
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            if line:
                yield line
