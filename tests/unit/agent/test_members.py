"""Archives that nobody vouches for are read within bounds, on hosts and in the server alike."""

import gzip
import io
import tarfile
import tracemalloc
from collections.abc import Callable
from hashlib import sha256

import pytest

from yunhe.agent.files import members
from yunhe.agent.files.members import NOT_AN_ARCHIVE, members_of
from yunhe.agent.protocol.refusals import TOO_LARGE, Refusal
from yunhe.infrastructure.contract.archives import read_archive
from yunhe.infrastructure.contract.model import Upload
from yunhe.kernel.errors import InvalidInputError, TooLargeError
from yunhe.kernel.ids import AllocationId, ProjectId
from yunhe.kernel.resources import Resources

MIB = 2**20
MOST_MEMORY = 8 * MIB


def header(kind: bytes, size: int, name: str = "name") -> bytes:
    member = tarfile.TarInfo(name)
    member.type, member.size = kind, size
    return member.tobuf(tarfile.GNU_FORMAT)


def repeated(block: bytes, count: int) -> bytes:
    """Return *block* many times over, compressed piece by piece."""
    output = io.BytesIO()
    with gzip.GzipFile(fileobj=output, mode="wb", compresslevel=1) as file:
        for _ in range(count):
            file.write(block)
    return output.getvalue()


def after(first: bytes, count: int) -> bytes:
    """Return an archive that begins with *first* and goes on with *count* MiB; gzip streams may follow each other."""
    return gzip.compress(first) + repeated(b"a" * MIB, count)


def negative() -> bytes:
    block = bytearray(header(tarfile.REGTYPE, 0))
    block[124:136] = b"\xff" * 11 + b"\0"
    block[148:156] = b" " * 8
    block[148:156] = f"{sum(block):06o}\0 ".encode()
    return gzip.compress(bytes(block) + bytes(1024))


def sparse() -> bytes:
    """Return a member whose map of holes has no end."""
    said = b"22 GNU.sparse.major=1\n22 GNU.sparse.minor=0\n"
    pax = header(tarfile.XHDTYPE, len(said)) + said.ljust(512, b"\0")
    return after(pax + header(tarfile.REGTYPE, 64 * MIB) + b"9" * 512, 64)


HOSTILE: dict[str, Callable[[], bytes]] = {
    "long-name": lambda: after(header(tarfile.GNUTYPE_LONGNAME, 64 * MIB), 64),
    "long-link": lambda: after(header(tarfile.GNUTYPE_LONGLINK, 64 * MIB), 64),
    "pax": lambda: after(header(tarfile.XHDTYPE, 64 * MIB), 64),
    "pax-global": lambda: repeated(header(tarfile.XGLTYPE, 512) + b"16 comment=abcd\n" * 32, 10_000),
    "headers-in-a-row": lambda: repeated(header(tarfile.GNUTYPE_LONGNAME, 512) + b"a" * 512, 50_000),
    "sparse": sparse,
    "negative-size": negative,
    "deep": lambda: gzip.compress(header(tarfile.GNUTYPE_LONGNAME, 2000) + (b"d/" * 1000).ljust(2048, b"\0") + header(b"5", 0)),
}  # fmt: skip


def read(archive: bytes, limit_bytes: int = 2**36) -> list[str]:
    return [member.name for _, member, _ in members_of(io.BytesIO(archive), limit_bytes)]


@pytest.mark.parametrize("case", HOSTILE)
def test_a_hostile_header_is_refused_in_little_memory(case: str) -> None:
    archive = HOSTILE[case]()
    tracemalloc.start()
    try:
        with pytest.raises(Refusal):
            read(archive)
        assert tracemalloc.get_traced_memory()[1] < MOST_MEMORY
    finally:
        tracemalloc.stop()


async def upload(archive: bytes, resources: Resources = Resources()) -> bytes:  # noqa: B008 - frozen
    async def chunks() -> object:
        yield archive

    order = Upload(
        allocation_id=AllocationId("a"),
        token=1,
        project_id=ProjectId("p"),
        path="data",
        digest=sha256(archive).hexdigest(),
        size_bytes=len(archive),
        resources=resources,
    )
    return await read_archive(order, chunks())  # pyright: ignore[reportArgumentType]


@pytest.mark.anyio
@pytest.mark.parametrize("case", HOSTILE)
async def test_the_server_refuses_the_same(case: str) -> None:
    archive = HOSTILE[case]()
    tracemalloc.start()
    try:
        with pytest.raises((InvalidInputError, TooLargeError)):
            await upload(archive)
        assert tracemalloc.get_traced_memory()[1] < MOST_MEMORY + 3 * len(archive)
    finally:
        tracemalloc.stop()


@pytest.mark.anyio
async def test_what_unpacks_to_more_than_the_disk_limit_is_refused() -> None:
    bomb = gzip.compress(header(tarfile.REGTYPE, 3 * MIB) + bytes(3 * MIB) + bytes(1024))
    with pytest.raises(TooLargeError):
        await upload(bomb, Resources(disk_mib=2))
    assert await upload(bomb, Resources(disk_mib=4)) == bomb


def test_too_many_members_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(members, "MAX_MEMBERS", 100)
    assert len(read(repeated(header(tarfile.REGTYPE, 0), 100))) == 100
    with pytest.raises(Refusal) as refused:
        read(repeated(header(tarfile.REGTYPE, 0), 101))
    assert refused.value.code == TOO_LARGE


@pytest.mark.parametrize("form", [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT, tarfile.USTAR_FORMAT])
def test_a_good_archive_of_any_form_is_read(form: int) -> None:
    output = io.BytesIO()
    names = ["a", "b/" + "c" * 90, "ü/x"] + (["d/" + "e" * 250] if form != tarfile.USTAR_FORMAT else [])
    with tarfile.open(fileobj=output, mode="w:gz", format=form) as archive:
        for name in names:
            member = tarfile.TarInfo(name)
            member.size = 3
            archive.addfile(member, io.BytesIO(b"abc"))
    assert read(output.getvalue()) == names


@pytest.mark.parametrize(
    "archive", [b"", b"junk" * 100, gzip.compress(b"junk" * 1000, mtime=0)[:40]], ids=["empty", "junk", "cut"]
)
def test_what_is_no_archive_is_told_apart(archive: bytes) -> None:
    with pytest.raises(NOT_AN_ARCHIVE):
        read(archive)
