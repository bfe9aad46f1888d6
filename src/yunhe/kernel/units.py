"""Reading and writing amounts the way people do: ``1.5``, ``500m``, ``16GB``, ``2h``."""

import re

MIB = 1024 * 1024

_MEMORY_UNITS_MIB = {
    "": 1024.0,  # a bare number is GiB, as in SkyPilot
    "K": 1 / 1024,
    "M": 1.0,
    "G": 1024.0,
    "T": 1024.0 * 1024,
}
_DURATION_UNITS_S = {"": 1.0, "ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_AMOUNT = re.compile(r"(\d+(?:\.\d+)?)\s*([A-Za-z]*)")


def _split(text: str, what: str, example: str) -> tuple[float, str]:
    match = _AMOUNT.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is not {what}; write it like {example}")
    return float(match[1]), match[2]


def parse_cpu_millis(value: str | float) -> int:
    """Return thousandths of a core for ``2``, ``0.5`` or ``500m``."""
    number, unit = _split(str(value), "a number of cores", "2, 0.5 or 500m")
    if unit not in {"", "m"}:
        raise ValueError(f"{value!r} is not a number of cores; write it like 2, 0.5 or 500m")
    return round(number if unit == "m" else number * 1000)


def parse_memory_mib(value: str | float) -> int:
    """Return MiB for ``16`` (GiB), ``16GB``, ``512Mi`` or ``1.5G``; powers of 1024 throughout."""
    number, unit = _split(str(value), "an amount of memory", "16 (GiB), 16GB or 512MB")
    letter = unit.upper().removesuffix("IB").removesuffix("I").removesuffix("B")
    if letter not in _MEMORY_UNITS_MIB:
        raise ValueError(f"{value!r} is not an amount of memory; write it like 16 (GiB), 16GB or 512MB")
    return round(number * _MEMORY_UNITS_MIB[letter])


def parse_duration_s(value: str | float) -> float:
    """Return seconds for ``90``, ``90s``, ``1.5h`` or ``2d``."""
    number, unit = _split(str(value), "a duration", "90s, 10m or 2h")
    if unit not in _DURATION_UNITS_S:
        raise ValueError(f"{value!r} is not a duration; write it like 90s, 10m or 2h")
    return number * _DURATION_UNITS_S[unit]


def show_cpu(cpu_millis: int) -> str:
    """Return cores, as short as it is exact: ``2``, ``0.5``."""
    return f"{cpu_millis / 1000:g}"


def show_memory(memory_mib: float) -> str:
    """Return memory in the unit a person would choose: ``512 MiB``, ``1.5 GiB``."""
    if memory_mib < 1024:
        return f"{memory_mib:.3g} MiB"
    return f"{memory_mib / 1024:.3g} GiB"


def show_duration(seconds: float) -> str:
    """Return a duration as people say it: ``0.8 s``, ``4 min``, ``3.2 h``."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    if seconds < 3600:
        return f"{seconds / 60:.0f} min"
    if seconds < 172800:
        return f"{seconds / 3600:.1f} h"
    return f"{seconds / 86400:.1f} d"
