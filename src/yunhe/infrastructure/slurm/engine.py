"""The contract over a site's helper, which speaks the frames of an agent."""

import msgspec

from yunhe.infrastructure.contract.model import Catalogue
from yunhe.infrastructure.host.engine import HostEngine
from yunhe.infrastructure.host.package import AgentFile
from yunhe.infrastructure.slurm.package import site_file


class SlurmEngine(HostEngine):
    """An engine whose nodes are a Slurm site's."""

    look_within_s = 10.0  # the site asks Slurm's controller

    def program(self) -> AgentFile:
        """Return the site's helper."""
        return site_file()

    async def catalogue(self) -> Catalogue:
        """Return the partitions, and the sizes of node in each."""
        return msgspec.convert(await self._ask("catalogue", {}), Catalogue)
