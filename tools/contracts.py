"""An import contract of our own: sub-modules meet only at their surfaces."""

from typing import Any

from grimp import ImportGraph
from importlinter import Contract, ContractCheck, fields, output


class SurfaceContract(Contract):
    """A sub-module is entered only by the modules that make up its surface.

    A sub-module is a package below a layer: ``yunhe.trading.accounts``. Its own modules import each other freely;
    everybody else may import only modules named in ``surface``, at any depth, or anything below a sub-module so named.
    ``allowed`` names the pairs that may meet inside all the same: ``importer -> imported``, each argued where it stands.
    """

    type_name = "surface"

    layers: Any = fields.ListField(subfield=fields.StringField())
    surface: Any = fields.SetField(subfield=fields.StringField())
    exempt: Any = fields.SetField(subfield=fields.StringField())
    allowed: Any = fields.SetField(subfield=fields.StringField(), required=False)

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:  # noqa: FBT001, D102 - as inherited
        offences = sorted(
            (importer, imported)
            for imported in graph.modules
            if self._is_private(imported)
            for importer in graph.find_modules_that_directly_import(imported)
            if not self._may_enter(importer, imported)
        )
        return ContractCheck(kept=not offences, metadata={"offences": offences})

    def render_broken_contract(self, check: ContractCheck) -> None:  # noqa: D102 - as inherited
        for importer, imported in check.metadata["offences"]:
            output.print_error(f"{importer} -> {imported}", bold=False)
        output.print_error(f"Only these modules of a sub-module are open: {', '.join(sorted(self.surface))}.")

    def _is_private(self, module: str) -> bool:
        layer, *path = _below_root(module)
        return layer in self.layers and bool(path) and self.surface.isdisjoint((path[0], path[-1]))

    def _may_enter(self, importer: str, imported: str) -> bool:
        origin, entered = _below_root(importer), _below_root(imported)
        pair = " -> ".join(".".join(parts[:2]) for parts in (origin, entered))
        return origin[0] in self.exempt or origin[:2] == entered[:2] or pair in (self.allowed or ())


def _below_root(module: str) -> list[str]:
    """Return the parts of a dotted name below the root package, never none."""
    return module.split(".")[1:] or [""]
