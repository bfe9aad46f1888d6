"""Write the software bill of materials of the platform, in CycloneDX JSON, from its pins and what is installed."""

import json
import re
import sys
import tomllib
from importlib import metadata
from pathlib import Path

from tools.pins import REQUIREMENTS, ROOT, normal, read_pins


def requirements_of(name: str, known: set[str]) -> list[str]:
    """Return which pinned packages an installed one may need."""
    try:
        needed = metadata.requires(name) or []
    except metadata.PackageNotFoundError:
        needed = []
    names = {normal(re.split(r"[^A-Za-z0-9._-]", one, maxsplit=1)[0]) for one in needed}
    return sorted(names & known)


def licence_of(name: str) -> list[dict[str, dict[str, str]]]:
    """Return the licence that an installed package declares."""
    try:
        declared = metadata.metadata(name)
    except metadata.PackageNotFoundError:
        return []
    text = next((declared[field] for field in ("License-Expression", "License") if field in declared), "")
    return [{"license": {"name": text.splitlines()[0][:100]}}] if text.strip() else []


def bill(pins: dict[str, str]) -> dict[str, object]:
    """Return the bill of materials."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    refs = {name: f"pkg:pypi/{name}@{version}" for name, version in pins.items()}
    own = f"pkg:pypi/yunhe@{project['version']}"
    components = [
        {
            "type": "library",
            "bom-ref": refs[name],
            "name": name,
            "version": version,
            "purl": refs[name],
            "licenses": licence_of(name),
        }
        for name, version in pins.items()
    ]
    graph = [
        {"ref": refs[name], "dependsOn": [refs[one] for one in requirements_of(name, set(pins))]}
        for name in pins
    ]
    needed = {normal(re.split(r"[^A-Za-z0-9._-]", one, maxsplit=1)[0]) for one in project["dependencies"]}
    graph.append({"ref": own, "dependsOn": [refs[name] for name in sorted(needed & set(pins))]})
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application",
                "bom-ref": own,
                "name": project["name"],
                "version": project["version"],
                "purl": own,
            }
        },
        "components": components,
        "dependencies": graph,
    }


def main() -> int:
    """Write the bill to the file named."""
    pins = read_pins(REQUIREMENTS.read_text())
    Path(sys.argv[1]).write_text(json.dumps(bill(pins), indent=1) + "\n")
    print(f"{len(pins)} components in {sys.argv[1]}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
