"""Samples what runs and keeps its meters; the counters are written on each pod, so that they outlive this process."""

import logging
import time
from collections.abc import Callable

import anyio
import msgspec

from yunhe.infrastructure.contract.model import Meters, UsageMinute
from yunhe.infrastructure.kubernetes.api.answers import decode
from yunhe.infrastructure.kubernetes.api.client import Api
from yunhe.infrastructure.kubernetes.api.shapes import Key, Pod
from yunhe.infrastructure.kubernetes.api.store import Store
from yunhe.infrastructure.kubernetes.objects import names
from yunhe.infrastructure.kubernetes.objects.phases import (
    epoch,
    final_of,
    has_run,
    is_over,
    started_at,
    terminated_of,
)
from yunhe.infrastructure.kubernetes.objects.pods import path_of
from yunhe.infrastructure.kubernetes.objects.wrapper import read_note
from yunhe.infrastructure.kubernetes.usage.meters import Minutes, PodMeter
from yunhe.infrastructure.kubernetes.usage.stats import Stats
from yunhe.kernel.clock import Clock
from yunhe.kernel.errors import YunheError
from yunhe.kernel.ids import AllocationId

log = logging.getLogger(__name__)


class Metering:
    """The meters of every pod of ours."""

    def __init__(self, api: Api, stats: Stats, pods: Store[Pod], every_s: float, clock: Clock) -> None:
        self._api = api
        self._stats = stats
        self._pods = pods
        self._every_s = every_s
        self._clock = clock
        self._meters: dict[Key, PodMeter] = {}
        self._minutes = Minutes(first_seq=int(time.time() * 1_000_000))

    async def run(self, wanted: Callable[[], bool]) -> None:
        """Sample until cancelled, as long as anyone is interested."""
        while True:
            if wanted():
                # What is missed is counted as such, see gap_ms.
                try:
                    await self.sample()
                except YunheError:
                    pass
                except Exception:
                    log.exception("usage could not be sampled, will be again")
            await anyio.sleep(self._every_s)

    async def sample(self) -> None:
        """Take one sample of everything that runs."""
        running = [pod for pod in self._pods.all() if has_run(pod) and not is_over(pod)]
        if not running:
            return
        reading = await self._stats.read({pod.spec.node_name for pod in running})
        for pod in running:
            sample = reading.pods.get(pod.metadata.key)
            if sample is not None:
                meter = self._meter(pod)
                over = meter.add(sample)
                if over:
                    self._minutes.add(meter.allocation_id, over)
                    await self._write_down(pod)

    def meters(self, pod: Pod) -> Meters:
        """Return the counters of a pod as they are now."""
        final = final_of(pod)
        if final is not None:
            return final.meters
        began, ended = started_at(pod), terminated_of(pod)
        if began is None:
            return Meters()
        # The API tells whole seconds only; so do we while it runs, lest the end come before the present.
        until = epoch(ended.finished_at) if ended is not None else float(int(self._clock()))
        used = read_note(ended.message).used if ended is not None else None
        return self._meter(pod).meters(int(max(0.0, (until or began) - began) * 1000), used)

    def finish(self, pod: Pod) -> Meters:
        """Return the last word on a pod's meters, and hand out its open minute."""
        meters = self.meters(pod)
        meter, began, ended = self._meter(pod), started_at(pod), terminated_of(pod)
        if began is not None and ended is not None:
            self._minutes.add(meter.allocation_id, meter.rest(began, epoch(ended.finished_at) or began))
        return meters

    def forget(self, key: Key) -> None:
        """Let go of a pod that is gone."""
        self._meters.pop(key, None)
        self._stats.forget(key)

    def minutes(self, beyond: int) -> list[UsageMinute]:
        """Return the folded minutes after *beyond*."""
        return self._minutes.beyond(beyond)

    def _meter(self, pod: Pod) -> PodMeter:
        meter = self._meters.get(pod.metadata.key)
        if meter is None:
            held = pod.metadata.annotations.get(names.METERS)
            allocation_id = AllocationId(pod.metadata.annotations.get(names.ALLOCATION, ""))
            meter = PodMeter(allocation_id, decode(held, Meters) if held else Meters())
            self._meters[pod.metadata.key] = meter
        return meter

    async def _write_down(self, pod: Pod) -> None:
        text = msgspec.json.encode(self.meters(pod)).decode()
        body = {"metadata": {"uid": pod.metadata.uid, "annotations": {names.METERS: text}}}
        try:
            await self._api.patch(path_of("pods", pod.metadata.key), body)
        except YunheError:
            return  # it is written again a minute later
