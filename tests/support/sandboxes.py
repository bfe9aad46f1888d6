"""What an agent needs to run tasks in sandboxes: gVisor's ``runsc``, wherever it lies."""

import os
from pathlib import Path

import pytest

from tools import system_packages
from yunhe.kernel.confinement import Confinement

SANDBOXED = Confinement(runtime="sandboxed")


def sandbox_environment() -> dict[str, str]:
    """Return what an agent must have in its environment; skip where there can be no sandboxes."""
    if os.geteuid() != 0:
        pytest.skip("needs root to make sandboxes")
    program = system_packages.find("runsc")
    if program is None:
        pytest.skip("needs runsc (tools/system_packages.py test gets it)")
    return {"PATH": f"{Path(program).parent}:{os.environ['PATH']}"}
