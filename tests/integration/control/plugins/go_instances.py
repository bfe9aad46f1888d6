"""The Go example as many plugins: one program, each process under a manifest of its own."""

import os
import subprocess
from pathlib import Path


def go_manifest(built: Path, folder: Path, name: str, version: str) -> Path:
    """Return the Go example's manifest under another name and version."""
    text = built.read_text()
    text = text.replace('name = "go-plugin"', f'name = "{name}"', 1)
    text = text.replace('version = "0.1.0"', f'version = "{version}"', 1)
    path = folder / f"{name}-{version}.toml"
    path.write_text(text)
    return path


def start_go(built: Path, manifest: Path, url: str, key: str, instance: str) -> subprocess.Popen[bytes]:
    """Start the Go example; it registers by itself."""
    environment = {
        **os.environ,
        "YUNHE_PLUGIN_MANIFEST": str(manifest),
        "YUNHE_URL": url,
        "YUNHE_PLUGIN_KEY": key,
        "YUNHE_PLUGIN_INSTANCE": instance,
    }
    with manifest.with_suffix(f".{instance}.log").open("ab") as output:
        return subprocess.Popen(
            [str(built.parent / "go-plugin")], env=environment, stdout=output, stderr=output
        )


def end(process: subprocess.Popen[bytes], within_s: float = 10.0) -> None:
    """End a process that may have ended."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(within_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(within_s)
