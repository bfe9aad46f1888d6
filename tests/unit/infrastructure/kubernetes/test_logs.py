"""Output by byte offset, from a log that can only be read from its beginning, and that the node may have cut."""

from collections.abc import AsyncGenerator

import msgspec
import pytest

from unit.infrastructure.kubernetes.fake_api import FakeApi, failure, fake_api
from yunhe.infrastructure.kubernetes.api.client import Api
from yunhe.infrastructure.kubernetes.api.kubeconfig import Access
from yunhe.infrastructure.kubernetes.api.shapes import Pod
from yunhe.infrastructure.kubernetes.files.logs import LogReader, Look
from yunhe.infrastructure.kubernetes.objects import names
from yunhe.infrastructure.kubernetes.objects.phases import Final
from yunhe.infrastructure.kubernetes.objects.wrapper import mark_of
from yunhe.kernel.errors import ConflictError, NotFoundError

ID, KEY = "alloc_1", ("x", "alloc-1")
WHOLE = mark_of(ID, 1) + b"one\n" + mark_of(ID, 2) + b"two\n"
LEFT = WHOLE[len(mark_of(ID, 1)) + 2 :]
"""What is left after the node has dropped the first mark and two bytes."""

pytestmark = pytest.mark.anyio


@pytest.fixture
async def server() -> AsyncGenerator[FakeApi]:
    async with fake_api() as api:
        yield api


def pod(*, ended: bool) -> Pod:
    state = (
        {"terminated": {"exitCode": 0, "startedAt": "2027-01-15T08:00:01Z"}}
        if ended
        else {"running": {"startedAt": "2027-01-15T08:00:01Z"}}
    )
    annotations = {names.FINAL: msgspec.json.encode(Final(log_bytes=8)).decode()} if ended else {}
    body = {
        "metadata": {"name": KEY[1], "namespace": KEY[0], "annotations": annotations},
        "status": {
            "phase": "Succeeded" if ended else "Running",
            "containerStatuses": [{"name": "task", "state": state}],
        },
    }
    return msgspec.convert(body, Pod)


async def read(server: FakeApi, offset: int, *, ended: bool = True) -> list[tuple[int, bytes]]:
    async with Api(Access(name="a", server=server.url)) as api:
        reader = LogReader(api, ID, KEY, lambda: Look(pod(ended=ended), ended))
        return [(chunk.offset, chunk.data) async for chunk in reader.read(offset, follow=False)]


@pytest.mark.parametrize("offset", range(9))
async def test_a_log_is_read_from_any_byte_without_its_marks(server: FakeApi, offset: int) -> None:
    server.answers = [("/log", 200, {}, WHOLE)]
    chunks = await read(server, offset)
    assert b"".join(data for _, data in chunks) == b"one\ntwo\n"[offset:]
    assert not chunks or chunks[0][0] == offset


async def test_what_is_left_of_a_rotated_log_keeps_its_offsets_once_it_has_ended(server: FakeApi) -> None:
    server.answers = [("/log", 200, {}, LEFT), ("/log", 200, {}, LEFT)]
    chunks = await read(server, 0)
    assert (chunks[0][0], b"".join(data for _, data in chunks)) == (2, b"e\ntwo\n")


async def test_a_rotated_log_of_what_still_runs_is_refused_rather_than_told_with_wrong_offsets(
    server: FakeApi,
) -> None:
    server.answers = [("/log", 200, {}, LEFT)]
    with pytest.raises(ConflictError, match="rotated"):
        await read(server, 0, ended=False)


async def test_a_log_that_the_node_has_let_go_of_is_not_told_as_empty(server: FakeApi) -> None:
    server.answers = [("/log", *_refusal())]
    with pytest.raises(NotFoundError):
        await read(server, 0)


def _refusal() -> tuple[int, dict[str, str], dict[str, object]]:
    code, body = failure(400, "BadRequest")
    return code, {}, body
