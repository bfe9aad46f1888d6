"""Write docs/reference/plugins.md from every manifest: how each field of an engine maps to ours.

``--check`` changes nothing and fails when the page is out of date.
"""

import argparse
import sys
from pathlib import Path

from yunhe.infrastructure.contract.manifest import Manifest, read_manifest
from yunhe.infrastructure.contract.model import Power

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "reference" / "plugins.md"


def manifest_paths() -> list[Path]:
    """Return where every manifest of this repository is."""
    engines = (ROOT / "src" / "yunhe" / "infrastructure").rglob("plugin.toml")
    return sorted((*engines, *(ROOT / "examples").rglob("plugin.toml")))


def manifests() -> list[Manifest]:
    """Return every manifest by name; one that leaves a field unmapped is refused here."""
    return sorted(map(read_manifest, manifest_paths()), key=lambda manifest: manifest.name)


def page(plugins: list[Manifest]) -> str:
    """Return the page."""
    lines = [
        "# Plugins",
        "",
        "Generated from their manifests by `python tools/plugin_reference.py`. A manifest that leaves a field of the",
        "contract unmapped is refused before any of its code runs.",
        "",
        "## Powers",
        "",
        f"| plugin | {' | '.join(Power)} |",
        f"|---|{'---|' * len(Power)}",
        *(
            f"| [{plugin.name}](#{plugin.name}) | "
            + " | ".join("yes" if power in plugin.powers else "" for power in Power)
            + " |"
            for plugin in plugins
        ),
        "",
    ]
    for plugin in plugins:
        lines += _section(plugin)
    return "\n".join(lines)


def _section(plugin: Manifest) -> list[str]:
    lines = [
        f"## {plugin.name}",
        "",
        f"{plugin.summary.rstrip('.')}. Version {plugin.version}, contract {plugin.contract}, by {plugin.vendor}; "
        + ("in process." if plugin.entry else "its own process."),
        "",
        f"`yunhe pool add {plugin.name}{' TARGET' if plugin.target else ''}`"
        + (f": the target is {_cell(plugin.target)}." if plugin.target else ""),
        "",
    ]
    if plugin.options:
        lines += ["| option | meaning |", "|---|---|"]
        lines += [
            f"| `{name}` | {_cell(meaning)}{' (an administrator sets it)' * (name in plugin.admin_options)} |"
            for name, meaning in plugin.options.items()
        ]
        lines.append("")
    lines += [f"- without {power}: {plugin.missing[power]}" for power in Power if power in plugin.missing]
    lines += ["", "| ours | theirs | note |", "|---|---|---|"]
    lines += [f"| `{row.ours}` | {_cell(row.theirs)} | {_cell(row.note)} |" for row in plugin.fields]
    return [*lines, ""]


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def main() -> int:
    """Write the page, or check it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    text = page(manifests())
    if parser.parse_args().check:
        current = PAGE.exists() and PAGE.read_text() == text
        print("up to date" if current else "out of date: run python tools/plugin_reference.py")
        return int(not current)
    PAGE.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
