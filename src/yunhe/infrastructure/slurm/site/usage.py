"""Minutes of usage: written by each job, numbered here once for the whole site, kept until the platform has them."""

from __future__ import annotations

import json
import os
from typing import Any

from yunhe.agent.runs.directory import Run
from yunhe.agent.runs.spool import Spool
from yunhe.infrastructure.slurm.site.ledger import Ledger


def collect(ledger: Ledger, names: list[str], beyond: int | None = None) -> list[dict[str, Any]]:
    """Number the new minutes of *names*; with *beyond*, return every one after it and forget those up to it."""
    with ledger.held("usage"):
        spool = Spool(os.path.join(ledger.root, "usage"))
        try:
            folded = spool.folded()
            for name in names:
                _collect_one(ledger.run(name), spool, folded.get(name, 0))
            return spool.beyond(beyond) if beyond is not None else []
        finally:
            spool.close()


def _collect_one(run: Run, spool: Spool, folded_ms: int) -> None:
    """Take over what the job has added since; what a helper that died took over without noting it is not taken twice."""
    taken = run.record("spooled") or {"bytes": 0, "until_ms": 0}
    try:
        with open(run.at("minutes"), "rb") as file:
            file.seek(taken["bytes"])
            data = file.read()
    except FileNotFoundError:
        return
    lines = data[: data.rfind(b"\n") + 1]
    minutes = [json.loads(line) for line in lines.splitlines()]
    until_ms = max(folded_ms, taken["until_ms"])
    fresh = [minute for minute in minutes if minute["until_ms"] > until_ms]
    if fresh:
        spool.add([{"allocation_id": run.id, **minute} for minute in fresh])
    if lines:
        until_ms = max(until_ms, minutes[-1]["until_ms"])
        run.write_record("spooled", {"bytes": taken["bytes"] + len(lines), "until_ms": until_ms})
