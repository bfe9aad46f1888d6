"""The example plugin in Go, built once and cached."""

import fcntl
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from support.repository import REPOSITORY

SOURCES = REPOSITORY / "examples" / "go-plugin"
BUILT = REPOSITORY / ".cache" / "go-plugin"


def built_go_plugin() -> Path:
    """Return the manifest beside the built plugin; skip where there is no Go to build it with."""
    go = shutil.which("go") or shutil.which("go", path="/usr/local/go/bin")
    if go is None:
        pytest.skip("go is not installed: the example plugin in Go cannot be built")
    BUILT.mkdir(parents=True, exist_ok=True)
    with (BUILT / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # several test processes build it once
        build = subprocess.run(
            [go, "build", "-trimpath", "-ldflags=-s -w", "-o", str(BUILT / "go-plugin"), "."],
            cwd=SOURCES,
            env={**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "-buildvcs=false"},
            capture_output=True,
            text=True,
            check=False,
        )
        if build.returncode and "dial tcp" in build.stderr:
            pytest.skip("the modules of the Go plugin cannot be fetched from here")
        assert build.returncode == 0, build.stderr
        shutil.copy(SOURCES / "plugin.toml", BUILT / "plugin.toml")
    return BUILT / "plugin.toml"
