"""Admission of one instance against every host, beside the published loop and the memory's own speed.

Run with ``python -m bench.flexible``. Everything is measured in a process of its own, on one core, with
one thread; both ways must give the same answer before either is timed.
"""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from lab.oversubscription.printed import convolved, estimate_as_printed

from yunhe.flexible.placing.fleet import AlignedFleet, SpectralFleet
from yunhe.flexible.placing.packing import Spectra
from yunhe.flexible.profiles.histogram import Grid, Histogram, grid_for_host, histogram

CAPACITY = 64.0
BINS = 512
HOSTS = 10_000
MANY_HOSTS = 100_000
LOOPED_HOSTS = 1_000
DIFFERENT_HOSTS = 64
CACHE_BYTES = 32_000_000
SLOTS = 2016
BATCHES = (8, 64, 256)
LIMIT_MS = 1.0
"""The range in which one request against 10,000 hosts must stay (median, one core)."""


class MeasuredFleet(SpectralFleet):
    """A fleet that can be filled quickly and says how much a request reads."""

    def repeat_first(self, count: int) -> None:
        """Make every host like one of the first *count*, in turn."""
        source = np.arange(len(self._low)) % count
        self._low, self._high, self._tail = self._low[source], self._high[source], self._tail[source]
        self._members = [dict(self._members[host]) for host in source]

    def read_bytes(self, spectrum: Spectra) -> int:
        """Return how many bytes of hosts a request reads."""
        rest = self._where_the_rest_matters((spectrum * self._window)[self._split :])
        return self._low.nbytes + len(rest) * self._high.shape[1] * self._high.itemsize


class Timing(NamedTuple):
    """Milliseconds of many runs: the middle one, the fastest, and the slowest but one in a hundred."""

    median_ms: float
    best_ms: float
    p99_ms: float


def timed(work: Callable[[], object], runs: int) -> Timing:
    """Time *work* over and over; the first run is not counted."""
    work()
    taken: list[float] = []
    for _ in range(runs):
        started = time.perf_counter()
        work()
        taken.append(1000 * (time.perf_counter() - started))
    return Timing(float(np.median(taken)), min(taken), float(np.quantile(taken, 0.99)))


def empty_fleet(hosts: int) -> MeasuredFleet:
    """Return a fleet with one instance on each host: no spectrum vanishes, so everything must be read."""
    grid = grid_for_host(CAPACITY, BINS)
    fleet = MeasuredFleet(hosts, grid, CAPACITY)
    fleet.add(0, "alone", fleet.spectrum(newcomers(2, grid)[1]))
    fleet.repeat_first(1)
    return fleet


def filled_fleet(
    hosts: int, dtype: type[np.float32] | type[np.float64]
) -> tuple[MeasuredFleet, list[Histogram]]:
    """Return a fleet of 64 different hosts repeated over it, and what the instances on each of those use together.

    Each has 10 to 40 instances with a week of samples, so that they fill half to all of it.
    """
    random = np.random.default_rng(1)
    grid = grid_for_host(CAPACITY, BINS)
    fleet = MeasuredFleet(hosts, grid, CAPACITY, dtype)
    on_host: list[Histogram] = []
    for host in range(DIFFERENT_HOSTS):
        count = int(random.integers(10, 41))
        level = random.uniform(0.5, 0.9) * CAPACITY / count
        members = [histogram(random.gamma(0.8, level / 0.8, SLOTS).clip(0, 16), grid) for _ in range(count)]
        for number, member in enumerate(members):
            fleet.add(host, str(number), fleet.spectrum(member))
        on_host.append(convolved(members))
    fleet.repeat_first(DIFFERENT_HOSTS)
    return fleet, on_host


def newcomers(count: int, grid: Grid) -> list[Histogram]:
    """Return histograms of instances that ask to come in."""
    random = np.random.default_rng(2)
    return [histogram(random.gamma(1.0, 1.0, 2000).clip(0, 8), grid) for _ in range(count)]


def looped(on_host: list[Histogram], newcomer: Histogram, hosts: int) -> list[float]:
    """The published way: convolve each host's histogram with the newcomer's and walk the sum.

    The host's histogram is kept from before, cut to the same bins, so that the loop has no more to do.
    """
    on_host = [Histogram(newcomer.grid, one.mass[:BINS], 1.0) for one in on_host]
    return [estimate_as_printed(convolved([on_host[host % len(on_host)], newcomer])) for host in range(hosts)]


def check(fleet: SpectralFleet, on_host: list[Histogram], newcomer: Histogram) -> float:
    """Return the largest error against exact convolution; raise where it is not rounding."""
    found = fleet.probability_within(fleet.spectrum(newcomer))[: len(on_host)]
    exact = np.array([1 - convolved([one, newcomer]).probability_above(CAPACITY) for one in on_host])
    wrapped = np.array([convolved([one, newcomer]).probability_above(2 * CAPACITY - 1) for one in on_host])
    error = float((np.abs(found - exact) - wrapped).max())
    if error > 1e-5:
        raise AssertionError(f"the fleet differs from exact convolution by {error}")
    return error


