"""Kubernetes quantities: "500m", "1.5", "128Mi", "2G"."""

import re
from decimal import Decimal

_SUFFIXES = {
    "n": Decimal("1e-9"),
    "u": Decimal("1e-6"),
    "m": Decimal("1e-3"),
    "": Decimal(1),
    **{suffix: Decimal(1000) ** power for power, suffix in enumerate("kMGTPE", 1)},
    **{f"{suffix}i": Decimal(1024) ** power for power, suffix in enumerate("KMGTPE", 1)},
}


def parse(text: str | float) -> Decimal:
    """Return what *text* says, in units: cores, bytes, pieces."""
    found = re.fullmatch(r"([+-]?[0-9.]+(?:[eE][+-]?[0-9]+)?)([numkKMGTPE]?i?)", str(text))
    if found is None or found.group(2) not in _SUFFIXES:
        raise ValueError(f"{text!r} is not a quantity")
    return Decimal(found.group(1)) * _SUFFIXES[found.group(2)]


def millis(text: str | float) -> int:
    """Return a CPU quantity in thousandths of a core."""
    return int(parse(text) * 1000)


def mebibytes(text: str | float) -> int:
    """Return a memory quantity in MiB, rounded up."""
    return -int(-parse(text) // (1 << 20))
