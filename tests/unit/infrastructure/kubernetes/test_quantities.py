"""Quantities are read as Kubernetes reads them."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from yunhe.infrastructure.kubernetes.objects.quantities import mib, millis, parse_quantity
from yunhe.kernel.errors import PoolUnreachableError


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("1", 1),
        ("250m", Decimal("0.25")),
        ("1.5", Decimal("1.5")),
        ("512Mi", 512 * 2**20),
        ("1e3", 1000),
        ("2k", 2000),
        ("1E", 10**18),
        ("5n", Decimal("5e-9")),
        ("12E2", 1200),
        (".5", Decimal("0.5")),
    ],
)
def test_a_quantity_is_what_it_says(text: str, number: Decimal) -> None:
    assert parse_quantity(text) == number


@pytest.mark.parametrize("text", ["", "Mi", "1 Mi", "one", "1X", "0x10", "1mm"])
def test_what_is_no_quantity_is_refused(text: str) -> None:
    with pytest.raises(PoolUnreachableError, match="is not a quantity"):
        parse_quantity(text)


@given(cpu=st.integers(0, 10**6), memory=st.integers(0, 10**7))
def test_what_we_write_is_what_we_read(cpu: int, memory: int) -> None:
    assert millis(f"{cpu}m") == cpu
    assert mib(f"{memory}Mi") == memory
