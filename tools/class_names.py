"""Fail where two classes have one name: a name has one meaning in the whole tree."""

import argparse
import ast
import sys
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def main() -> int:
    """Print each name that several classes have; return 1 where there is one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, default=ROOT / "src")
    classes = class_places(parser.parse_args().folder)
    shared = {name: places for name, places in sorted(classes.items()) if len(places) > 1}
    for name, places in shared.items():
        print(f"✗ {name} is defined {len(places)} times: rename all but one of {', '.join(places)}")
    print(f"{len(classes)} names of classes, {len(shared)} with more than one meaning")
    return 1 if shared else 0


def class_places(folder: Path) -> dict[str, list[str]]:
    """Return where below *folder* each class is defined, by name; sources that are copied to users are left out."""
    places: dict[str, list[str]] = defaultdict(list)
    for path in sorted(folder.rglob("*.py")):
        if "skeletons" in path.parts or path.stem.endswith("_pb2"):
            continue
        for node in ast.walk(ast.parse(path.read_text(), str(path))):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(f"{path.relative_to(folder)}:{node.lineno}")
    return places


if __name__ == "__main__":
    sys.exit(main())
