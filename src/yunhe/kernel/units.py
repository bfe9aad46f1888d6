"""Reading and writing amounts the way people do: ``1.5``, ``500m``, ``16GB``, ``2h``; what is shown can be typed back."""

import re

KIB = 1024
MIB = 1024 * 1024
GIB = 1024 * MIB
LARGEST = 2**53
"""Beyond this a whole number no longer survives JSON or a float."""

_MEMORY_UNITS_MIB = {
    "": 1024.0,  # a bare number is GiB, as in SkyPilot
    "K": 1 / 1024,
    "M": 1.0,
    "G": 1024.0,
    "T": 1024.0 * 1024,
}
_DURATION_UNITS_S = {"": 1.0, "ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_AMOUNT = re.compile(r"(\d+(?:\.\d+)?)\s*([A-Za-z]*)", re.ASCII)
_MEMORY_UNIT = re.compile(r"(?:([KMGT])I?B?)?", re.IGNORECASE)


def parse_cpu_millis(value: str | float) -> int:
    """Return thousandths of a core for ``2``, ``0.5`` or ``500m``."""
    number, unit = _split(value, "a number of cores", "2, 0.5 or 500m")
    if unit not in {"", "m"}:
        raise ValueError(f"{value!r} is not a number of cores; write it like 2, 0.5 or 500m")
    return _whole(value, number if unit == "m" else number * 1000)


def parse_memory_mib(value: str | float) -> int:
    """Return MiB for ``16`` (GiB), ``16GB``, ``512Mi`` or ``1.5G``; powers of 1024 throughout."""
    number, unit = _split(value, "an amount of memory", "16 (GiB), 16GB or 512MB")
    letter = _MEMORY_UNIT.fullmatch(unit)
    if letter is None:
        raise ValueError(f"{value!r} is not an amount of memory; write it like 16 (GiB), 16GB or 512MB")
    amount = number * _MEMORY_UNITS_MIB[(letter[1] or "").upper()]
    if 0 < amount < 1:
        raise ValueError(f"{value!r} is less than can be given; write at least 1MB")
    return _whole(value, amount)


def parse_bytes(value: str | float) -> int:
    """Return bytes for ``4096``, ``512MiB``, ``20GB`` or ``1.5T``; powers of 1024 throughout."""
    number, unit = _split(value, "a number of bytes", "4096, 512MB or 20GB")
    letter = _MEMORY_UNIT.fullmatch("" if unit.upper() == "B" else unit)
    if letter is None:
        raise ValueError(f"{value!r} is not a number of bytes; write it like 4096, 512MB or 20GB")
    times = _MEMORY_UNITS_MIB[letter[1].upper()] * MIB if letter[1] else 1
    return _whole(value, number * times)


def parse_duration_s(value: str | float) -> float:
    """Return seconds for ``90``, ``90s``, ``1.5h`` or ``2d``."""
    number, unit = _split(value, "a duration", "90s, 10m or 2h")
    if unit not in _DURATION_UNITS_S:
        raise ValueError(f"{value!r} is not a duration; write it like 90s, 10m or 2h")
    return _countable(value, number * _DURATION_UNITS_S[unit])


def show_cpu(cpu_millis: int) -> str:
    """Return cores, as short as it is exact: ``2``, ``0.5``."""
    whole, rest = divmod(abs(cpu_millis), 1000)
    text = f"{whole}.{rest:03}".rstrip("0").rstrip(".")
    return f"-{text}" if cpu_millis < 0 else text


def show_memory(memory_mib: float) -> str:
    """Return memory in the unit a person would choose: ``512 MiB``, ``1.5 GiB``, ``2 TiB``."""
    amount, unit = memory_mib, "MiB"
    for larger in ("GiB", "TiB"):
        if abs(amount) < 1023.5:  # what would be shown as 1024 is shown as 1 of the next unit
            break
        amount, unit = amount / 1024, larger
    decimals = 0 if abs(amount) >= 99.95 else 1 if abs(amount) >= 9.995 else 2
    text = f"{amount:.{decimals}f}"
    return f"{text.rstrip('0').rstrip('.') if decimals else text} {unit}"


def show_duration(seconds: float) -> str:
    """Return a duration as people say it: ``0.8 s``, ``4 min``, ``3.2 h``."""
    if seconds < 59.95:  # what would be shown as 60 is shown as 1 of the next unit
        return f"{seconds:.1f} s"
    if seconds < 59.5 * 60:
        return f"{seconds / 60:.0f} min"
    if seconds < 47.95 * 3600:
        return f"{seconds / 3600:.1f} h"
    return f"{seconds / 86400:.1f} d"


def _split(value: str | float, what: str, example: str) -> tuple[float, str]:
    match = _AMOUNT.fullmatch(str(value).strip())
    if match is None:
        raise ValueError(f"{value!r} is not {what}; write it like {example}")
    return float(match[1]), match[2]


def _whole(value: str | float, amount: float) -> int:
    """Return *amount* to the nearest unit, but never nothing where something was asked for."""
    nearest = round(_countable(value, amount))
    return 1 if nearest == 0 and amount > 0 else nearest


def _countable(value: str | float, amount: float) -> float:
    if amount > LARGEST:
        shown = str(value) if len(str(value)) <= 20 else f"{str(value)[:17]}…"
        raise ValueError(f"{shown!r} is more than can be counted; write a smaller amount")
    return amount
