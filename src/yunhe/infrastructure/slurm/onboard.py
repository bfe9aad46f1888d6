"""The first contact with a site: its login node as any host, then Slurm as seen from there."""

from collections.abc import AsyncIterator

import msgspec

from yunhe.infrastructure.contract.kind import Check
from yunhe.infrastructure.host.bridge import open_bridge
from yunhe.infrastructure.host.onboard import checks_before
from yunhe.infrastructure.host.target import HostTarget, LocalHost
from yunhe.infrastructure.slurm.package import site_file
from yunhe.kernel.errors import YunheError

QUIET_S = 60.0
"""How long one check may take; the last waits for a job."""


async def onboard(target: HostTarget) -> AsyncIterator[Check]:
    """Try everything a site needs to serve, in order, and yield each result; stop at the first that fails."""
    local = isinstance(target, LocalHost)
    try:
        opened = await open_bridge(target, site_file())
    except YunheError as error:
        for check in checks_before(error.problem, local=local, python="login_python"):
            yield check
        return
    try:
        if not local:
            yield Check(step="reachable", ok=True)
            yield Check(step="key accepted", ok=True)
        yield Check(step="python found", ok=True, detail=opened.hello["python"])
        async for frame in opened.link.stream("check", {}, quiet_s=QUIET_S):
            if "part" in frame.header:
                yield msgspec.convert(frame.header["part"]["check"], Check)
    except YunheError as error:
        yield Check(step="helper answers", ok=False, detail=error.problem, remedy=error.remedy)
    finally:
        await opened.link.close()
