"""Pin every dependency by version and by the hashes of its files: ``make pins`` after a change of pyproject.toml.

``constraints.txt`` holds the versions, ``requirements.txt`` the same with the SHA-256 of every file that the package index has
of them. Neither names an index: whichever is configured must give these very files.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from html.parser import HTMLParser
from pathlib import Path

from tools.bootstrap import development_requirements

ROOT = Path(__file__).resolve().parent.parent
CONSTRAINTS, REQUIREMENTS = ROOT / "constraints.txt", ROOT / "requirements.txt"
BUILDERS = ("hatchling", "editables")
HEAD = "# Made by `make pins` from constraints.txt; installed with --require-hashes.\n"


class _Links(HTMLParser):
    """The files of a page of the simple index, each with its hash."""

    def __init__(self) -> None:
        super().__init__()
        self.hashes: dict[str, str] = {}

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        address = dict(attrs).get("href") or ""
        path, _, fragment = address.partition("#")
        if tag == "a" and fragment.startswith("sha256="):
            self.hashes[path.rpartition("/")[2]] = fragment.removeprefix("sha256=")


def normal(name: str) -> str:
    """Return a package's name as indexes write it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def read_pins(text: str) -> dict[str, str]:
    """Return the version of each pinned package."""
    found = re.findall(r"^([A-Za-z0-9._-]+)==([^\s\\;]+)", text, re.MULTILINE)
    return {normal(name): version for name, version in found}


def is_of(file: str, name: str, version: str) -> bool:
    """Return whether a file of an index is of this version: a wheel, or the sources."""
    stem = re.escape(name).replace("\\-", "[-_.]+")
    return bool(re.match(rf"{stem}-{re.escape(version)}(-.*\.whl|\.tar\.gz|\.zip)$", file, re.IGNORECASE))


def resolve() -> dict[str, str]:
    """Return every package that the project needs; what is pinned keeps its version."""
    wanted = ["-c", str(CONSTRAINTS), "-e", ".[all]", *BUILDERS, *development_requirements()]
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        how = ["--dry-run", "--ignore-installed", "--quiet", "--report", str(report)]
        subprocess.run([sys.executable, "-m", "pip", "install", *how, *wanted], cwd=ROOT, check=True)
        found = [one["metadata"] for one in json.loads(report.read_text())["install"]]
    return {normal(one["name"]): one["version"] for one in found if normal(one["name"]) != "yunhe"}


def hashes_of(name: str, version: str, index: str) -> list[str]:
    """Return the hashes of all files of one version."""
    with urllib.request.urlopen(f"{index.rstrip('/')}/{name}/", timeout=60) as answer:
        links = _Links()
        links.feed(answer.read().decode())
    return sorted({digest for file, digest in links.hashes.items() if is_of(file, name, version)})


def index_url() -> str:
    """Return the package index that pip is told to use."""
    told = subprocess.run(
        [sys.executable, "-m", "pip", "config", "get", "global.index-url"],
        capture_output=True,
        text=True,
        check=False,
    )
    return os.environ.get("PIP_INDEX_URL") or told.stdout.strip() or "https://pypi.org/simple"


def main() -> int:
    """Write both files."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keep", action="store_true", help="only hash what constraints.txt has")
    pins = read_pins(CONSTRAINTS.read_text()) if parser.parse_args().keep else resolve()
    index = index_url()
    with ThreadPoolExecutor(8) as pool:
        found = pool.map(hashes_of, pins, pins.values(), [index] * len(pins))
        hashes = dict(zip(pins, found, strict=True))
    missing = [name for name, digests in hashes.items() if not digests]
    if missing:
        print(f"the index has no hashes of {', '.join(missing)}")
        return 1
    CONSTRAINTS.write_text("".join(f"{name}=={pins[name]}\n" for name in sorted(pins)))
    lines = [
        f"{name}=={pins[name]} \\\n" + " \\\n".join(f"    --hash=sha256:{digest}" for digest in hashes[name])
        for name in sorted(pins)
    ]
    REQUIREMENTS.write_text(HEAD + "\n".join(lines) + "\n")
    print(f"pinned {len(pins)} packages, {sum(map(len, hashes.values()))} files")
    return 0


if __name__ == "__main__":
    sys.exit(main())
