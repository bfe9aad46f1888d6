"""Where a plugin that is served as a process is found, for tests."""

from support.repository import REPOSITORY

SOURCES = REPOSITORY / "src"
FAKE_MANIFEST = SOURCES / "yunhe" / "infrastructure" / "fake" / "plugin.toml"
