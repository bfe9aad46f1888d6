"""Kinds that run in this process: known by their manifests, imported when they are first used."""

import importlib
from collections.abc import Mapping
from functools import cache
from importlib.resources import as_file, files

from yunhe.infrastructure.contract.kind import Kind
from yunhe.infrastructure.contract.manifest import Manifest, read_manifest

NOT_OFFERED = frozenset({"fake"})
"""Kinds that are there for trials and tests alone."""


class InProcess:
    """Kinds whose code is part of the platform."""

    def __init__(self, manifests: Mapping[str, Manifest], made: Mapping[str, Kind] | None = None) -> None:
        self.manifests = dict(manifests)
        self._made = dict(made or {})

    def kind(self, name: str) -> Kind:
        """Return the kind *name*, importing its code if nobody needed it before."""
        if name not in self._made:
            module, _, attribute = self.manifests[name].entry.partition(":")
            self._made[name] = getattr(importlib.import_module(module), attribute)()
        return self._made[name]


def in_process(made: Mapping[str, Kind] | None = None) -> InProcess:
    """Return every kind that is installed; or only those of *made*, each as the object given."""
    installed = installed_manifests()
    if made is not None:
        return InProcess({name: installed[name] for name in made}, made)
    return InProcess({name: manifest for name, manifest in installed.items() if name not in NOT_OFFERED})


@cache
def installed_manifests() -> dict[str, Manifest]:
    """Return the manifest of every kind that is installed with the platform; none of their code is run."""
    with as_file(files("yunhe.infrastructure")) as folder:
        found = [read_manifest(path) for path in sorted(folder.rglob("plugin.toml"))]
    return {manifest.name: manifest for manifest in found if manifest.entry}
