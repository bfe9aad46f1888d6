"""The metrics of a server process, for Prometheus.

What a module counts or times, it registers with ``REGISTRY`` where it is defined. What has to be asked for (rows of the
database, states of pools) is registered with the platform's ``SampledMetrics``, and asked for when somebody scrapes, at
most every few seconds. Labels take few values: a route's template, a state, a pool; never a path, a user or a job.
"""

import logging
import platform
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping

import anyio
import anyio.to_thread
from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from yunhe import __version__
from yunhe.observability import logs

SAMPLED_EVERY_S = 5.0
SAMPLED_WITHIN_S = 5.0
LAG_EVERY_S = 0.5
FINE_BUCKETS_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
"""For what usually takes milliseconds."""

disable_created_metrics()  # a third of all lines, and nothing reads them
REGISTRY = CollectorRegistry()

log = logging.getLogger(__name__)

_BUILD = Gauge("yunhe_build_info", "Which version this is.", ["version", "python"], registry=REGISTRY)
_BUILD.labels(__version__, platform.python_version()).set(1)
_LAG = Histogram(
    "yunhe_event_loop_lag_seconds",
    "How late the event loop runs what is due.",
    registry=REGISTRY,
    buckets=FINE_BUCKETS_S,
)
_UNSAMPLED = Counter(
    "yunhe_metric_sample_failures_total", "Samples that could not be taken.", ["metric"], registry=REGISTRY
)
ProcessCollector(registry=REGISTRY)

Sample = Callable[[], Awaitable[Mapping[str, float]]]
"""Returns the value for each value of the metric's label."""


class SampledMetrics:
    """Metrics whose values are asked for when they are scraped."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._samples: dict[str, tuple[str, str, Sample]] = {}
        self._seen: dict[str, Metric] = {}
        self._seen_at = float("-inf")
        self._asking = anyio.Lock()
        self._registry = CollectorRegistry()
        self._registry.register(self)

    def add(self, name: str, help_text: str, label: str, sample: Sample) -> None:
        """Register the gauge *name*, with one label."""
        self._samples[name] = (help_text, label, sample)

    def collect(self) -> Iterable[Metric]:
        """Return what was last sampled."""
        return list(self._seen.values())

    async def exposition(self) -> bytes:
        """Return every metric of this process in Prometheus's text form."""
        async with self._asking:
            if self._clock() - self._seen_at >= SAMPLED_EVERY_S:
                await self._sample_all()
                self._seen_at = self._clock()
        return await anyio.to_thread.run_sync(
            lambda: generate_latest(REGISTRY) + generate_latest(self._registry)
        )

    async def _sample_all(self) -> None:
        """Ask for every sample; one that fails is left out until it can be taken again."""
        for name, (help_text, label, sample) in self._samples.items():
            self._seen.pop(name, None)
            try:
                with anyio.fail_after(SAMPLED_WITHIN_S):
                    values = await sample()
            except Exception:
                log.exception("metric could not be sampled", extra={"metric": name})
                _UNSAMPLED.labels(name).inc()
                continue
            self._seen[name] = _family(GaugeMetricFamily(name, help_text, labels=[label]), values)


class _LogLines:
    """Tells how many lines the log has got, and has lost."""

    def collect(self) -> Iterable[Metric]:
        written = CounterMetricFamily("yunhe_log_lines", "Lines of the log.", labels=["level"])
        yield _family(written, logs.lines_written)
        dropped = CounterMetricFamily("yunhe_log_lines_dropped", "Lines lost.", labels=["destination"])
        yield _family(dropped, logs.lines_dropped)


def _family(family: GaugeMetricFamily | CounterMetricFamily, values: Mapping[str, float]) -> Metric:
    """Return *family* with one sample for each value of its label."""
    for label, number in dict(values).items():
        family.add_metric([label], number)
    return family


REGISTRY.register(_LogLines())


async def measure_lag() -> None:
    """Measure how late the event loop is, until cancelled."""
    while True:
        due = anyio.current_time() + LAG_EVERY_S
        await anyio.sleep(LAG_EVERY_S)
        _LAG.observe(max(0.0, anyio.current_time() - due))
