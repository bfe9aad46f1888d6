"""Archives into and out of an allocation's directory, handled by a process that is its user and nobody else.

That process is in the allocation's control group, so that what it uses is the task's, and it ends with whoever waits
for it. Everything needed is imported before it becomes the user: afterwards it may not be able to read a module.
No member may leave the directory: no absolute names, no ``..``, no link that leads out, no device. What comes is
unpacked beside its place and moved there only when all of it is good.
"""

from __future__ import annotations

import errno
import json
import os
import select
import shutil
import tarfile
import threading
from typing import Any, BinaryIO, Callable, Iterator, cast

from yunhe.agent.files import scratch
from yunhe.agent.files.members import (
    MAX_UNPACKED_BYTES,
    NOT_AN_ARCHIVE,
    check_path,
    members_of,
    not_an_archive,
)
from yunhe.agent.files.mounts import flush
from yunhe.agent.files.packing import pack
from yunhe.agent.files.removal import remove_tree
from yunhe.agent.limits.limits import LimitsBackend
from yunhe.agent.protocol.refusals import CONFLICT, TOO_LARGE, Refusal, invalid, refusal_of
from yunhe.agent.runs.directory import Run
from yunhe.agent.runs.users import become, end_with

_STAGE = ".yunhe-unpacking"
_FIRST_TO_KILL = "1000"


def unpack_job(order: dict[str, Any], handles: list[int]) -> None:
    """Unpack the archive of the first handle; tell the second how it went."""
    archive, status = handles
    limit_bytes = order.get("limit_bytes") or MAX_UNPACKED_BYTES
    _answer(status, order, lambda: _unpack(order["work"], order["path"], archive, limit_bytes))


def pack_job(order: dict[str, Any], handles: list[int]) -> None:
    """Write an archive of the wanted paths to the first handle; tell the second how it went."""
    output, status = handles
    _answer(status, order, lambda: pack(order["work"], order["paths"], output))


def _answer(status: int, order: dict[str, Any], work: Callable[[], None]) -> None:
    """Do *work* as the user and within the limits of the allocation; tell *status* how it went."""
    answer: dict[str, Any] = {}
    try:
        _end_with_reader(status)  # a thread, so before the limit on processes
        _enter(order)
        become(order["uid"])
        end_with(order["spawner"])
        work()
        if order.get("scratch"):
            _flush(order["work"])
    except Refusal as refusal:
        answer = {"error": refusal.as_body()}
    except NOT_AN_ARCHIVE as fault:
        answer = {"error": not_an_archive(fault).as_body()}
    except OSError as fault:
        full = fault.errno == errno.ENOSPC and order.get("scratch")
        refusal = _over_limit(order["limit_bytes"]) if full else refusal_of(fault, "handling an archive")
        answer = {"error": refusal.as_body()}
    os.write(status, json.dumps(answer).encode())


def _flush(work: str) -> None:
    """Refuse what a full host has not kept: the task's file system promises more than the host may have."""
    try:
        flush(work)
    except OSError as fault:
        raise refusal_of(
            OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), "writing to the host's disk"
        ) from fault


def _over_limit(limit_bytes: int) -> Refusal:
    return Refusal(
        TOO_LARGE,
        f"Unpacked, the files need more than the disk limit of {limit_bytes >> 20} MiB.",
        remedy="Ask for more disk.",
    )


def _enter(order: dict[str, Any]) -> None:
    """Join the allocation's control group and have its file system; an order of another engine names neither."""
    limits = order.get("limits")
    if limits is not None:
        LimitsBackend(limits["kind"], limits["paths"]).group(limits["name"]).join()
        with open("/proc/self/oom_score_adj", "w") as file:
            file.write(_FIRST_TO_KILL)  # rather than the task: this can be asked for again
    if order.get("scratch"):
        run = Run(os.path.dirname(os.path.dirname(order["work"])), order["allocation_id"])
        scratch.ensure(run, order["uid"], order["limit_bytes"])


