"""What others may ask of plugins."""

from collections.abc import AsyncIterator
from typing import Protocol

from yunhe.control.plugins.model import AllowedFolder, Check, Heartbeat, Plugin, Registration
from yunhe.infrastructure.contract.kind import Kind
from yunhe.infrastructure.contract.manifest import Manifest


class Plugins(Protocol):
    """Owns the plugins: those that are part of the platform and those that registered."""

    async def plugins(self) -> tuple[Plugin, ...]:
        """Return every plugin, in process or not, by name."""
        ...

    async def plugin(self, name: str) -> Plugin:
        """Return one plugin, or raise ``NotFoundError``."""
        ...

    async def register(self, name: str, instance: str, registration: Registration) -> Heartbeat:
        """Take an instance of a plugin in, or note that it is still there; the same call does both."""
        ...

    async def dismiss(self, name: str, instance: str) -> None:
        """Forget an instance that leaves; one that is not known has left already."""
        ...

    async def plugin_of_key(self, key_text: str) -> str | None:
        """Return which plugin a key may register that was made for a process the platform started; None: no such key."""
        ...

    async def folders(self) -> tuple[AllowedFolder, ...]:
        """Return the folders that plugins may be started from."""
        ...

    async def allow(self, directory: str) -> AllowedFolder:
        """Let plugins be started from a folder of this machine and those below it."""
        ...

    async def disallow(self, directory: str) -> None:
        """Let no plugin be started from a folder any more; those that run go on until they end."""
        ...

    def host(self, directory: str, *, name: str = "") -> AsyncIterator[Check]:
        """Start the plugin in a folder of this machine, yielding each step; an older version makes way for it.

        *name* says which plugin the folder must be the next version of.
        """
        ...

    async def remove(self, name: str, *, force: bool = False) -> None:
        """Call a plugin no more and end what was started of it; refused while pools use it, unless *force*."""
        ...


class Kinds(Protocol):
    """The kinds of engines that pools can be of, in this process; pools connect by them."""

    async def refresh(self) -> None:
        """Learn of plugins that came or left."""
        ...

    def manifests(self) -> dict[str, Manifest]:
        """Return what every kind declares, by name."""
        ...

    def kind(self, name: str) -> Kind:
        """Return a kind to connect with; raise ``PoolUnreachableError`` when nobody answers for it."""
        ...
