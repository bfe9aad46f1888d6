"""Whatever is sent to the agent, its allocations, files and processes are as before, and the answer names the fault."""

import io
import os
import shutil
import socket
import struct
import subprocess
import tarfile
import tempfile
from collections.abc import Callable, Generator
from hashlib import sha256
from pathlib import Path
from typing import Any

import anyio
import pytest

from integration.infrastructure.host.orders import ended, launched, log_of, order_for
from support.agent_roots import agent_root, end_agent, kill_daemon
from yunhe.agent.protocol.frames import MAX_FRAME_BYTES, Decoder, encode
from yunhe.conformance.caller import archive_of, chunks_of
from yunhe.infrastructure.contract.model import LaunchOrder, Upload
from yunhe.infrastructure.host.bridge import open_bridge
from yunhe.infrastructure.host.engine import HostEngine, connect_host
from yunhe.infrastructure.host.target import LocalHost
from yunhe.kernel.errors import (
    ConflictError,
    DiskFullError,
    FencedError,
    InvalidInputError,
    NotFoundError,
    PoolUnreachableError,
    TooLargeError,
)
from yunhe.kernel.ids import AllocationId

pytestmark = pytest.mark.anyio

GOOD: dict[str, Any] = {
    "allocation_id": "all_1",
    "token": 1,
    "project_id": "p1",
    "node_id": "n1",
    "resources": {"cpu_millis": 100, "memory_mib": 64},
    "steps": [{"name": "run", "script": "true"}],
}

BAD_BODIES: dict[str, tuple[str, dict[str, Any], str]] = {
    "token-text": ("launch", {**GOOD, "token": "1"}, "token"),
    "token-negative": ("launch", {**GOOD, "token": -1}, "token"),
    "token-truth": ("launch", {**GOOD, "token": True}, "token"),
    "no-steps": ("launch", {**GOOD, "steps": []}, "steps"),
    "step-shape": ("launch", {**GOOD, "steps": ["true"]}, "steps[0]"),
    "step-field": ("launch", {**GOOD, "steps": [{"name": "a", "script": "b", "user": "root"}]}, "steps[0].user"),
    "unknown-field": ("launch", {**GOOD, "uid": 0}, "uid"),
    "missing-field": ("launch", {"allocation_id": "a"}, "token"),
    "id-traversal": ("launch", {**GOOD, "allocation_id": "../../etc"}, "allocation_id"),
    "id-slash": ("launch", {**GOOD, "allocation_id": "a/b"}, "allocation_id"),
    "id-dots": ("launch", {**GOOD, "allocation_id": ".."}, "allocation_id"),
    "id-newline": ("launch", {**GOOD, "allocation_id": "a\n"}, "allocation_id"),
    "project-traversal": ("launch", {**GOOD, "project_id": "../p"}, "project_id"),
    "variable-name": ("launch", {**GOOD, "envs": {"A=B": "c"}}, "envs.A=B"),
    "variable-value": ("launch", {**GOOD, "envs": {"A": 1}}, "envs.A"),
    "variable-nul": ("launch", {**GOOD, "secrets": {"A": "x\0y"}}, "secrets.A"),
    "too-many-cores": ("launch", {**GOOD, "resources": {"cpu_millis": 10**9}}, "resources.cpu_millis"),
    "negative-memory": ("launch", {**GOOD, "resources": {"memory_mib": -5}}, "resources.memory_mib"),
    "accelerators": ("launch", {**GOOD, "resources": {"accelerators": [{"kind": "x", "milli": 1}]}}, "resources"),
    "timeout-text": ("launch", {**GOOD, "timeout_s": "1h"}, "timeout_s"),
    "other-node": ("launch", {**GOOD, "node_id": "elsewhere"}, "node_id"),
    "unknown-verb": ("format", {}, "verb"),
    "stop-grace": ("stop", {"allocation_id": "a", "token": 1, "grace_s": -1}, "grace_s"),
    "observe-wait": ("observe", {"wait_s": 1e9}, "wait_s"),
    "pin-cores": ("pin", {"allocation_id": "a", "token": 1, "cores": ["0"]}, "cores[0]"),
    "digest": ("put_archive", {**{k: GOOD[k] for k in ("allocation_id", "token", "project_id")},
               "path": "x", "digest": "zz", "size_bytes": 1}, "digest"),
    "exec-nothing": ("exec", {"allocation_id": "a", "argv": []}, "argv"),
}  # fmt: skip


@pytest.fixture(scope="module")
def host() -> Generator[LocalHost, None, None]:
    with agent_root() as root:
        yield LocalHost(root=str(root))


def tree(root: Path) -> dict[str, bytes]:
    """Return what lies in an agent's root, apart from what grows by itself, is made ahead or is being removed."""
    apart = {root / "trash", root / "spare"}
    files = (path for path in sorted(root.rglob("*")) if path.is_file() and apart.isdisjoint(path.parents))
    return {
        str(path): path.read_bytes()
        for path in files
        if path.name not in {"agent.log", "usage", "scratch.img"}
    }


