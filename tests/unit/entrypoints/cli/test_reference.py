"""The reference pages say what the code does."""

import subprocess
import sys

from support.repository import REPOSITORY


def test_the_reference_is_what_the_code_prints_today() -> None:
    done = subprocess.run(
        [sys.executable, "tools/reference.py", "--check"],
        cwd=REPOSITORY,
        env={"PYTHONPATH": ":".join(sys.path), "PATH": "/usr/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
