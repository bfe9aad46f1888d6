"""The site's helper as one file that any Python from 3.8 on can run: its own modules and those of the agent."""

from functools import cache

from yunhe.agent.package import sources_of
from yunhe.infrastructure.host.package import AgentFile, pack

_MAIN = b"import sys\nfrom yunhe.infrastructure.slurm.site.__main__ import main\nsys.exit(main())\n"


@cache
def site_file() -> AgentFile:
    """Return the helper, packed from the packages of this installation."""
    members = {**sources_of("yunhe.agent"), **sources_of("yunhe.infrastructure.slurm.site")}
    return pack({"__main__.py": _MAIN, **members})