@pytest.mark.parametrize("case", BAD_BODIES)
async def test_a_bad_body_is_refused_by_field_and_changes_nothing(host: LocalHost, case: str) -> None:
    verb, body, field = BAD_BODIES[case]
    async with HostEngine(host) as engine:
        node = (await engine.inventory()).nodes[0]
        body = {**body, "node_id": node.id} if body.get("node_id") == "n1" else body
        before = tree(host.directory()), (await engine.observe()).allocations
        opened = await open_bridge(host)
        with pytest.raises((InvalidInputError, NotFoundError)) as refused:
            await opened.link.request(verb, body, timeout_s=10)
        await opened.link.close()
        assert any(problem.field.startswith(field) for problem in refused.value.fields)
        assert (tree(host.directory()), (await engine.observe()).allocations) == before


def raw(data: bytes) -> Callable[[Path], bytes]:
    def talk(root: Path) -> bytes:
        with socket.socket(socket.AF_UNIX) as line:
            line.settimeout(5)
            line.connect(str(root / "agent.sock"))
            line.sendall(data)
            heard = b""
            while piece := line.recv(65536):
                heard += piece
            return heard

    return talk


BAD_FRAMES = {
    "oversize": struct.pack(">II", MAX_FRAME_BYTES, 1) + b"x" * 100,
    "oversize-by-far": b"\xff" * 64,
    "not-json": struct.pack(">II", 4, 0) + b"oops",
    "not-an-object": struct.pack(">II", 2, 0) + b"[]",
    "no-id": encode({"verb": "describe"}),
    "id-is-text": encode({"id": "1", "verb": "describe"}),
    "deep-json": struct.pack(">II", 200_000, 0) + b"[" * 200_000,
    "window-is-a-number": encode({"id": 1, "verb": "observe", "body": {}}) + encode({"id": 1, "window": 7}),
    "window-over-a-terminal's": encode({"id": 1, "verb": "observe", "body": {}}) + encode({"id": 1, "window": [99_999, 1]}),
    "unasked-input": encode({"id": 1, "verb": "observe", "body": {"wait_s": 5, "beyond": -1}})
    + encode({"id": 2, "verb": "logs", "body": {"allocation_id": "x"}})
    + encode({"id": 7}) + struct.pack(">II", 4, 0) + b"oops",
}  # fmt: skip


@pytest.mark.parametrize("case", BAD_FRAMES)
async def test_a_bad_frame_is_answered_with_an_error_and_a_closed_connection(
    host: LocalHost, case: str
) -> None:
    async with HostEngine(host) as engine:
        before = tree(host.directory()), (await engine.observe()).allocations
        heard = await anyio.to_thread.run_sync(raw(BAD_FRAMES[case]), host.directory())
        last = list(Decoder().feed(heard))[-1]
        assert "id" not in last.header
        assert last.header["error"]["code"] in {"invalid-input", "too-large"}
        assert (tree(host.directory()), (await engine.observe()).allocations) == before


async def test_an_order_that_fits_in_no_frame_is_refused_before_it_is_sent(host: LocalHost) -> None:
    async with HostEngine(host) as engine:
        order = await order_for(engine, "x" * (MAX_FRAME_BYTES + 1))
        with pytest.raises(TooLargeError):
            await engine.launch(order)
        await engine.describe()


async def put(engine: HostEngine, order: LaunchOrder, archive: bytes, path: str = "data") -> None:
    upload = Upload(
        allocation_id=order.allocation_id,
        token=1,
        project_id=order.project_id,
        path=path,
        digest=sha256(archive).hexdigest(),
        size_bytes=len(archive),
    )
    await engine.put_archive(upload, chunks_of(archive, 50_000))


def archive_with(*members: tarfile.TarInfo) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for member in members:
            tar.addfile(member, io.BytesIO(b"x" * member.size))
    return buffer.getvalue()


def member(name: str, kind: bytes = tarfile.REGTYPE, **fields: Any) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type = kind
    for key, value in fields.items():
        setattr(info, key, value)
    return info


LEADING_OUT = {
    "through-a-link": (member("a", tarfile.SYMTYPE, linkname="b"), member("a/evil", size=1)),
    "link-up": (member("deep/out", tarfile.SYMTYPE, linkname="../../../.."),),
    "link-up-hidden": (member("out", tarfile.SYMTYPE, linkname="deep/../../../x"),),
    "hard-link": (member("out", tarfile.LNKTYPE, linkname="../../claim.json"),),
    "device": (member("zero", tarfile.CHRTYPE, devmajor=1, devminor=5),),
    "fifo": (member("pipe", tarfile.FIFOTYPE),),
    "backslash": (member("..\\evil", size=1),),
}


@pytest.mark.parametrize("case", LEADING_OUT)
async def test_no_member_of_an_archive_may_lead_out(host: LocalHost, case: str) -> None:
    async with HostEngine(host) as engine:
        order = await order_for(engine, "true")
        before = tree(host.directory())
        with pytest.raises(InvalidInputError):
            await put(engine, order, archive_with(member("good", size=1), *LEADING_OUT[case]))
        await anyio.sleep(0.05)
        assert tree(host.directory()) == before


