"""What is known of one kind of object, with indexes, and who wants to hear of changes."""

from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

from yunhe.infrastructure.kubernetes.api.shapes import Key, Object

T = TypeVar("T", bound=Object)

Listener = Callable[[Key, T | None, T | None], None]
"""Hears of a key, what it was and what it is: None before it came and after it went."""


class Store(Generic[T]):
    """Objects by key; each change is told once, and nothing goes back to an older version."""

    def __init__(self) -> None:
        self._items: dict[Key, T] = {}
        self._listeners: list[Listener[T]] = []
        self._indexes: dict[str, Callable[[T], Iterable[str]]] = {}
        self._entries: dict[str, dict[str, set[Key]]] = {}

    def __len__(self) -> int:
        return len(self._items)

    def get(self, key: Key) -> T | None:
        """Return the object of a key."""
        return self._items.get(key)

    def all(self) -> list[T]:
        """Return every object."""
        return list(self._items.values())

    def listen(self, listener: Listener[T]) -> None:
        """Tell *listener* of every change from now on."""
        self._listeners.append(listener)

    def index(self, name: str, values_of: Callable[[T], Iterable[str]]) -> None:
        """Keep objects findable by what *values_of* says of them."""
        self._indexes[name] = values_of
        self._entries[name] = {}
        for key, item in self._items.items():
            self._enter(name, key, item)

    def by(self, name: str, value: str) -> list[T]:
        """Return the objects that an index has under *value*."""
        return [self._items[key] for key in self._entries[name].get(value, ())]

    def put(self, item: T) -> None:
        """Take an object in, unless what is here is newer; what is the same is not told."""
        key = item.metadata.key
        held = self._items.get(key)
        if held is not None and not _supersedes(item, held):
            return
        self._set(key, held, item)

    def remove(self, item: T) -> None:
        """Let an object go, unless another has taken its name."""
        key = item.metadata.key
        held = self._items.get(key)
        if held is not None and held.metadata.uid == item.metadata.uid:
            self._set(key, held, None)

    def replace(self, items: dict[Key, T], version: str) -> None:
        """Become what a list says: what vanished meanwhile is told as gone, what is newer than the list stays."""
        for key, held in list(self._items.items()):
            if key not in items and not _version_after(held.metadata.resource_version, version):
                self._set(key, held, None)
        for item in items.values():
            self.put(item)

    def _set(self, key: Key, held: T | None, item: T | None) -> None:
        for name, values_of in self._indexes.items():
            if held is not None:
                for value in values_of(held):
                    self._entries[name][value].discard(key)
        if item is None:
            self._items.pop(key, None)
        else:
            self._items[key] = item
            for name in self._indexes:
                self._enter(name, key, item)
        for listener in self._listeners:
            listener(key, held, item)

    def _enter(self, name: str, key: Key, item: T) -> None:
        for value in self._indexes[name](item):
            self._entries[name].setdefault(value, set()).add(key)


def _supersedes(item: Object, held: Object) -> bool:
    if item.metadata.uid != held.metadata.uid:
        return not _version_after(held.metadata.resource_version, item.metadata.resource_version)
    return _version_after(item.metadata.resource_version, held.metadata.resource_version)


def _version_after(version: str, other: str) -> bool:
    """Return whether one version is later; what cannot be compared counts as later, so that nothing is missed."""
    if version.isdigit() and other.isdigit():
        return int(version) > int(other)
    return version != other
