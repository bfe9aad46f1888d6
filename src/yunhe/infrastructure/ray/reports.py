"""Reading what our runners tell on their nodes, no more often than is good for the dashboard in between."""

import time
from collections.abc import Iterable
from typing import NamedTuple

import anyio
import msgspec

from yunhe.infrastructure.contract.model import UsageMinute
from yunhe.infrastructure.ray.client import RayClient
from yunhe.infrastructure.ray.marks import Known
from yunhe.infrastructure.ray.wire import Report
from yunhe.kernel.errors import NotFoundError, PoolUnreachableError
from yunhe.kernel.ids import AllocationId

AT_ONCE = 8
FRESH_S = 0.5
"""A report younger than this is as good as a new one …"""
EACH_S = 0.02
"""… and with many running, each has so much more time: a thousand are read every twenty seconds."""
MINUTES_KEPT = 1440


class _Read(NamedTuple):
    report: Report | None
    at: float
    status: str


class Reports:
    """The reports of one cluster; those of what has ended are read once."""

    def __init__(self, client: RayClient) -> None:
        self._client = client
        self._read: dict[AllocationId, _Read] = {}
        self._limit = anyio.Semaphore(AT_ONCE)

    async def of(self, known: Iterable[Known]) -> dict[AllocationId, Report | None]:
        """Return the report of each of *known*; None where there is none."""
        all_known = list(known)
        fresh_s = max(FRESH_S, EACH_S * sum(one.live for one in all_known))
        async with anyio.create_task_group() as group:
            for one in all_known:
                if self._is_due(one, fresh_s):
                    group.start_soon(self._refresh, one)
        return {
            one.allocation_id: self._read[one.allocation_id].report
            if one.allocation_id in self._read
            else None
            for one in all_known
        }

    async def fresh(self, known: Known) -> Report | None:
        """Return the report of *known* as it is now."""
        if self._is_due(known, 0.0):
            await self._refresh(known)
        read = self._read.get(known.allocation_id)
        return read.report if read else None

    def keep_only(self, ids: Iterable[AllocationId]) -> None:
        """Forget those that Ray no longer knows."""
        kept = set(ids)
        self._read = {name: read for name, read in self._read.items() if name in kept}

    async def minutes(self, known: Known) -> list[UsageMinute]:
        """Return the last day of an allocation's minutes; none where they are gone."""
        main = known.main
        if main is None or main.driver_node_id is None:
            return []
        name = f"yunhe/{known.allocation_id}/minutes.jsonl"
        try:
            data = await self._client.read_file(main.driver_node_id, name, lines=MINUTES_KEPT)
        except NotFoundError:
            return []
        return [msgspec.json.decode(line, type=UsageMinute) for line in data.splitlines()]

    def _is_due(self, known: Known, fresh_s: float) -> bool:
        if known.main is None or known.main.driver_node_id is None:
            return False
        read = self._read.get(known.allocation_id)
        if read is None or read.status != known.main.status:
            return True
        return known.live and time.monotonic() - read.at >= fresh_s

    async def _refresh(self, known: Known) -> None:
        """Read a report anew; what was read before stands where the node does not answer any more."""
        main = known.main
        if main is None or main.driver_node_id is None:
            return
        before = self._read.get(known.allocation_id)
        try:
            async with self._limit:
                data = await self._client.read_file(
                    main.driver_node_id, f"yunhe/{known.allocation_id}/report.json"
                )
            report = msgspec.json.decode(data, type=Report) if data else None
        except NotFoundError:
            report = before.report if before else None
        except PoolUnreachableError:
            if known.live:
                return  # the dashboard cannot reach its node just now; the next look may
            report = before.report if before else None
        self._read[known.allocation_id] = _Read(report, time.monotonic(), main.status)