async def test_what_a_task_links_to_outside_does_not_come_back(host: LocalHost) -> None:
    script = (
        "echo mine > mine.txt; ln -s /etc/passwd out.txt; ln -s / all; ln -s mine.txt near.txt; mkfifo pipe"
    )
    async with HostEngine(host) as engine:
        order = await launched(engine, script)
        await ended(engine, order.allocation_id)
        pieces = [piece async for piece in engine.get_archive(order.allocation_id, ("*", "all/etc/passwd"))]
        with tarfile.open(fileobj=io.BytesIO(b"".join(pieces)), mode="r:gz") as tar:
            assert sorted(tar.getnames()) == ["mine.txt", "near.txt"]
        await engine.release(order.allocation_id, 1)


async def test_special_bits_of_files_are_not_carried_in(host: LocalHost) -> None:
    async with HostEngine(host) as engine:
        order = await order_for(engine, "stat -c %a data/tool; ./data/tool 2>/dev/null; true")
        await put(engine, order, archive_with(member("tool", size=1, mode=0o6755)))
        await engine.launch(order)
        await ended(engine, order.allocation_id)
        assert await log_of(engine, order.allocation_id) == b"755\n"
        await engine.release(order.allocation_id, 1)


async def test_files_may_come_only_before_the_launch(host: LocalHost) -> None:
    async with HostEngine(host) as engine:
        order = await launched(engine, "true")
        with pytest.raises(ConflictError):
            await put(engine, order, archive_of({"a": b"late"}))
        await ended(engine, order.allocation_id)
        await engine.release(order.allocation_id, 1)


async def test_a_damaged_journal_tail_is_set_aside_and_told_and_the_rest_is_used(root: Path) -> None:
    async with HostEngine(LocalHost(root=str(root))) as engine:
        first = await launched(engine, "exit 3")
        await ended(engine, first.allocation_id)
        await engine.stop(AllocationId("never-there"), 9)
        last = await launched(engine, "exit 4")
        await ended(engine, last.allocation_id)
        kill_daemon(root)
        journal = root / "journal"
        whole = journal.read_bytes()
        lines = whole.rstrip(b"\0").splitlines(keepends=True)
        damaged = lines[-1].replace(b'"token":1', b'"token":2')
        journal.write_bytes(b"".join(lines[:-1]) + damaged)
        with pytest.raises(PoolUnreachableError):
            await engine.observe()
        observation = await engine.observe()
        assert any("set aside" in notice for notice in observation.notices)
        assert quarantined(root) == [damaged]
        codes = {seen.allocation_id: (seen.exit_code, seen.token) for seen in observation.allocations}
        assert codes == {first.allocation_id: (3, 1), last.allocation_id: (4, 1)}, (
            "a claim was lost with the tail"
        )


def quarantined(root: Path) -> list[bytes]:
    return [path.read_bytes() for path in root.glob("journal.quarantine-*")]


@pytest.fixture
def small_disk() -> Generator[Path, None, None]:
    if os.geteuid() != 0:
        pytest.skip("needs root: a small file system")
    directory = Path(tempfile.mkdtemp(prefix="yunhe-small-"))
    directory.chmod(0o755)
    options = "size=6m,mode=755"
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "yunhe-small", str(directory)], check=True)
    try:
        yield directory
    finally:
        end_agent(directory / "agent")
        subprocess.run(["umount", "-l", str(directory)], check=True)
        shutil.rmtree(directory)


async def test_a_full_disk_refuses_clearly_and_leaves_nothing_half_done(small_disk: Path) -> None:
    engine = await connect_host(LocalHost(root=str(small_disk / "agent")))
    order = await order_for(engine, "true")
    big = archive_of({"big": os.urandom(4_000_000)})
    with pytest.raises(DiskFullError):
        await put(engine, order, big)
    await anyio.sleep(0.1)
    for name in ("runs", "incoming"):
        assert os.listdir(small_disk / "agent" / name) == []  # noqa: PTH208
    free = os.statvfs(small_disk)
    filler = small_disk / "filler"
    filler.write_bytes(b"x" * (free.f_bavail * free.f_frsize))
    with pytest.raises(DiskFullError):
        await engine.launch(order)
    (node,) = (await engine.inventory()).nodes
    assert not node.ready
    assert "KiB are free" in node.reason
    await engine.stop(AllocationId("nobody"), 3)  # there is room for its mark
    with pytest.raises(FencedError):
        await engine.stop(AllocationId("nobody"), 2)
    assert (await engine.observe()).allocations == ()
    filler.unlink()
    (node,) = (await engine.inventory()).nodes
    assert node.ready
    await engine.launch(order)
    assert (await ended(engine, order.allocation_id)).exit_code == 0
    await engine.close()


async def test_a_log_that_finds_no_room_does_not_stop_its_task(small_disk: Path) -> None:
    engine = await connect_host(LocalHost(root=str(small_disk / "agent")))
    order = await order_for(engine, "head -c 9000000 /dev/zero; echo; echo last words >&2; exit 6")
    await engine.launch(order)
    seen = await ended(engine, order.allocation_id)
    assert seen.log_bytes == 9_000_012
    assert seen.exit_code == 6
    await engine.close()
