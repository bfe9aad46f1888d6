"""Reading and writing availabilities the way people do: ``0.99``, ``99.9%``, ``99.99172 %``."""

import math

SECONDS_PER_YEAR = 365.25 * 86400


def parse_availability(value: object) -> float:
    """Return the fraction for ``0.99``, ``"0.99"`` or ``"99%"``; whether it makes sense is judged later."""
    if isinstance(value, str):
        text = value.strip()
        if text.endswith("%"):
            return _number(text.removesuffix("%"), value) / 100
        return _number(text, value)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ValueError(f"{value!r} is not a number between 0 and 1; write it like 0.99 or 99%")  # noqa: TRY004 - the user's mistake, not ours
    return float(value)


def parse_target(value: object) -> float:
    """Return the fraction for ``99.99``, ``"99.99%"`` or ``0.9999``.

    People say "four nines" as 99.99 and write it as 0.9999: both are understood, and what lies between
    (1 to 50) is refused as a slip.
    """
    number = parse_availability(value)
    is_percent = isinstance(value, str) and value.strip().endswith("%")
    if not is_percent and 50 <= number < 100:
        number /= 100
    if not 0 < number < 1:
        raise ValueError(
            f"{value!r} is not a target; write 99.99, 99.99% or 0.9999 (100 % cannot be planned)"
        )
    return number


def show_percent(unavailability: float) -> str:
    """Return the availability in percent with three digits of what is missing: 1e-7 → ``99.9999900 %``."""
    missing_percent = 100 * unavailability
    if missing_percent <= 0:
        return "100 %"
    decimals = min(15, max(2, 2 - math.floor(math.log10(missing_percent))))
    return f"{100 - missing_percent:.{decimals}f} %"


def _number(text: str, original: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"{original!r} is not a number between 0 and 1; write it like 0.99 or 99%") from None
