"""Decoding of our types, prepared before there are threads.

msgspec prepares a type when it is first decoded. Two threads that do so for the same type at once crash the process
(msgspec 0.22).
"""

from collections.abc import Iterator
from contextlib import suppress

import msgspec


def build_decoders() -> int:
    """Let msgspec prepare the decoding of every type that is loaded; return how many there are."""
    found = set(_below(msgspec.Struct))
    for each in found:
        with suppress(TypeError, NameError):  # one that is only ever encoded
            msgspec.json.Decoder(each)
    return len(found)


def _below(above: type[msgspec.Struct]) -> Iterator[type[msgspec.Struct]]:
    for each in above.__subclasses__():
        yield each
        yield from _below(each)
