"""The sources of a package as members of an archive: what is sent to a node is packed from them."""

from __future__ import annotations

from importlib import resources
from typing import Any, Dict


def sources_of(package: str) -> Dict[str, bytes]:
    """Return the modules of *package* and below it, by their names in an archive; the packages above it are empty."""
    parts = package.split(".")
    members = {f"{'/'.join(parts[:depth])}/__init__.py": b"" for depth in range(1, len(parts))}
    _add(members, resources.files(package), "/".join(parts))
    return members


def _add(members: Dict[str, bytes], folder: Any, name: str) -> None:
    for entry in folder.iterdir():
        if entry.is_dir():
            _add(members, entry, f"{name}/{entry.name}")
        elif entry.name.endswith(".py"):
            members[f"{name}/{entry.name}"] = entry.read_bytes()
