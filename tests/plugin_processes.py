"""Where a plugin that is served as a process is found, for tests."""

from pathlib import Path

SOURCES = Path(__file__).resolve().parent.parent / "src"
FAKE_MANIFEST = SOURCES / "yunhe" / "infrastructure" / "fake" / "plugin.toml"
