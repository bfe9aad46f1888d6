"""Write docs/reference/folders.md: every package of the source tree with its one sentence.

``--check`` changes nothing and fails when the page is out of date.
"""

import argparse
import ast
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "yunhe"
PAGE = ROOT / "docs" / "reference" / "folders.md"
HEAD = """\
# Folders

Generated from the packages' docstrings by `python tools/folders.py`. [Architecture](../architecture.md) says how they
work together.

| folder below `src/yunhe` | what is in it | modules |
|---|---|---|
"""


def page(source: Path) -> str:
    """Return the page for the packages below *source*."""
    return HEAD + "".join(_row(source, path.parent) for path in sorted(source.rglob("*/__init__.py")))


def _row(source: Path, package: Path) -> str:
    sentence = (ast.get_docstring(ast.parse((package / "__init__.py").read_text())) or "").partition("\n")[0]
    modules = sum(not path.name.startswith("__") for path in package.glob("*.py"))
    return f"| `{package.relative_to(source)}` | {sentence} | {modules or ''} |\n"


def main() -> int:
    """Write the page, or say that it is out of date."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    check: bool = parser.parse_args().check
    text = page(SOURCE)
    if not check:
        PAGE.write_text(text)
        return 0
    if PAGE.exists() and PAGE.read_text() == text:
        return 0
    print(f"✗ {PAGE.relative_to(ROOT)} is out of date: run python tools/folders.py")
    return 1


if __name__ == "__main__":
    sys.exit(main())
