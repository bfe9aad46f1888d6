"""Every engine's folder has the same files, so that a reader of one has read all."""

from pathlib import Path

import pytest

INFRASTRUCTURE = Path("src/yunhe/infrastructure")
FILES = {
    "plugin.toml",  # what the kind declares
    "kind.py",  # the Kind
    "target.py",  # options, read and checked
    "onboard.py",  # checks of the first contact
    "engine.py",  # the contract
}
NO_ENGINES = {
    "contract",  # what every engine promises
    "plugin",  # what serves an engine in a process of its own
}
MISSING = {
    "host": {"plugin.toml"},  # two kinds share the folder: local/ and ssh/ hold a manifest each
    "fake": {
        "target.py",
        "onboard.py",
    },  # a pool in memory: its options make it, and there is nobody to contact
    # Any kind whose plugin is another process: the manifest comes with its registration, and the plugin reads the
    # target and makes the checks.
    "remote": {"plugin.toml", "target.py", "onboard.py"},
}
FOLDERS = {path.name for path in INFRASTRUCTURE.iterdir() if (path / "__init__.py").exists()}


@pytest.mark.parametrize("engine", sorted(FOLDERS - NO_ENGINES))
def test_an_engine_has_the_files_of_every_engine_less_what_is_argued(engine: str) -> None:
    found = {path.name for path in (INFRASTRUCTURE / engine).iterdir()}
    assert FILES - found == MISSING.get(engine, set())


def test_a_host_has_a_manifest_for_each_kind() -> None:
    manifests = (INFRASTRUCTURE / "host").glob("*/plugin.toml")
    assert {path.parent.name for path in manifests} == {"local", "ssh"}
