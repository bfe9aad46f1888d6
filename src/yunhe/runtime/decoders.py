"""What msgspec knows of our types, built before there are threads that decode.

msgspec builds it for a type when the type is first decoded, and Python code runs meanwhile. Two threads that do this
for the same type at once end the process by a fault of memory (msgspec 0.22).
"""

from collections.abc import Iterator
from contextlib import suppress

import msgspec


def build_decoders() -> int:
    """Build it for every type that is loaded; return how many there are."""
    found = set(_below(msgspec.Struct))
    for each in found:
        with suppress(TypeError, NameError):  # one that is only ever encoded
            msgspec.json.Decoder(each)
    return len(found)


def _below(above: type[msgspec.Struct]) -> Iterator[type[msgspec.Struct]]:
    for each in above.__subclasses__():
        yield each
        yield from _below(each)
