"""The agent as one file that any Python from 3.8 on can run."""

import hashlib
import io
import zipfile
from functools import cache
from importlib import resources
from typing import NamedTuple

from yunhe.agent.package import sources_of

_MAIN = b"import sys\nfrom yunhe.agent.__main__ import main\nsys.exit(main())\n"
_SOME_DAY = (2020, 1, 1, 0, 0, 0)  # the same sources give the same bytes, whenever they are packed


class AgentFile(NamedTuple):
    """The bytes of the agent and their name."""

    data: bytes
    digest: str

    @property
    def name(self) -> str:
        """Return what the file is called in an agent's root."""
        return f"agent-{self.digest[:16]}.pyz"


@cache
def agent_file() -> AgentFile:
    """Return the agent, packed from the package of this installation."""
    return pack({"__main__.py": _MAIN, **sources_of("yunhe.agent")})


def pack(members: dict[str, bytes]) -> AgentFile:
    """Return one file that Python runs."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in sorted(members):
            archive.writestr(zipfile.ZipInfo(name, _SOME_DAY), members[name], zipfile.ZIP_DEFLATED)
    data = buffer.getvalue()
    return AgentFile(data, hashlib.sha256(data).hexdigest())


@cache
def bootstrap_text() -> str:
    """Return the program that takes the agent onto a node."""
    return resources.files("yunhe.agent.daemon").joinpath("bootstrap.py").read_text(encoding="utf-8")
