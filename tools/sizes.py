"""Fail where a file or a function has grown too long to be read in one go, or a package holds too many modules."""

import argparse
import ast
import sys
from collections import Counter
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
FILE_LINES = 600
FUNCTION_LINES = 80
PACKAGE_MODULES = 16


class Size(NamedTuple):
    """How many lines or modules something has, and where it is."""

    amount: int
    where: str


class Rule(NamedTuple):
    """A kind of thing, all there are of it, and how large one may be."""

    things: str
    sizes: list[Size]
    limit: int
    unit: str


def main() -> int:
    """Print the five largest of each kind; return 1 where one is over its limit."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, default=ROOT / "src")
    folder: Path = parser.parse_args().folder
    rules = (
        Rule("files", file_sizes(folder), FILE_LINES, "lines"),
        Rule("functions", function_sizes(folder), FUNCTION_LINES, "lines"),
        Rule("packages", package_sizes(folder), PACKAGE_MODULES, "modules"),
    )
    for rule in rules:
        print(f"largest {rule.things} (limit {rule.limit} {rule.unit}, {len(rule.sizes)} in all)")
        for size in sorted(rule.sizes, reverse=True)[:5]:
            print(f"  {size.amount:4d}  {size.where}")
    too_large = [(size, rule.unit) for rule in rules for size in over(rule.sizes, rule.limit)]
    for size, unit in too_large:
        print(f"✗ {size.where} has {size.amount} {unit}: split it by what it does")
    return 1 if too_large else 0


def file_sizes(folder: Path) -> list[Size]:
    """Return the length of every Python file below *folder*."""
    return [
        Size(len(path.read_text().splitlines()), str(path.relative_to(folder)))
        for path in folder.rglob("*.py")
    ]


def function_sizes(folder: Path) -> list[Size]:
    """Return the length of every function below *folder*, decorators aside; a migration is a list, not a function."""
    sizes: list[Size] = []
    for path in folder.rglob("*.py"):
        if "migrations" in path.parts:
            continue
        for node in ast.walk(ast.parse(path.read_text(), str(path))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or node.lineno) - node.lineno + 1
                sizes.append(Size(lines, f"{path.relative_to(folder)}:{node.lineno} {node.name}"))
    return sizes


def package_sizes(folder: Path) -> list[Size]:
    """Return how many modules lie in each folder below *folder*, ``__init__`` and ``__main__`` aside."""
    modules = Counter(path.parent for path in folder.rglob("*.py") if not path.stem.startswith("__"))
    return [Size(count, str(package.relative_to(folder))) for package, count in modules.items()]


def over(sizes: list[Size], limit: int) -> list[Size]:
    """Return those that are larger than *limit*, largest first."""
    return sorted((size for size in sizes if size.amount > limit), reverse=True)


if __name__ == "__main__":
    sys.exit(main())
