"""Plugin processes that register with a platform under test."""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

from support.repository import REPOSITORY
from yunhe.control.plugins.model import Plugin
from yunhe.control.pools.model import Pool, PoolSpec
from yunhe.entrypoints.client import Client
from yunhe.trading.accounts.model import KeyScope

SOURCES = REPOSITORY / "src"
FAKE_MANIFEST = SOURCES / "yunhe" / "infrastructure" / "fake" / "plugin.toml"


def fake_folder(folder: Path, name: str, version: str = "1") -> Path:
    """Return a plugin's folder: the fake engine under another name, served by Python."""
    folder.mkdir(parents=True, exist_ok=True)
    text = FAKE_MANIFEST.read_text()
    text = text.replace('name = "fake"', f'name = "{name}"', 1)
    text = text.replace('version = "1"', f'version = "{version}"', 1)
    (folder / "plugin.toml").write_text(text)
    return folder


def hosted_folder(folder: Path, name: str, version: str = "1", *, command: str = "") -> Path:
    """Return a folder that the platform itself can start."""
    fake_folder(folder, name, version)
    (folder / "serve.py").write_text(
        "import sys\nfrom pathlib import Path\n"
        "from yunhe.infrastructure.fake.kind import FakeKind\n"
        "from yunhe.infrastructure.plugin.serve import serve_plugin\n"
        "sys.exit(serve_plugin(Path('plugin.toml'), FakeKind))\n"
    )
    text = (folder / "plugin.toml").read_text()
    entry = 'entry = "yunhe.infrastructure.fake.kind:FakeKind"'
    assert entry in text
    words = command or '["python", "serve.py"]'
    (folder / "plugin.toml").write_text(text.replace(entry, f"command = {words}"))
    return folder


@contextmanager
def registering(
    command: list[str], folder: Path, url: str, key: str, instance: str
) -> Generator[subprocess.Popen[bytes]]:
    """Run a plugin that registers with the platform at *url* until the block ends."""
    environment = {
        **os.environ,
        "PYTHONPATH": str(SOURCES),
        "YUNHE_URL": url,
        "YUNHE_PLUGIN_KEY": key,
        "YUNHE_PLUGIN_INSTANCE": instance,
    }
    with (folder / f"{instance}.log").open("ab") as output:
        process = subprocess.Popen(command, cwd=folder, env=environment, stdout=output, stderr=output)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(10)


def plugin_key(client: Client, name: str) -> str:
    """Return a key that registers one plugin alone."""
    return client.create_key(f"of-{name}", scope=KeyScope(plugin=name)).text


def python_served(folder: Path) -> list[str]:
    return [sys.executable, "-m", "yunhe.infrastructure.plugin.serve", str(folder / "plugin.toml")]


def until(what: Callable[[], bool], within_s: float = 20.0) -> float:
    """Wait until *what* holds, and return how long that took."""
    began = time.monotonic()
    while not what():
        assert time.monotonic() - began < within_s, "it did not come about"
        time.sleep(0.05)
    return time.monotonic() - began


def plugin(client: Client, name: str) -> Plugin | None:
    return next((one for one in client.plugins() if one.name == name), None)


def add_pool(client: Client, name: str, kind: str, **options: str) -> Pool:
    told = list(client.add_pool(PoolSpec(name=name, kind=kind, target=name, options=options)))
    assert isinstance(told[-1], Pool)
    return told[-1]


def copied(folder: Path, to: Path) -> Path:
    return Path(shutil.copytree(folder, to))
