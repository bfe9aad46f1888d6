"""Fail where a file or a function has grown too long to be read in one go."""

import argparse
import ast
import sys
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
FILE_LINES = 600
FUNCTION_LINES = 80


class Size(NamedTuple):
    """How many lines something has, and where it is."""

    lines: int
    where: str


def main() -> int:
    """Print the five largest of each kind; return 1 where one is over its limit."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, default=ROOT / "src")
    folder: Path = parser.parse_args().folder
    files = file_sizes(folder)
    functions = function_sizes(folder)
    too_long = [*over(files, FILE_LINES), *over(functions, FUNCTION_LINES)]
    for title, sizes, limit in (
        ("files", files, FILE_LINES),
        ("functions", functions, FUNCTION_LINES),
    ):
        print(f"largest {title} (limit {limit} lines, {len(sizes)} in all)")
        for size in sorted(sizes, reverse=True)[:5]:
            print(f"  {size.lines:4d}  {size.where}")
    for size in too_long:
        print(f"✗ {size.where} has {size.lines} lines: split it by what it does")
    return 1 if too_long else 0


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


def over(sizes: list[Size], limit: int) -> list[Size]:
    """Return those that are longer than *limit*, longest first."""
    return sorted((size for size in sizes if size.lines > limit), reverse=True)


if __name__ == "__main__":
    sys.exit(main())
