"""Admission at scale: one new instance against every host at once.

A fleet holds many equal hosts; hosts of another size are another fleet. Two forms:

* ``SpectralFleet`` holds the Fourier transform φ of each host's usage distribution. The probability that a
  host stays within its capacity once an instance is added is linear in φ, so one instance against all hosts
  is one matrix–vector product, and a batch one matrix–matrix product.
* ``AlignedFleet`` holds what each host's instances used together, slot by slot.
"""

from typing import Any

import numba
import numpy as np
import numpy.typing as npt

from yunhe.flexible.placing.packing import MILLI, Counts, Spectra, series_fit, thousandths, within_window
from yunhe.flexible.profiles.histogram import Grid, Histogram
from yunhe.flexible.trace import Bools, Floats

Real = npt.NDArray[np.floating[Any]]

LOW_FREQUENCIES = 64


class SpectralFleet:
    """Hosts as spectra, in single or double precision.

    The spectrum of a sum of several instances all but vanishes at high frequencies, so each host is kept in
    two parts: the low frequencies, read for every request, and the rest with the largest magnitude in it. The
    rest is read only where that bound says it could move the answer.

    Removing an instance never divides by its spectrum, which may be nearly zero: the host is multiplied
    anew from those that stay, so nothing is left behind but the rounding of one product. In double
    precision probabilities are right to about 1e-12, in single to about 1e-6.
    """

    def __init__(self, hosts: int, grid: Grid, capacity: float, dtype: npt.DTypeLike = np.float32) -> None:
        self.grid = grid
        self._frequencies = grid.bins // 2 + 1
        self._split = min(LOW_FREQUENCIES, self._frequencies)
        self._negligible = 1e-7 if np.dtype(dtype) == np.float32 else 1e-13
        high = self._frequencies - self._split
        self._low: Real = np.zeros((hosts, 2 * self._split), dtype=dtype)
        self._high: Real = np.zeros((hosts, 2 * high), dtype=dtype)
        self._low[:, : self._split] = self._high[:, :high] = 1
        self._tail: Floats = np.ones(hosts)
        self._window = within_window(grid, capacity)
        self._members: list[dict[str, Spectra]] = [{} for _ in range(hosts)]

    def spectrum(self, usage: Histogram) -> Spectra:
        """Return the transform of an instance's histogram, which must be on the fleet's grid."""
        if usage.grid != self.grid:
            raise ValueError(f"grids differ: {usage.grid} and {self.grid}")
        return np.asarray(np.fft.rfft(usage.mass), dtype=np.complex128)

    def probability_within(self, spectra: Spectra) -> Floats:
        """Return the probability that each host stays within capacity with the instance added.

        *spectra* is one spectrum, or a batch of them as rows; then the answer has a column for each.
        """
        weighted = spectra * self._window
        low, high = weighted[..., : self._split], weighted[..., self._split :]
        answer = np.asarray(self._low @ _stacked(low, self._low.dtype).T)
        matters = self._where_the_rest_matters(high)
        rest = _stacked(high, self._high.dtype).T
        if 2 * len(matters) > len(self._high):
            answer += self._high @ rest  # picking most rows would copy them
        elif len(matters):
            answer[matters] += self._high[matters] @ rest
        return answer

    def _where_the_rest_matters(self, high: Spectra) -> npt.NDArray[np.intp]:
        reach = np.abs(high).sum(axis=-1).max(initial=0.0)
        return np.flatnonzero(self._tail * reach > self._negligible)

    def add(self, host: int, name: str, spectrum: Spectra) -> None:
        """Put an instance on a host."""
        self._members[host][name] = spectrum
        self._write(host, self._read(host) * spectrum)

    def remove(self, host: int, name: str) -> None:
        """Take an instance off a host."""
        del self._members[host][name]
        product = np.ones(self._frequencies, dtype=np.complex128)
        for spectrum in self._members[host].values():
            product *= spectrum
        self._write(host, product)

    def distribution(self, host: int) -> Floats:
        """Return the probability of each grid point on one host."""
        return np.fft.irfft(self._read(host), self.grid.bins)

    def _read(self, host: int) -> Spectra:
        low, high = (part[host].astype(np.float64).reshape(2, -1) for part in (self._low, self._high))
        return np.concatenate([low[0] + 1j * low[1], high[0] + 1j * high[1]])

    def _write(self, host: int, spectrum: Spectra) -> None:
        low, high = spectrum[: self._split], spectrum[self._split :]
        self._low[host] = _stacked(np.conj(low), self._low.dtype)
        self._high[host] = _stacked(np.conj(high), self._high.dtype)
        self._tail[host] = np.abs(high).max(initial=0.0)


def _stacked(values: Spectra, dtype: npt.DTypeLike) -> Real:
    """Return real parts, then negated imaginary parts, so that a real product is the real part of a complex one."""
    return np.concatenate([values.real, -values.imag], axis=-1).astype(dtype)


class AlignedFleet:
    """Hosts as the sums of their instances' series, in whole thousandths: adding and removing is exact."""

    def __init__(self, hosts: int, slots: int, capacity: float) -> None:
        self._sums: Counts = np.zeros((hosts, slots), dtype=np.int32)
        self._limit = int(np.floor(capacity * MILLI + 1e-6))

    def fits(self, series: Real, stated: float) -> Bools:
        """Return which hosts stay within capacity, but for the share *stated* of slots, with the instance."""
        allowed = int(np.floor(stated * self._sums.shape[1] + 1e-9))
        return _fits(self._sums, thousandths(series), self._limit, allowed)

    def add(self, host: int, series: Real) -> None:
        """Put an instance on a host."""
        self._sums[host] += thousandths(series)

    def remove(self, host: int, series: Real) -> None:
        """Take an instance off a host; *series* is what it was added with."""
        self._sums[host] -= thousandths(series)

    def usage(self, host: int) -> Floats:
        """Return what the host's instances use together, slot by slot."""
        return self._sums[host] / MILLI


@numba.njit(cache=True)
def _fits(sums: Counts, extra: Counts, limit: int, allowed: int) -> Bools:
    answer = np.zeros(sums.shape[0], dtype=np.bool_)
    for host in range(sums.shape[0]):
        answer[host] = series_fit(sums[host], extra, limit, allowed)
    return answer
