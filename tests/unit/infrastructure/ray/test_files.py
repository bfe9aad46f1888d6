"""Archives are checked before a byte of them is sent, and results leave nothing but the directory."""

import hashlib
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from engines.ray_dashboard import Dashboard
from yunhe.conformance.caller import archive_of, chunks_of, files_in
from yunhe.infrastructure.contract.model import Upload
from yunhe.infrastructure.ray.engine import RayEngine
from yunhe.infrastructure.ray.files import fetch_archive, read_archive
from yunhe.kernel.errors import InvalidInputError, TooLargeError
from yunhe.kernel.ids import AllocationId, ProjectId

pytestmark = pytest.mark.anyio
ID = AllocationId("alloc_1")
GOOD = {"good.txt": b"good\n"}
NAMES = st.text("abc.", min_size=1, max_size=6).filter(lambda name: name.strip("."))


def upload_of(archive: bytes, **fields: Any) -> Upload:
    chosen: dict[str, Any] = {
        "path": "data",
        "digest": hashlib.sha256(archive).hexdigest(),
        "size_bytes": len(archive),
        **fields,
    }
    return Upload(allocation_id=ID, token=1, project_id=ProjectId("p"), **chosen)


BAD: list[tuple[str, bytes, dict[str, Any]]] = [
    ("digest", archive_of(GOOD), {"digest": "0" * 64}),
    ("too short", archive_of(GOOD), {"size_bytes": len(archive_of(GOOD)) + 1}),
    ("too long", archive_of(GOOD), {"size_bytes": len(archive_of(GOOD)) - 1}),
    ("path", archive_of(GOOD), {"path": "../data"}),
    ("traversal", archive_of({**GOOD, "../../evil.txt": b"evil\n"}), {}),
    ("absolute", archive_of({**GOOD, "/tmp/evil.txt": b"evil\n"}), {}),
    ("link", archive_of(GOOD, link=("out", "/etc")), {}),
    ("deep link", archive_of(GOOD, link=("a/b/out", "../../../etc")), {}),
    ("not an archive", b"not an archive" * 100, {}),
    ("cut off", archive_of({"a": bytes(range(256)) * 100})[:-40], {}),
]


@pytest.mark.parametrize(("archive", "lie"), [case[1:] for case in BAD], ids=[case[0] for case in BAD])
async def test_a_bad_archive_is_refused_and_nothing_of_it_is_sent(
    archive: bytes, lie: dict[str, Any]
) -> None:
    dashboard = Dashboard()
    with pytest.raises(InvalidInputError):
        await RayEngine(dashboard.client()).put_archive(upload_of(archive, **lie), chunks_of(archive))
    assert (dashboard.packages, dashboard.submissions) == ({}, [])


async def test_an_archive_that_ray_would_not_take_is_refused_before_it_is_read() -> None:
    with pytest.raises(TooLargeError):
        await read_archive(upload_of(b"", size_bytes=10**9), chunks_of(b""))


async def test_a_link_that_stays_inside_is_carried() -> None:
    archive = archive_of(GOOD, link=("deep/link", "../good.txt"))
    assert await read_archive(upload_of(archive), chunks_of(archive)) == archive


@settings(max_examples=25)
@given(st.dictionaries(NAMES, st.binary(max_size=2000), max_size=5))
async def test_what_is_fetched_is_what_lies_there_byte_by_byte(files: dict[str, bytes]) -> None:
    dashboard = Dashboard()
    dashboard.files = {f"yunhe/{ID}/work/{name}": data for name, data in files.items()}
    dashboard.files[f"yunhe/{ID}/report.json"] = b"not a result"
    pieces = [piece async for piece in fetch_archive(dashboard.client(), "n", ID, ["*"])]
    assert files_in(b"".join(pieces)) == files


@pytest.mark.parametrize("pattern", ["/etc/passwd", "../*", "a/../../*"])
async def test_a_pattern_that_leads_out_is_refused(pattern: str) -> None:
    with pytest.raises(InvalidInputError):
        _ = [piece async for piece in RayEngine(Dashboard().client()).get_archive(ID, (pattern,))]