def _end_with_reader(status: int) -> None:
    """End this process once nobody waits for its answer any more."""

    def watch() -> None:
        poll = select.poll()
        poll.register(status, 0)  # only its hang-up is of interest
        poll.poll()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _unpack(work: str, path: str, archive: int, limit_bytes: int) -> None:
    parts = check_path(path, "path")
    stage = os.path.join(work, _STAGE)
    remove_tree(stage)
    os.mkdir(stage, 0o700)
    try:
        fresh = os.path.join(stage, "tree")
        os.mkdir(fresh, 0o700)
        with os.fdopen(archive, "rb") as file:
            _extract(cast("BinaryIO", file), fresh, limit_bytes)
        _move(fresh, work, parts)
    finally:
        remove_tree(stage)


def _extract(file: BinaryIO, fresh: str, limit_bytes: int) -> None:
    """Write every member below *fresh*; refuse the whole archive for one bad member."""
    for archive, member, parts in members_of(file, limit_bytes):
        if parts:
            _write_member(archive, member, fresh, parts)


def _write_member(members: tarfile.TarFile, member: tarfile.TarInfo, fresh: str, parts: list[str]) -> None:
    target = os.path.join(fresh, *parts)
    _make_parents(fresh, parts[:-1])
    if member.isdir():
        os.makedirs(target, mode=0o700, exist_ok=True)
    elif member.issym():
        _check_link(member, [*parts[:-1], *member.linkname.split("/")])
        os.symlink(member.linkname, target)
    elif member.islnk():
        source = os.path.join(fresh, *check_path(member.linkname, "member"))
        _refuse_links(fresh, check_path(member.linkname, "member"))
        os.link(source, target, follow_symlinks=False)
    elif member.isreg():
        source_file = members.extractfile(member)
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
        handle = os.open(target, flags, 0o600)
        with os.fdopen(handle, "wb") as output:
            if source_file is not None:
                shutil.copyfileobj(source_file, output, 256 * 1024)
            # Set-user-ID and other special bits are not carried; execution is.
            os.fchmod(output.fileno(), (member.mode & 0o777) | 0o600)
    else:
        raise invalid("member", "is neither file, directory nor link", member.name)


def _make_parents(fresh: str, parts: list[str]) -> None:
    _refuse_links(fresh, parts)
    os.makedirs(os.path.join(fresh, *parts), mode=0o700, exist_ok=True)


def _refuse_links(top: str, parts: list[str]) -> None:
    """Refuse a path below *top* that goes through a symbolic link."""
    for end in range(1, len(parts) + 1):
        if os.path.islink(os.path.join(top, *parts[:end])):
            raise invalid("path", "goes through a symbolic link", "/".join(parts[:end]))


def _check_link(member: tarfile.TarInfo, parts: list[str]) -> None:
    """Refuse a symbolic link whose target, followed from where it lies, leaves the directory."""
    depth = 0
    if member.linkname.startswith("/"):
        depth = -1
    for part in parts:
        depth += -1 if part == ".." else 0 if part in ("", ".") else 1
        if depth < 0:
            raise invalid("member", "is a link that leads out of the directory", member.name)


def _move(fresh: str, work: str, parts: list[str]) -> None:
    """Move the finished tree into place; undo what was moved if something stands in the way."""
    _refuse_links(work, parts)
    target = os.path.join(work, *parts) if parts else work
    os.makedirs(target, mode=0o700, exist_ok=True)
    moved: list[tuple[str, str]] = []
    try:
        for source, place in _moves(fresh, target):
            if os.path.lexists(place):
                aside = os.path.join(os.path.dirname(fresh), f"aside-{len(moved)}")
                os.rename(place, aside)
                moved.append((aside, place))
            os.rename(source, place)
            moved.append((place, source))
    except OSError as fault:
        for now, before in reversed(moved):
            os.rename(now, before)
        raise Refusal(CONFLICT, f"Cannot put the files in place: {fault}.") from fault


def _moves(fresh: str, target: str) -> Iterator[tuple[str, str]]:
    """Yield each entry with its place; a directory that exists on both sides is merged."""
    for name in sorted(os.listdir(fresh)):
        source, place = os.path.join(fresh, name), os.path.join(target, name)
        both = os.path.isdir(place) and not os.path.islink(place)
        if both and os.path.isdir(source) and not os.path.islink(source):
            yield from _moves(source, place)
        else:
            yield source, place
