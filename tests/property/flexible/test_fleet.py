"""Admission against many hosts at once: exact convolution is the judge."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lab.oversubscription.printed import convolved

from yunhe.flexible.placing.fleet import AlignedFleet, SpectralFleet
from yunhe.flexible.profiles.histogram import Grid, Histogram, grid_for_host, histogram

CAPACITY = 16.0
GRID = grid_for_host(CAPACITY, 128)
TOLERANCE = {np.float32: 2e-6, np.float64: 1e-12}


def instances(seed: int, count: int) -> list[Histogram]:
    random = np.random.default_rng(seed)
    return [histogram(random.gamma(0.7, 1.2, 50).clip(0, 4), GRID) for _ in range(count)]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@given(seed=st.integers(0, 10_000), residents=st.lists(st.integers(0, 3), min_size=0, max_size=6))
@settings(max_examples=20)
def test_the_probability_within_capacity_is_that_of_exact_convolution(
    dtype: type[np.float32] | type[np.float64], seed: int, residents: list[int]
):
    """At most seven instances of at most four cores: no sum reaches twice the capacity, so nothing wraps."""
    pool = instances(seed, len(residents) + 1)
    fleet = SpectralFleet(4, GRID, CAPACITY, dtype)
    on_host: list[list[Histogram]] = [[] for _ in range(4)]
    for number, host in enumerate(residents):
        fleet.add(host, str(number), fleet.spectrum(pool[number]))
        on_host[host].append(pool[number])
    newcomer = pool[-1]
    found = fleet.probability_within(fleet.spectrum(newcomer))
    for host, members in enumerate(on_host):
        exact = 1 - convolved([*members, newcomer]).probability_above(CAPACITY)
        assert found[host] == pytest.approx(exact, abs=TOLERANCE[dtype])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@given(seed=st.integers(0, 10_000), count=st.integers(1, 6), leaving=st.integers(0, 5))
@settings(max_examples=20)
def test_adding_and_removing_an_instance_changes_nothing_beyond_the_stated_error(
    dtype: type[np.float32] | type[np.float64], seed: int, count: int, leaving: int
):
    pool = instances(seed, count + 1)
    fleet = SpectralFleet(1, GRID, CAPACITY, dtype)
    for number in range(count):
        fleet.add(0, str(number), fleet.spectrum(pool[number]))
    before = fleet.distribution(0)
    flat = Histogram(
        GRID, np.full(GRID.bins, 1 / GRID.bins), 1.0
    )  # its spectrum is zero but for one frequency
    for guest in (pool[-1], flat):
        fleet.add(0, "guest", fleet.spectrum(guest))
        fleet.remove(0, "guest")
    assert np.abs(fleet.distribution(0) - before).max() < TOLERANCE[dtype]


@given(st.integers(0, 10_000))
@settings(max_examples=15)
def test_a_batch_answers_as_one_by_one(seed: int):
    pool = instances(seed, 6)
    fleet = SpectralFleet(3, GRID, CAPACITY, np.float64)
    for number in range(3):
        fleet.add(number, "resident", fleet.spectrum(pool[number]))
    spectra = np.array([fleet.spectrum(one) for one in pool])
    together = fleet.probability_within(spectra)
    alone = np.stack([fleet.probability_within(one) for one in spectra], axis=1)
    assert np.allclose(together, alone)


def test_a_histogram_on_another_grid_is_refused():
    fleet = SpectralFleet(1, GRID, CAPACITY)
    with pytest.raises(ValueError, match="grids differ"):
        fleet.spectrum(histogram(np.ones(3), Grid(0.5, 64)))


@given(
    seed=st.integers(0, 10_000),
    hosts=st.integers(1, 5),
    slots=st.integers(1, 150),
    stated=st.floats(0, 0.3),
    members=st.integers(0, 12),
)
@settings(max_examples=40)
def test_the_aligned_fleet_counts_slots_as_an_obvious_loop_does(
    seed: int, hosts: int, slots: int, stated: float, members: int
):
    random = np.random.default_rng(seed)
    fleet = AlignedFleet(hosts, slots, 4.0)
    usage = np.zeros((hosts, slots))
    for _ in range(members):
        host, series = int(random.integers(hosts)), np.round(random.random(slots), 3)
        fleet.add(host, series)
        usage[host] += series
    extra = np.round(random.random(slots), 3)
    expected = [((row + extra) > 4.0 + 1e-6).sum() <= int(stated * slots + 1e-9) for row in usage]
    assert fleet.fits(extra, stated).tolist() == expected


@given(st.integers(0, 10_000), st.integers(1, 20))
@settings(max_examples=30)
def test_the_aligned_fleet_is_exactly_as_before_once_an_instance_has_left(seed: int, members: int):
    random = np.random.default_rng(seed)
    fleet = AlignedFleet(1, 50, 8.0)
    for _ in range(members):
        fleet.add(0, random.random(50))
    before = fleet.usage(0)
    guest = random.random(50) * 3
    fleet.add(0, guest)
    fleet.remove(0, guest)
    assert (fleet.usage(0) == before).all()
