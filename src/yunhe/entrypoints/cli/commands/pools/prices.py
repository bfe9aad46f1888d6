"""Prices as an operator writes them: ``cpu=0.05/h,mem=0.01/h,A100=12/h``."""

import re
from decimal import Decimal
from difflib import get_close_matches

from yunhe.kernel.errors import FieldProblem, InvalidInputError
from yunhe.kernel.money import MICROS, Prices

_PRICE = re.compile(r"(\d+(?:\.\d{1,6})?)(?:/(h|GiB|GB))?")
_HOURLY = {"cpu": "cpu_core_hour_micros", "mem": "memory_gib_hour_micros", "memory": "memory_gib_hour_micros"}
_PER_GIB = {"io": "io_gib_micros", "net": "network_gib_micros", "network": "network_gib_micros"}
EXAMPLE = "cpu=0.05/h,mem=0.01/h,io=0.001/GiB,A100=12/h"


def parse_prices(text: str) -> Prices:
    """Return the prices of tier high; cpu per core, mem per GiB, an accelerator per device."""
    amounts: dict[str, int] = {}
    devices: dict[str, int] = {}
    problems: list[FieldProblem] = []
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        word, _, price = part.partition("=")
        match = _PRICE.fullmatch(price)
        per = "GiB" if word in _PER_GIB else "h"
        if not word or match is None:
            problems.append(FieldProblem("--price", f"must be like {EXAMPLE}", part))
        elif match[2] and match[2].replace("GB", "GiB") != per:
            problems.append(
                FieldProblem("--price", f"{word} is priced per {per}", part, f"{word}={match[1]}/{per}")
            )
        else:
            micros = int(Decimal(match[1]) * MICROS)
            field = _HOURLY.get(word) or _PER_GIB.get(word)
            meant = get_close_matches(word.lower(), [*_HOURLY, *_PER_GIB], n=1, cutoff=0.75)
            if field is None and meant:
                problems.append(FieldProblem("--price", f"{word} is not a unit", part, meant[0]))
            elif field is None:
                devices[word] = micros
            else:
                amounts[field] = micros
    if problems or not (amounts or devices):
        raise InvalidInputError(
            "The prices cannot be read.",
            remedy=f"Write them like {EXAMPLE}.",
            fields=tuple(problems) or (FieldProblem("--price", "is empty"),),
        )
    return Prices(**amounts, accelerator_hour_micros=devices)
