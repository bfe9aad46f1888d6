"""The architecture page is held to the tree: its boxes are folders, its maps of layers are complete."""

import ast
import importlib
import re
import tomllib
from typing import Any

import pytest
from grimp import build_graph

from support.repository import REPOSITORY
from tools import folders
from yunhe.runtime.modules import MODULES, SUBMODULES

SOURCE = REPOSITORY / "src" / "yunhe"
PAGE = (REPOSITORY / "docs" / "architecture.md").read_text()
LAYERS = ("trading", "scheduling", "control", "infrastructure")


def table(heading: str) -> list[list[str]]:
    """Return the cells of the table whose first heading is *heading*."""
    lines = PAGE[PAGE.index(f"| {heading} |") :].splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]
    return [row for row in rows[: next(i for i, row in enumerate(rows) if row == [""])] if row]


def paths(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def test_every_word_in_a_box_is_a_folder() -> None:
    boxes = re.findall(r"^ ?\d│ (\w+) +(.*?)│", PAGE, re.MULTILINE)
    assert [layer for layer, _ in boxes] == list(LAYERS)
    for layer, words in boxes:
        for word in words.split("·"):
            assert (SOURCE / layer / word.strip() / "__init__.py").is_file(), f"{layer}/{word}"


def test_the_page_says_where_everything_planned_goes() -> None:
    planned = {sub.folder for sub in SUBMODULES.values() if not sub.built}
    assert {paths(row[0])[0] for row in table("planned folder")} == planned


def test_every_sub_package_of_a_layer_stands_in_its_box() -> None:
    boxes = dict(re.findall(r"^ ?\d│ (\w+) +(.*?)│", PAGE, re.MULTILINE))
    for layer in LAYERS:
        there = {path.parent.name for path in (SOURCE / layer).glob("*/__init__.py")}
        named = {word.strip() for word in boxes[layer].split("·")}
        assert there - named <= {"plugin"}, f"{layer}: {there - named}"


def test_every_path_on_the_page_exists() -> None:
    planned = {sub.folder for sub in SUBMODULES.values() if not sub.built}
    for path in set(re.findall(r"`([a-z_]+/[a-z_/]+(?:\.py|/)?)`", PAGE)) - planned:
        found = [root / path for root in (SOURCE, REPOSITORY, SOURCE / "trading") if (root / path).exists()]
        assert found, path


@pytest.mark.feature(
    "R23",
    file="docs/architecture.md",
    old="| scheduling, control | `scheduling`, `control` |",
    new="| scheduling | `scheduling`, `control` |",
)
def test_each_layer_of_s3_is_realised_by_layers_of_s2_and_by_folders() -> None:
    rows = table("S3's layer")
    layers = [layer.strip() for row in rows for layer in row[1].split(",")]
    assert sorted(layers) == sorted({module.layer for module in MODULES}), "each layer of S2 serves one of S3"
    for _, realised_by, cell in rows:
        inside = {name.strip() for name in realised_by.split(",")}
        assert inside <= set(paths(cell)), "a layer of S2 is a folder"
        built = [
            sub for module in MODULES if module.layer in inside for sub in module.submodules if sub.built
        ]
        assert built or inside == {"infrastructure"}, "something real stands behind it"
        for sub in built:
            assert sub.folder.partition("/")[0] in paths(cell)
            assert (SOURCE / sub.folder / "interface.py").is_file()
    assert _order_of_contract() == [name for name in _order_of_contract() if name in set(layers)]
    assert [name for row in rows for name in paths(row[2]) if name in layers] == _order_of_contract()


def _order_of_contract() -> list[str]:
    """Return our layers from the top, as the import contract has them."""
    contracts = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["tool"]["importlinter"][
        "contracts"
    ]
    direction = next(contract for contract in contracts if contract["id"] == "direction")
    return [layer for layer in direction["layers"] if layer in LAYERS]


@pytest.mark.feature(
    "F16",
    file="src/yunhe/scheduling/perception/interface.py",
    old="from typing import Protocol\n",
    new="from typing import Protocol\n\nimport yunhe.trading.demand.model\n",
)
def test_the_three_layers_of_s0_are_packages_that_meet_at_typed_interfaces() -> None:
    rows = table("S0's layer")
    packages = [paths(row[2])[0] for row in rows]
    assert packages == [name for name in _order_of_contract() if name in packages], "from the top down"
    assert len(packages) == 3
    graph = build_graph("yunhe", include_external_packages=False)
    for row, package in zip(rows, packages, strict=True):
        for interface in paths(row[3]):
            assert interface.startswith(f"{package}/")
            assert _protocols(interface), f"{interface} declares no typed interface"
        below = packages[packages.index(package) + 1 :]
        for lower in below:
            for importer in graph.find_descendants(f"yunhe.{package}"):
                for imported in graph.find_modules_directly_imported_by(importer):
                    if imported.startswith(f"yunhe.{lower}."):
                        assert imported.rpartition(".")[2] in SURFACE, f"{importer} -> {imported}"
        for higher in packages[: packages.index(package)]:
            assert not graph.find_shortest_chains(f"yunhe.{package}", f"yunhe.{higher}")


SURFACE = {"interface", "model", "plans", "states", "events", "snapshot", "decide", "terms"} | {"decision"}


def _protocols(interface: str) -> list[Any]:
    """Return the protocols of a module; each method of one says what it takes and returns."""
    module = importlib.import_module(f"yunhe.{interface.removesuffix('.py').replace('/', '.')}")
    found = [value for value in vars(module).values() if getattr(value, "_is_protocol", False)]
    tree = ast.parse((SOURCE / interface).read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.AsyncFunctionDef | ast.FunctionDef):
            assert node.returns is not None, f"{interface}: {node.name} does not say what it returns"
            given = [*node.args.args[1:], *node.args.kwonlyargs]
            assert all(argument.annotation for argument in given), f"{interface}: {node.name}"
    return [value for value in found if value.__module__ == module.__name__]


def test_what_is_built_says_which_folder_it_is() -> None:
    for sub in SUBMODULES.values():
        if sub.built:
            assert sub.folder in (REPOSITORY / "docs" / "reference" / "folders.md").read_text()


def test_the_page_of_folders_is_up_to_date() -> None:
    assert (REPOSITORY / "docs" / "reference" / "folders.md").read_text() == folders.page(folders.SOURCE)


def test_no_folder_holds_more_than_sixteen_modules() -> None:
    for package in (path.parent for path in SOURCE.rglob("__init__.py")):
        modules = [path for path in package.glob("*.py") if not path.name.startswith("__")]
        assert len(modules) <= 16, f"{package.relative_to(SOURCE)}: {len(modules)}"
