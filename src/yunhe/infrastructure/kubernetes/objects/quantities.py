"""Kubernetes' quantities: ``250m``, ``1.5``, ``512Mi``, ``1e3``, ``2k``."""

import re
from decimal import Decimal

from yunhe.kernel.errors import PoolUnreachableError

_QUANTITY = re.compile(r"([+-]?[0-9]*\.?[0-9]+|[+-]?[0-9]+\.)(?:[eE]([+-]?[0-9]+)|([a-zA-Z]*))")
_SCALES = {
    "": Decimal(1),
    "n": Decimal("1e-9"),
    "u": Decimal("1e-6"),
    "m": Decimal("1e-3"),
    "k": Decimal(10**3),
    "M": Decimal(10**6),
    "G": Decimal(10**9),
    "T": Decimal(10**12),
    "P": Decimal(10**15),
    "E": Decimal(10**18),
    "Ki": Decimal(2**10),
    "Mi": Decimal(2**20),
    "Gi": Decimal(2**30),
    "Ti": Decimal(2**40),
    "Pi": Decimal(2**50),
    "Ei": Decimal(2**60),
}
MIB = 2**20


def parse_quantity(text: str) -> Decimal:
    """Return a quantity as a number; one that is none raises ``PoolUnreachableError`` with its text."""
    match = _QUANTITY.fullmatch(text)
    if match is None or (match[3] or "") not in _SCALES:
        raise PoolUnreachableError(f"The cluster tells {text!r}, which is not a quantity of Kubernetes.")
    number = Decimal(match[1])
    return number.scaleb(int(match[2])) if match[2] else number * _SCALES[match[3] or ""]


def millis(text: str) -> int:
    """Return a cpu quantity in thousandths of a core, rounded down."""
    return int(parse_quantity(text) * 1000)


def mib(text: str) -> int:
    """Return a quantity of bytes in MiB, rounded down."""
    return int(parse_quantity(text) / MIB)
