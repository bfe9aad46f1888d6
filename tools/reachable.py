"""Fail on modules that nothing which is started or shipped reaches."""

import sys
import tomllib
from collections.abc import Iterable
from pathlib import Path

import grimp

from yunhe.entrypoints.cli.main import COMMANDS

ROOT = Path(__file__).resolve().parent.parent
SHIPPED = (
    "yunhe.conformance",  # imported by the tests of plugins
    "yunhe.infrastructure.ray.node.grace",  # started as a module on a node of Ray
    "yunhe.storage.migrations",  # run by alembic
)
"""Modules and packages that no module imports and that are used all the same."""
PLANNED = (
    "yunhe.flexible.placing.fleet",  # admission by conflict probability, for live hosts
)
"""Modules whose caller is an open issue; each leaves this list when it is called."""


def main() -> int:
    """Print each module that is not reached; return 1 where there is one."""
    graph = grimp.build_graph("yunhe", cache_dir=None)
    lost = unreached(graph, entry_points(graph, ROOT))
    for module in lost:
        print(f"✗ {module} is reached by no entry point: delete it, or move it to lab/ or tests/")
    print(f"{len(graph.modules) - len(lost)} of {len(graph.modules)} modules are reached")
    return 1 if lost else 0


def entry_points(graph: grimp.ImportGraph, root: Path) -> set[str]:
    """Return where programs begin: scripts, commands, ``__main__``, the entries of manifests, and what is shipped."""
    scripts = tomllib.loads((root / "pyproject.toml").read_text())["project"]["scripts"].values()
    manifests = (tomllib.loads(path.read_text()) for path in (root / "src").rglob("plugin.toml"))
    entries = [*scripts, *(manifest.get("entry", "") for manifest in manifests)]
    starts = {entry.partition(":")[0] for entry in entries}
    starts |= {f"yunhe.entrypoints.cli.commands.{command.module}" for command in COMMANDS.values()}
    starts |= {module for module in graph.modules if module.endswith(".__main__")}
    starts |= {module for module in graph.modules if is_below(module, SHIPPED + PLANNED)}
    return starts & graph.modules


def is_below(module: str, packages: Iterable[str]) -> bool:
    """Return whether *module* is one of *packages* or lies in one."""
    return any(f"{module}.".startswith(f"{package}.") for package in packages)


def unreached(graph: grimp.ImportGraph, starts: Iterable[str]) -> list[str]:
    """Return the modules that *starts* do not import, however indirectly; importing one runs the packages above it."""
    reached, new = set[str](), set(starts)
    while new:
        reached |= new
        found = {module for start in new for module in graph.find_modules_directly_imported_by(start)}
        found |= {module.rpartition(".")[0] for module in new} - {""}
        new = found - reached
    return sorted(graph.modules - reached)


if __name__ == "__main__":
    sys.exit(main())
