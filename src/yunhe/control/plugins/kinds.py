"""Every kind of engine a pool can be of: those in process, and those of registered plugins."""

from collections.abc import Callable

from yunhe.control.plugins.in_process import InProcess
from yunhe.control.plugins.registry import CallAddress, Registry
from yunhe.infrastructure.contract.kind import Kind
from yunhe.infrastructure.contract.manifest import Manifest
from yunhe.kernel.errors import PoolUnreachableError

Remote = Callable[[Manifest, Callable[[], CallAddress]], Kind]
"""Makes the kind whose calls go to a plugin's process; where that is now, it asks at every call."""


class KnownKinds:
    """Implements ``Kinds``."""

    def __init__(self, in_process: InProcess, registry: Registry, remote: Remote) -> None:
        self._in_process = in_process
        self.registry = registry
        self._remote = remote
        self._made: dict[str, tuple[str, Kind]] = {}

    async def refresh(self) -> None:
        """Read the registry again if what was read is old."""
        await self.registry.refresh()

    def manifests(self) -> dict[str, Manifest]:
        """Return what every kind declares, by name."""
        remote = {name: self.registry.manifest(name) for name in self.registry.names()}
        found = {name: manifest for name, manifest in remote.items() if manifest is not None}
        return found | self._in_process.manifests

    def is_in_process(self, name: str) -> bool:
        """Return whether a kind is part of the platform."""
        return name in self._in_process.manifests

    def kind(self, name: str) -> Kind:
        """Return a kind to connect with; raise ``PoolUnreachableError`` when nobody answers for it."""
        if self.is_in_process(name):
            return self._in_process.kind(name)
        instance = self.registry.active(name)
        if instance is None:
            raise self.silence(name)
        version, kind = self._made.get(name, ("", None))
        if kind is None or version != instance.manifest.version:
            kind = self._remote(instance.manifest, lambda: self._where(name))
            self._made[name] = (instance.manifest.version, kind)
        return kind

    def _where(self, name: str) -> CallAddress:
        instance = self.registry.active(name)
        if instance is None:
            raise self.silence(name)
        return self.registry.where(instance)

    def silence(self, name: str) -> PoolUnreachableError:
        """Say why no pool of a kind can be reached."""
        if name in self.registry.names():
            problem = f"Plugin {name} has not been heard of for {self.registry.silent_s(name):.0f} s."
        else:
            problem = f"No plugin {name} is registered."
        remedy = f"Look at it with yunhe plugin show {name}; start it again, or yunhe plugin add its folder."
        return PoolUnreachableError(problem, remedy=remedy)

    def silent(self) -> dict[str, str]:
        """Return the plugins that have registered and do not answer now, each with what to say of it."""
        silent = (name for name in self.registry.names() if self.registry.active(name) is None)
        return {name: self.silence(name).problem for name in silent}
