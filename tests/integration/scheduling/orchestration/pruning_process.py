"""A server process that sweeps at once and dies where its environment says; run by the tests of retention."""

import sys
from pathlib import Path

import anyio

from yunhe.infrastructure.fake.kind import FakeKind
from yunhe.runtime import housekeeping
from yunhe.runtime.limits import Retention
from yunhe.runtime.settings import Settings
from yunhe.runtime.start import running

KEPT = Retention(ended_jobs=2, audit_lines=5, sweep_s=0.05)


async def main(home: Path, url: str) -> None:
    """Sweep again and again."""
    housekeeping.LEASE_S = 2.0  # the next process need not wait longer
    settings = Settings(home=home, database_url=url, retention=KEPT)
    async with running(settings, kinds={"fake": FakeKind()}):
        await anyio.sleep(120)


if __name__ == "__main__":
    anyio.run(main, Path(sys.argv[1]), sys.argv[2])
