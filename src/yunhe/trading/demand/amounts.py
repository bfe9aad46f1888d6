"""Amounts as people write them in a task → exact numbers, or a ``ValueError`` that says how to write them."""

import calendar
import math
import posixpath
import re

from yunhe.kernel.resources import Accelerators
from yunhe.kernel.units import parse_cpu_millis, parse_duration_s, parse_memory_mib

MOST_CORES = 100_000
MOST_MEMORY_MIB = 1024 * 1024 * 1024
MOST_ACCELERATORS = 10_000
MOST_MBPS = 1e9
LONGEST_S = 366 * 86400.0
LONGEST_GRACE_S = 86400.0
MOST_LOG_MIB = 16 * 1024
LEAST_CPU_MILLIS = 10  # the smallest share the kernel's scheduler can hold a group to
LAST_PORT = 65_535
_PORTS = re.compile(r"(\d{1,5})(?:-(\d{1,5}))?", re.ASCII)
_BANDWIDTH = re.compile(r"(\d+(?:\.\d+)?)\s*(?:([KMG])(?:bps|bit/s))?", re.ASCII | re.IGNORECASE)
_TIME = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[T ](\d\d):(\d\d)(?::(\d\d)(?:\.\d+)?)?"
    r"(?P<zone>Z|[+-](?P<ahead_h>\d\d):?(?P<ahead_m>\d\d))?",
    re.ASCII,
)
_MBPS = {"K": 0.001, "M": 1.0, "G": 1000.0}


def cpu_millis(value: str | float) -> int:
    """Return thousandths of a core for ``4``, ``4+`` (at least four), ``0.5`` or ``500m``."""
    millis = parse_cpu_millis(_at_least(value))
    if not LEAST_CPU_MILLIS <= millis <= MOST_CORES * 1000:
        raise ValueError(f"must be between {LEAST_CPU_MILLIS / 1000:g} and {MOST_CORES} cores")
    return millis


def memory_mib(value: str | float) -> int:
    """Return MiB for ``16`` (GiB), ``16+``, ``16GB`` or ``512MB``."""
    mib = parse_memory_mib(_at_least(value))
    if not 1 <= mib <= MOST_MEMORY_MIB:
        raise ValueError("must be between 1 MiB and 1 PiB")
    return mib


def accelerators(value: str | dict[str, float]) -> tuple[Accelerators, ...]:
    """Return what ``A100``, ``A100:2``, ``A100:0.5`` or ``{A100: 2}`` asks for."""
    if isinstance(value, dict):
        if len(value) != 1:
            raise ValueError("names one kind at a time; for one kind or another list them under any_of")
        ((kind, count),) = value.items()
    else:
        kind, colon, text = value.partition(":")
        try:
            count = float(text.removesuffix("+")) if colon else 1.0
        except ValueError:
            raise ValueError("must be like A100, A100:2 or A100:0.5") from None
    if not kind or not all(letter.isalnum() or letter in "-_." for letter in kind):
        raise ValueError("must begin with a kind such as A100, then a colon and a count")
    return (Accelerators(kind, _accelerator_milli(count)),)


def _accelerator_milli(count: float) -> int:
    if not (math.isfinite(count) and 0.001 <= count <= MOST_ACCELERATORS):
        raise ValueError(f"must ask for between 0.001 and {MOST_ACCELERATORS} of them")
    if count > 1 and count != int(count):
        raise ValueError("can share one (A100:0.5) or take whole ones (A100:2), not a mixture")
    return round(count * 1000)


def duration_s(value: str | float) -> float:
    """Return seconds for ``90``, ``90s``, ``10m`` or ``2h``."""
    seconds = parse_duration_s(value)
    if not 0 < seconds <= LONGEST_S:
        raise ValueError("must be more than 0 and at most 366 days")
    return seconds


