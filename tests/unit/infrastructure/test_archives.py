"""An archive is refused for what its members would do together, not only for what each says by itself."""

import hashlib
import io
import tarfile

import pytest

from yunhe.conformance.caller import chunks_of
from yunhe.infrastructure.contract.archives import read_archive
from yunhe.infrastructure.contract.model import Upload
from yunhe.kernel.errors import InvalidInputError
from yunhe.kernel.ids import AllocationId, ProjectId

pytestmark = pytest.mark.anyio

Member = tuple[str, bytes, str]
"""Name, type, and where it leads if it is a link."""


def archive(*members: Member) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, kind, target in members:
            info = tarfile.TarInfo(name)
            info.type, info.linkname = kind, target
            tar.addfile(info)
    return buffer.getvalue()


async def read(data: bytes) -> bytes:
    upload = Upload(
        allocation_id=AllocationId("alloc_1"),
        token=1,
        project_id=ProjectId("p"),
        path="data",
        digest=hashlib.sha256(data).hexdigest(),
        size_bytes=len(data),
    )
    return await read_archive(upload, chunks_of(data))


@pytest.mark.parametrize(
    "members",
    [
        # Each link by itself stays inside; y leads to the top, and so x/y/.. to what is above it.
        [("x/y", tarfile.SYMTYPE, ".."), ("l", tarfile.SYMTYPE, "x/y/.."), ("l/evil", tarfile.REGTYPE, "")],
        [("l", tarfile.SYMTYPE, "d"), ("./l/evil", tarfile.REGTYPE, "")],
        [("l", tarfile.SYMTYPE, "d"), ("copy", tarfile.LNKTYPE, "l/x")],
        [("copy", tarfile.LNKTYPE, "../x")],
        [("pipe", tarfile.FIFOTYPE, "")],
        [("disk", tarfile.BLKTYPE, "")],
    ],
)
async def test_what_could_be_written_elsewhere_is_refused(members: list[Member]) -> None:
    with pytest.raises(InvalidInputError):
        await read(archive(*members))


async def test_links_that_stay_inside_and_lead_nothing_else_astray_are_carried() -> None:
    data = archive(
        ("d/x", tarfile.REGTYPE, ""), ("d/l", tarfile.SYMTYPE, "../d/x"), ("copy", tarfile.LNKTYPE, "d/x")
    )
    assert await read(data) == data
