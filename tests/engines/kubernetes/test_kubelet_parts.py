"""The parts of the test kubelet that need no cluster."""

import itertools
import struct
import zlib
from decimal import Decimal
from pathlib import Path

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engines.kubernetes.kubelet import quantities, spdy
from engines.kubernetes.kubelet.contents import expand
from engines.kubernetes.kubelet.logs import LogQuery, LogWriter, read_log


@pytest.mark.parametrize(
    ("text", "amount"),
    [
        ("500m", "0.5"),
        ("2", "2"),
        ("1.5", "1.5"),
        ("128Mi", 128 << 20),
        ("1k", 1000),
        ("1e3", 1000),
        ("3G", 3 * 10**9),
    ],
)
def test_a_quantity_means_what_kubernetes_means_by_it(text: str, amount: str | int) -> None:
    assert quantities.parse(text) == Decimal(amount)


@pytest.mark.parametrize("text", ["", "1 Gi", "i", "abc", "1Xi"])
def test_what_is_no_quantity_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a quantity"):
        quantities.parse(text)


def test_names_in_brackets_are_replaced_where_known_and_dollars_can_be_kept() -> None:
    assert expand("$(A) $(B) $$(A) $A", {"A": "one"}) == "one $(B) $(A) $A"


@given(pieces=st.lists(st.binary(max_size=20)))
def test_a_log_gives_back_every_byte_in_order(
    tmp_path_factory: pytest.TempPathFactory, pieces: list[bytes]
) -> None:
    path = tmp_path_factory.mktemp("log") / "log"
    writer = LogWriter(path)
    for piece in pieces:
        writer.write("stdout", piece)
    writer.close()
    assert anyio.run(whole, path) == b"".join(pieces)


async def whole(path: Path) -> bytes:
    """Return a log as read."""
    return b"".join([piece async for piece in read_log(path, LogQuery(), lambda: True)])


def test_the_dictionary_is_the_one_the_protocol_fixes() -> None:
    assert (len(spdy.DICTIONARY), zlib.adler32(spdy.DICTIONARY)) == (1423, 0xE3C6A7C2)


@given(cuts=st.lists(st.integers(0, 200), max_size=8))
def test_frames_mean_the_same_however_the_network_cuts_them(cuts: list[int]) -> None:
    pack = zlib.compressobj(zdict=spdy.DICTIONARY)
    block = b"".join(struct.pack("!I", len(word)) + word for word in (b"streamtype", b"stdin"))
    headers = pack.compress(struct.pack("!I", 1) + block) + pack.flush(zlib.Z_SYNC_FLUSH)
    body = struct.pack("!IIH", 1, 0, 0) + headers
    wire = struct.pack("!HHI", 0x8003, spdy.SYN_STREAM, len(body)) + body
    wire += struct.pack("!II", 1, 5) + b"hello" + struct.pack("!II", 1, spdy.FIN << 24)
    ends = sorted({min(cut, len(wire)) for cut in cuts} | {0, len(wire)})
    connection = spdy.Connection()
    events = [event for a, b in itertools.pairwise(ends) for event in connection.receive(wire[a:b])]
    assert events == [
        spdy.Opened(1, {"streamtype": "stdin"}),
        spdy.Data(1, b"hello", is_last=False),
        spdy.Data(1, b"", is_last=True),
    ]
