"""Money as integers: millionths of one currency unit, and how rates become amounts."""

from enum import StrEnum

import msgspec

MICROS = 1_000_000
CPU_US_PER_HOUR = 3_600_000_000  # core-microseconds in a core-hour
MIB_MS_PER_GIB_HOUR = 1024 * 3_600_000  # MiB-milliseconds in a GiB-hour
BYTES_PER_GIB = 1024**3


class Tier(StrEnum):
    """Flexible-computing service class; the price falls with it."""

    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"


class Prices(msgspec.Struct, frozen=True, omit_defaults=True):
    """What one hour of each resource costs at tier high, in micros of the currency."""

    cpu_core_hour_micros: int = 0
    memory_gib_hour_micros: int = 0
    io_gib_micros: int = 0
    network_gib_micros: int = 0
    accelerator_hour_micros: dict[str, int] = {}


def divide_up(numerator: int, denominator: int) -> int:
    """Return the quotient rounded half up, in integers, so that every party computes the same cent."""
    return (2 * numerator + denominator) // (2 * denominator)


def show_money(micros: int, symbol: str = "¥") -> str:
    """Return an amount with two decimals, or four when it is under one."""
    decimals = 2 if abs(micros) >= MICROS else 4
    whole, rest = divmod(divide_up(abs(micros) * 10**decimals, MICROS), 10**decimals)
    sign = "-" if micros < 0 and (whole or rest) else ""
    return f"{sign}{symbol}{whole}.{rest:0{decimals}}"
