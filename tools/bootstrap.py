"""Make the virtual environment: uv when it is there, plain venv and pip when not."""

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PINNED = ["--require-hashes", "-r", "requirements.txt"]
"""Every dependency, and what builds the project: a file with another hash is refused."""
PROJECT = ["--no-deps", "--no-build-isolation", "-e", "."]


def main() -> int:
    """Create the environment, install the pinned dependencies by their hashes, then the project itself."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--venv", type=Path, default=ROOT / ".venv")
    venv: Path = parser.parse_args().venv.resolve()
    if sys.version_info < (3, 11):  # noqa: UP036 - this file runs before the project is installed
        print(
            f"Yunhe needs Python 3.11 or newer; this is {sys.version.split()[0]}. Try make PYTHON=python3.11"
        )
        return 1
    if not (venv / "bin" / "python").exists():
        print(f"· making {venv.name}", flush=True)
        subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True)
    print("· installing dependencies", flush=True)
    environment = {**os.environ, "VIRTUAL_ENV": str(venv)}
    uv = shutil.which("uv")
    install = [uv, "pip", "install"] if uv else [str(venv / "bin" / "python"), "-m", "pip", "install"]
    for wanted in (PINNED, PROJECT):
        done = subprocess.run([*install, "--quiet", *wanted], cwd=ROOT, env=environment, check=False)
        if done.returncode:
            return done.returncode
    return 0


def development_requirements() -> list[str]:
    """Return the ``dev`` group of pyproject.toml; old pips cannot read groups themselves."""
    import tomllib  # noqa: PLC0415 - only after the version check above

    with (ROOT / "pyproject.toml").open("rb") as file:
        return tomllib.load(file)["dependency-groups"]["dev"]


if __name__ == "__main__":
    sys.exit(main())
