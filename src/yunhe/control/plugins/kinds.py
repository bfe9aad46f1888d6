"""Every kind of engine a pool can be of: those in process, and those of registered plugins."""

from collections.abc import Callable

from yunhe.control.plugins.in_process import InProcess
from yunhe.control.plugins.registry import CallAddress, Registry
from yunhe.control.pools.model import PoolSpec
from yunhe.infrastructure.contract.kind import Kind
from yunhe.infrastructure.contract.manifest import Manifest
from yunhe.kernel.errors import FieldProblem, InvalidInputError, PoolUnreachableError
from yunhe.kernel.validation import nearest

Remote = Callable[[Manifest, Callable[[], CallAddress]], Kind]
"""Makes the kind whose calls go to a plugin's process; where that is now, it asks at every call."""


class Kinds:
    """Finds kinds by name."""

    def __init__(self, in_process: InProcess, registry: Registry, remote: Remote) -> None:
        self._in_process = in_process
        self._registry = registry
        self._remote = remote
        self._made: dict[str, tuple[str, Kind]] = {}

    def manifests(self) -> dict[str, Manifest]:
        """Return what every kind declares, by name."""
        remote = {name: self._registry.manifest(name) for name in self._registry.names()}
        found = {name: manifest for name, manifest in remote.items() if manifest is not None}
        return found | self._in_process.manifests

    def is_in_process(self, name: str) -> bool:
        """Return whether a kind is part of the platform."""
        return name in self._in_process.manifests

    def kind(self, name: str) -> Kind:
        """Return a kind to connect with; raise ``PoolUnreachableError`` when nobody answers for it."""
        if self.is_in_process(name):
            return self._in_process.kind(name)
        instance = self._registry.active(name)
        if instance is None:
            raise self.silence(name)
        version, kind = self._made.get(name, ("", None))
        if kind is None or version != instance.manifest.version:
            kind = self._remote(instance.manifest, lambda: self._where(name))
            self._made[name] = (instance.manifest.version, kind)
        return kind

    def _where(self, name: str) -> CallAddress:
        instance = self._registry.active(name)
        if instance is None:
            raise self.silence(name)
        return self._registry.where(instance)

    def silence(self, name: str) -> PoolUnreachableError:
        """Say why no pool of a kind can be reached."""
        if name in self._registry.names():
            problem = f"Plugin {name} has not been heard of for {self._registry.silent_s(name):.0f} s."
        else:
            problem = f"No plugin {name} is registered."
        remedy = f"Look at it with yunhe plugin show {name}; start it again, or yunhe plugin add its folder."
        return PoolUnreachableError(problem, remedy=remedy)

    async def check(self, spec: PoolSpec) -> None:
        """Refuse a pool whose kind does not exist or does not understand what is said of it."""
        await self._registry.refresh()
        manifests = self.manifests()
        manifest = manifests.get(spec.kind)
        if manifest is None:
            meant = nearest(spec.kind, list(manifests))
            raise InvalidInputError(
                f"There is no engine of kind {spec.kind!r}.",
                remedy=f"Use one of: {', '.join(sorted(manifests))}. Another vendor's plugin must have registered"
                " first: the plugin's log says if its key or its contract was refused.",
                fields=(FieldProblem("kind", "is not a registered kind", spec.kind, meant),),
            )
        problems = _not_understood(spec, manifest)
        if problems:
            raise InvalidInputError(
                f"A pool of kind {spec.kind} does not understand {', '.join(p.field for p in problems)}.",
                remedy=f"Its options: {', '.join(sorted(manifest.options)) or 'none'}.",
                fields=tuple(problems),
            )


def _not_understood(spec: PoolSpec, manifest: Manifest) -> list[FieldProblem]:
    known = list(manifest.options)
    problems = [
        FieldProblem(f"options.{name}", "is not an option", value, nearest(name, known))
        for name, value in sorted(spec.options.items())
        if name not in known
    ]
    if spec.target and not manifest.target:
        problems.append(FieldProblem("target", f"a pool of kind {spec.kind} has none", spec.target))
    return problems