def ports(value: object) -> range:
    """Return the ports of ``8080`` or ``8080-8090``."""
    said = f"{value}" if isinstance(value, str | int) and not isinstance(value, bool) else ""
    found = _PORTS.fullmatch(said)
    first, last = (int(found[1]), int(found[2] or found[1])) if found else (0, 0)
    if not 0 < first <= last <= LAST_PORT:
        raise ValueError(f"must be a port from 1 to {LAST_PORT}, or a range such as 8080-8090")
    return range(first, last + 1)


def grace_s(value: str | float) -> float:
    """Return seconds for ``0``, ``30s`` or ``5m``."""
    seconds = parse_duration_s(value)
    if not 0 <= seconds <= LONGEST_GRACE_S:
        raise ValueError("must be from 0 to 1 day")
    return seconds


def log_limit_bytes(value: str | float) -> int:
    """Return bytes for ``64MB`` or ``1GB``."""
    mib = memory_mib(value)
    if not 1 <= mib <= MOST_LOG_MIB:
        raise ValueError("must be between 1 MB and 16 GB")
    return mib * 2**20


def moment(value: str | float, now: float = 0.0) -> float:
    """Return when ``2h`` from *now* is, or ``2026-12-01T08:00:00+08:00``, in seconds since the epoch."""
    text = str(value).strip()
    if "T" not in text and "-" not in text:
        return now + duration_s(value)
    match = _TIME.fullmatch(text)
    if match is None:
        raise ValueError("must be like 2h (from submission) or 2026-12-01T08:00:00+08:00")
    year, month, day, hour, minute, second = (int(part or 0) for part in match.groups()[:6])
    if not (year >= 1970 and 1 <= month <= 12 and 1 <= day <= calendar.monthrange(year, month)[1]):
        raise ValueError("must be a day that there is, from 1970 on")
    if hour > 23 or minute > 59 or second > 59:
        raise ValueError("must be a time of day from 00:00:00 to 23:59:59")
    if match["zone"] is None:
        raise ValueError("needs its time zone: end it with Z or with +08:00")
    sign = -1 if match["zone"].startswith("-") else 1
    ahead_s = sign * (int(match["ahead_h"] or 0) * 3600 + int(match["ahead_m"] or 0) * 60)
    return float(calendar.timegm((year, month, day, hour, minute, second)) - ahead_s)


def bandwidth_mbps(value: str | float) -> float:
    """Return Mbit/s for ``100``, ``100Mbps`` or ``2.5Gbps``."""
    match = _BANDWIDTH.fullmatch(str(value).strip())
    if match is None:
        raise ValueError(f"{value!r} is not a bandwidth; write it like 100 (Mbit/s), 100Mbps or 2.5Gbps")
    mbps = float(match[1]) * _MBPS[(match[2] or "M").upper()]
    if not 0 < mbps <= MOST_MBPS:
        raise ValueError("must be more than 0 and at most 1000000 Gbps")
    return mbps


def latency_ms(value: str | float) -> float:
    """Return milliseconds for ``10ms`` or ``0.5s``; a bare number could be either and is refused."""
    if str(value).strip()[-1:].isdigit():
        raise ValueError("needs its unit; write it like 10ms or 0.5s")
    return duration_s(value) * 1000


def _at_least(value: str | float) -> str:
    return str(value).strip().removesuffix("+")


def inner_path(text: str) -> str:
    """Return *text* as a path inside the job's directory, or refuse one that would leave it.

    ``~`` is that directory, since a job's home is where it runs.
    """
    if "\0" in text or "\n" in text:
        raise ValueError("must not contain line breaks or NUL")
    inner = "." if text == "~" else text.removeprefix("~/")
    if inner.startswith("/"):
        raise ValueError("must be inside the job's directory, so relative (or ~/…)")
    if inner.startswith("~"):
        raise ValueError("cannot be in another user's home; write it relative")
    path = posixpath.normpath(inner) if inner else ""
    if not path or path == ".." or path.startswith("../"):
        raise ValueError("must stay inside the job's directory")
    return path