def bandwidth_gb_s() -> tuple[float, float]:
    """Return what one core reads and copies from memory at best, in GB/s of bytes touched."""
    source = np.ones(50_000_000, dtype=np.float32)
    target = np.empty_like(source)
    read = timed(source.max, 15).best_ms
    copy = timed(lambda: np.copyto(target, source), 15).best_ms
    return source.nbytes / read / 1e6, 2 * source.nbytes / copy / 1e6


def measure() -> None:
    """Print every figure."""
    read_gb_s, copy_gb_s = bandwidth_gb_s()
    print(f"memory, one core: read {read_gb_s:.1f} GB/s, copy {copy_gb_s:.1f} GB/s")
    grid = grid_for_host(CAPACITY, BINS)
    arriving = newcomers(max(BATCHES), grid)
    spectrum = np.asarray(np.fft.rfft(arriving[0].mass), dtype=np.complex128)
    for hosts, runs in ((HOSTS, 200), (MANY_HOSTS, 20)):
        for dtype in (np.float32, np.float64):
            fleet, on_host = filled_fleet(hosts, dtype)
            error = check(fleet, on_host, arriving[0])
            one = timed(lambda fleet=fleet: fleet.probability_within(spectrum), runs)
            _say(f"{hosts:>7,} hosts × {BINS} bins, {np.dtype(dtype).name}", fleet, spectrum, one, read_gb_s)
            print(f"        largest error against exact convolution {error:.0e}")
            if hosts == HOSTS and dtype is np.float32:
                _beside_the_loop(on_host, arriving[0], one)
                _batches(fleet, arriving)
                _changes(fleet, spectrum)
    bare = empty_fleet(HOSTS)
    one = timed(lambda: bare.probability_within(spectrum), 200)
    _say(f"{HOSTS:>7,} hosts with one instance each, float32", bare, spectrum, one, read_gb_s)
    _aligned()


def _say(what: str, fleet: MeasuredFleet, spectrum: Spectra, one: Timing, read_gb_s: float) -> None:
    size = fleet.read_bytes(spectrum)
    moved = size / one.best_ms / 1e6
    cached = size < CACHE_BYTES and moved > read_gb_s
    where = "from the cache" if cached else f"{moved / read_gb_s:.0%} of what memory gives"
    print(
        f"{what}: {one.median_ms:.2f} ms a request (best {one.best_ms:.2f}, p99 {one.p99_ms:.2f}); "
        f"reads {size / 1e6:.0f} MB, at best {moved:.1f} GB/s: {where}"
    )


def _beside_the_loop(on_host: list[Histogram], newcomer: Histogram, one: Timing) -> None:
    started = time.perf_counter()
    looped(on_host, newcomer, LOOPED_HOSTS)
    loop_ms = 1000 * (time.perf_counter() - started) * HOSTS / LOOPED_HOSTS
    verdict = "within" if one.median_ms < LIMIT_MS else "OUTSIDE"
    print(
        f"        the published loop: {loop_ms / 1000:.1f} s ({LOOPED_HOSTS:,} hosts timed, scaled), "
        f"{loop_ms / one.median_ms:,.0f} times as long; {verdict} the range of {LIMIT_MS:g} ms"
    )


def _batches(fleet: SpectralFleet, arriving: list[Histogram]) -> None:
    for size in BATCHES:
        spectra = np.array([np.fft.rfft(one.mass) for one in arriving[:size]])
        taken = timed(lambda spectra=spectra: fleet.probability_within(spectra), 9)
        print(f"        a batch of {size}: {taken.median_ms / size:.3f} ms a request")


def _changes(fleet: SpectralFleet, spectrum: Spectra) -> None:
    def come_and_go() -> None:
        fleet.add(0, "guest", spectrum)
        fleet.remove(0, "guest")

    print(f"        adding and removing an instance: {1000 * timed(come_and_go, 200).median_ms:.0f} µs")


def _aligned() -> None:
    random = np.random.default_rng(3)
    fleet = AlignedFleet(HOSTS, SLOTS, CAPACITY)
    for host in range(HOSTS):
        fleet.add(host, random.random(SLOTS) * (30 + host % 40))
    extra = random.random(SLOTS) * 4
    taken = timed(lambda: fleet.fits(extra, 0.01), 20)
    print(
        f"{HOSTS:>7,} hosts × {SLOTS} slots, aligned sums: {taken.median_ms:.1f} ms a request (p99 {taken.p99_ms:.1f})"
    )


def main() -> None:
    """Measure in a fresh process: one thread, one core."""
    if os.environ.get("YUNHE_BENCH_CHILD"):
        if hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
        measure()
        return
    threads = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    child = {**os.environ, **threads, "YUNHE_BENCH_CHILD": "1"}
    subprocess.run([sys.executable, "-m", "bench.flexible"], env=child, check=True)


if __name__ == "__main__":
    main()
