"""What is fuzzed: each target makes an input by chance, feeds it, and lets through only the refusals it promises."""

import gzip
import io
import json
import struct
import tarfile
from collections.abc import Callable
from random import Random
from typing import Any

from yunhe.agent.files.members import NOT_AN_ARCHIVE, members_of
from yunhe.agent.protocol.calls import Call
from yunhe.agent.protocol.frames import Decoder, Frame, encode
from yunhe.agent.protocol.refusals import Refusal
from yunhe.agent.protocol.shapes import SHAPES, check_body

_TYPES = (b"0", b"\0", b"1", b"2", b"3", b"5", b"6", b"7", b"L", b"K", b"x", b"g", b"X", b"S", b"V", b"\xff")
_NAMES = ("a", "a/b", "../a", "/a", "", ".", "a//b", "d/" * 300, "ü", "x" * 99, "a\\b", "link/../..")
_SIZES = (0, 1, 2, 511, 512, 513, 4096, 20_000, 2**33, 2**63)
_PAX = (
    b"16 comment=abcd\n",
    b"9 path=x\n",
    b"99999 path=y\n",
    b"22 GNU.sparse.major=1\n",
    b"20 size=-5\n",
    b"=\n",
)
_LIMIT_BYTES = 1 << 20
_VALUES: tuple[Any, ...] = (
    *(
        None,
        True,
        -1,
        0,
        1,
        2**70,
        1.5,
        float("nan"),
        "",
        "a",
        "../x",
        "\0",
        [],
        {},
        [1],
        {"a": 1},
        "x" * 300,
        [24, 80],
        [99_999, 1],
    ),
    *({"cpu_millis": -1}, [{"name": "a", "script": "b"}], ["a"] * 5),
)

Target = Callable[[Random], str]
"""Takes one input; returns what came of it in a word."""


def archive(random: Random) -> str:
    """Read an archive of headers, contents and noise in any order."""
    data = b"".join(_block(random) for _ in range(random.randint(1, 5)))
    data = _changed(random, data + bytes(random.choice((0, 512, 1024))))
    packed = gzip.compress(data, 0)
    if random.random() < 0.1:
        packed = _changed(random, packed)
    try:
        for reader, member, _ in members_of(io.BytesIO(packed), _LIMIT_BYTES):
            if member.isreg() and (file := reader.extractfile(member)) is not None:
                file.read(1024)
    except Refusal:
        return "refused"
    except NOT_AN_ARCHIVE:
        return "no archive"
    return "read"


def _block(random: Random) -> bytes:
    member = tarfile.TarInfo(random.choice(_NAMES))
    member.type, member.size = random.choice(_TYPES), random.choice(_SIZES)
    member.linkname = random.choice(_NAMES) if random.random() < 0.3 else ""
    member.mode = random.choice((0o644, 0o7777, 0))
    try:
        block = member.tobuf(random.choice((tarfile.GNU_FORMAT, tarfile.USTAR_FORMAT, tarfile.PAX_FORMAT)))
    except ValueError:  # this form has no room for it
        block = member.tobuf(tarfile.GNU_FORMAT)
    content = b"".join(random.choices(_PAX, k=random.randint(0, 6)))
    length = min(member.size, 4096) if random.random() < 0.8 else random.randint(0, 2000)
    return block + content[:length].ljust(-(-length // 512) * 512, b"\0")


def _changed(random: Random, data: bytes) -> bytes:
    """Return *data* with a few bytes changed, some of them in the checksum's place and so found out at once."""
    changed = bytearray(data)
    for _ in range(random.choice((0, 0, 1, 2, 8))):
        changed[random.randrange(len(changed))] = random.randrange(256)
    return bytes(changed[: random.randint(1, len(changed))] if random.random() < 0.1 else changed)


def frames(random: Random) -> str:
    """Decode frames that come in any pieces, and take what they say."""
    data = b"".join(_frame(random) for _ in range(random.randint(1, 4)))
    data = _changed(random, data)
    decoder, call = Decoder(), Call(1, "logs", {}, lambda _data: None)
    call.on_window = _set_size
    try:
        while data:
            size = random.randint(1, len(data))
            for frame in decoder.feed(data[:size]):
                _take(call, frame)
            data = data[size:]
    except Refusal:
        return "refused"
    return "read"


def _set_size(rows: int, columns: int) -> None:
    struct.pack("HH", rows, columns)  # as a terminal wants it


def _take(call: Call, frame: Frame) -> None:
    if "verb" in frame.header:
        check_body(frame.header["verb"], frame.header.get("body", {}))
    else:
        call.take(frame)


def _frame(random: Random) -> bytes:
    chance = random.random()
    if chance < 0.1:
        return struct.pack(">II", random.choice((0, 5, 2**31)), random.choice((0, 7, 2**32 - 1))) + b"{}[]x"
    if chance < 0.5:
        kind = random.choice(("credit", "data", "window", "cancel", "id"))
        return encode(
            {"id": random.choice((1, 2, "1", None)), kind: random.choice(_VALUES)},
            random.randbytes(random.randint(0, 40)),
        )
    verb = random.choice((*SHAPES, "format", None))
    fields = (
        "allocation_id",
        "token",
        "resources",
        "steps",
        "envs",
        "paths",
        "path",
        "digest",
        "argv",
        "cores",
    )
    body = {name: random.choice(_VALUES) for name in random.sample(fields, random.randint(0, len(fields)))}
    text = json.dumps(
        {"id": 1, "verb": verb, "body": body if random.random() < 0.9 else random.choice(_VALUES)}
    )
    return struct.pack(">II", len(text), 0) + text.encode()


TARGETS: dict[str, Target] = {"archive": archive, "frames": frames}
