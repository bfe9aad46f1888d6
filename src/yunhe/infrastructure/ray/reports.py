"""Reading what our runners tell on their nodes, no more often than is good for the dashboard in between."""

import time
from collections.abc import Iterable
from typing import NamedTuple

import anyio
import msgspec

from yunhe.infrastructure.contract.model import UsageMinute
from yunhe.infrastructure.ray.client import RayClient
from yunhe.infrastructure.ray.marks import RayAllocation
from yunhe.infrastructure.ray.wire import RayReport, ReportReading
from yunhe.kernel.errors import NotFoundError, PoolUnreachableError, UnsupportedError
from yunhe.kernel.ids import AllocationId

AT_ONCE = 8
FRESH_S = 0.5
"""A report younger than this is as good as a new one …"""
EACH_S = 0.02
"""… and with many running, each has so much more time: a thousand are read every twenty seconds."""
MINUTES_KEPT = 1440


class _Read(NamedTuple):
    reading: ReportReading
    at: float
    status: str


class Reports:
    """The reports of one cluster; those of what has ended are read once."""

    def __init__(self, client: RayClient) -> None:
        self._client = client
        self._read: dict[AllocationId, _Read] = {}
        self._limit = anyio.Semaphore(AT_ONCE)

    async def of(self, known: Iterable[RayAllocation]) -> dict[AllocationId, ReportReading]:
        """Return what is to be read of each of *known*."""
        all_known = list(known)
        fresh_s = max(FRESH_S, EACH_S * sum(one.live for one in all_known))
        try:
            async with anyio.create_task_group() as group:
                for one in all_known:
                    if self._is_due(one, fresh_s):
                        group.start_soon(self._refresh, one)
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from None  # each says the same of the same dashboard
        return {one.allocation_id: self._known(one) for one in all_known}

    async def fresh(self, known: RayAllocation) -> ReportReading:
        """Return what is to be read of *known* now."""
        if self._is_due(known, 0.0):
            await self._refresh(known)
        return self._known(known)

    def _known(self, known: RayAllocation) -> ReportReading:
        read = self._read.get(known.allocation_id)
        return read.reading if read else ReportReading()

    def keep_only(self, ids: Iterable[AllocationId]) -> None:
        """Forget those that Ray no longer knows."""
        kept = set(ids)
        self._read = {name: read for name, read in self._read.items() if name in kept}

    async def minutes(self, known: RayAllocation) -> list[UsageMinute]:
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

    def _is_due(self, known: RayAllocation, fresh_s: float) -> bool:
        if known.main is None or known.main.driver_node_id is None:
            return False
        read = self._read.get(known.allocation_id)
        if read is None or read.status != known.main.status:
            return True
        settled = read.reading.certain and not known.live
        return not settled and time.monotonic() - read.at >= fresh_s

    async def _refresh(self, known: RayAllocation) -> None:
        """Read a report anew; what was read before stands where the node does not answer any more."""
        main = known.main
        if main is None or main.driver_node_id is None:
            return
        before = self._known(known).report
        name = f"yunhe/{known.allocation_id}/report.json"
        try:
            async with self._limit:
                data = await self._client.read_file(main.driver_node_id, name)
            reading = ReportReading(msgspec.json.decode(data, type=RayReport))
        except NotFoundError:
            reading = ReportReading(before)
        except PoolUnreachableError:
            reading = ReportReading(before, certain=False)
        except msgspec.ValidationError as error:
            raise UnsupportedError(f"The report {name} is not one we know: {error}.") from None
        except msgspec.DecodeError:
            # It is replaced whole, but Ray reads piece by piece, and may answer nothing at all: ask again.
            reading = ReportReading(before, certain=False)
        self._read[known.allocation_id] = _Read(reading, time.monotonic(), main.status)
