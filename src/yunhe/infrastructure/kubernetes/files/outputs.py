"""Files of an allocation, fetched by a command in a container that sees its directory.

In the container only a shell and tar are needed. What they send is more than was asked for where a pattern says more
than a shell understands; what is handed on is chosen, checked and compressed here, so that a pattern means the same as
on every engine, and an image without gzip will do.
"""

import copy
import fnmatch
import gzip
import itertools
import tarfile
import tempfile
from collections.abc import AsyncIterator, Iterable
from typing import IO, cast

import anyio.to_thread

from yunhe.infrastructure.contract.archives import leads_out
from yunhe.infrastructure.contract.model import ExecRequest
from yunhe.infrastructure.kubernetes.api.client import Api
from yunhe.infrastructure.kubernetes.api.exec_session import open_exec
from yunhe.infrastructure.kubernetes.api.shapes import Key, Pod
from yunhe.infrastructure.kubernetes.objects import names
from yunhe.infrastructure.kubernetes.objects.phases import container_of, has_keeper, is_gone, is_over
from yunhe.kernel.errors import ConflictError, NotFoundError, UnsupportedError
from yunhe.kernel.ids import AllocationId

PIECE_BYTES = 256 * 1024
SPOOL_BYTES = 8 * 2**20
NO_TAR = 127
CHANGED_MEANWHILE = 1
"""What tar ends with when a file grew while it was read."""

# Patterns are arguments, and nothing but file names comes of them: without separators an unquoted word is only matched.
# What lies behind a symbolic link is not the directory's. Many names go in several archives, for the kernel's sake.
FETCH = r"""
exec 2>/dev/null
cd "$1" || exit 3
shift; IFS=; worst=0
command -v tar > /dev/null || exit 127
behind_link() {
  above=$1
  while :; do
    case $above in */*) above=${above%/*} ;; *) return 1 ;; esac
    [ ! -L "$above" ] || return 0
  done
}
pack() {
  [ "$#" -gt 0 ] || return 0
  tar -cf - "$@"
  code=$?
  [ "$code" -le "$worst" ] || worst=$code
}
for pattern in "$@"; do
  set --
  for name in $pattern; do
    case $name in */.|*/..) continue ;; esac
    [ -e "$name" ] || [ -L "$name" ] || continue
    behind_link "$name" && continue
    set -- "$@" "$name"
    [ "$#" -lt 500 ] || { pack "$@"; set --; }
  done
  pack "$@"
done
exit "$worst"
""".strip()


def within_reach(allocation_id: AllocationId, pod: Pod | None) -> str | None:
    """Return the container from which an allocation's files can be fetched now; None: its keeper has yet to start.

    Raise ``NotFoundError`` where the files are gone for good, and ``ConflictError`` where there are none yet.
    """
    if pod is None:
        raise NotFoundError(f"There is no pod of {allocation_id}, and no files.", remedy="Run it again.")
    if container_of(pod) is None and not is_gone(pod):
        raise ConflictError(f"{allocation_id} has not started: there is nothing to fetch yet.")
    if not has_keeper(pod):
        if is_over(pod):
            raise NotFoundError(
                f"{allocation_id} has ended, and its directory went with its pod.",
                remedy="Name what is to be kept under outputs: in the task.",
            )
        return names.CONTAINER
    keeper = next((one for one in pod.status.container_statuses if one.name == names.KEEPER), None)
    if is_gone(pod) or (keeper is not None and keeper.state.terminated is not None):
        raise NotFoundError(
            f"The files of {allocation_id} are gone: its pod was ended before they were fetched.",
            remedy="Run it again.",
        )
    return names.KEEPER if keeper is not None and keeper.state.running is not None else None


async def fetch_archive(api: Api, key: Key, container: str, patterns: list[str]) -> AsyncIterator[bytes]:
    """Yield a gzip-compressed tar of what matches *patterns*."""
    argv = ("/bin/sh", "-c", FETCH, "yunhe", names.WORK_FOLDER, *shell_patterns(patterns))
    with (
        tempfile.SpooledTemporaryFile[bytes](SPOOL_BYTES) as plain,
        tempfile.SpooledTemporaryFile[bytes](SPOOL_BYTES) as packed,
    ):
        async with open_exec(api, key, ExecRequest(argv=argv), container) as session:
            while data := await session.receive():
                plain.write(data)
            _check_end(await session.wait())
        await anyio.to_thread.run_sync(repack, plain, packed, [pattern.split("/") for pattern in patterns])
        packed.seek(0)
        while piece := packed.read(PIECE_BYTES):
            yield piece


def _check_end(code: int) -> None:
    if code == NO_TAR:
        raise UnsupportedError(
            "The image has no tar, with which files are fetched.", remedy="Use an image that has one."
        )
    if code > CHANGED_MEANWHILE:
        raise ConflictError(f"The files could not all be read: the command for it ended with {code}.")


def shell_patterns(patterns: Iterable[str]) -> list[str]:
    """Return patterns for a shell that find at least what *patterns* match."""
    found: list[str] = []
    for pattern in patterns:
        known = list(itertools.takewhile(lambda part: part != "**", pattern.split("/")))
        found += [
            "/".join((".", *filter(None, parts))) for parts in itertools.product(*map(_variants, known))
        ]
    return list(dict.fromkeys(found))


def _variants(part: str) -> list[str]:
    """Return a part of a pattern, and what a shell must be told to find hidden files by it too."""
    if part.startswith("*"):
        return [part, f".{part}"]
    return [part, f".{part[1:]}"] if part.startswith("?") else [part]


def repack(plain: IO[bytes], packed: IO[bytes], patterns: list[list[str]]) -> None:
    """Write a compressed archive of those members that match, each once; what leads out, sockets and devices are left out."""
    size_bytes = plain.tell()
    plain.seek(0)
    seen: set[str] = set()
    with (
        gzip.GzipFile(fileobj=packed, mode="wb", compresslevel=3) as zipped,
        tarfile.open(fileobj=cast("IO[bytes]", zipped), mode="w|") as archive,
    ):
        if not size_bytes:
            return
        with tarfile.open(fileobj=plain, mode="r:", ignore_zeros=True) as members:
            for member in members:
                parts = [part for part in member.name.split("/") if part not in ("", ".")]
                name = "/".join(parts)
                if not parts or name in seen or not any(_matches(parts, pattern) for pattern in patterns):
                    continue
                seen.add(name)
                _add(archive, members, member, name)


def _add(archive: tarfile.TarFile, members: tarfile.TarFile, member: tarfile.TarInfo, name: str) -> None:
    """Add a member under its simplest name; others may be second names of what it is called now."""
    chosen = copy.copy(member)
    chosen.name = name
    if member.isdir() or (member.issym() and not leads_out(chosen)):
        archive.addfile(chosen)
    elif member.isreg() or member.islnk():
        content = members.extractfile(member)
        if content is None:
            return
        with content:
            # A second name of a file carries its content too.
            chosen.type, chosen.linkname = tarfile.REGTYPE, ""
            chosen.size = content.seek(0, 2)
            content.seek(0)
            archive.addfile(chosen, content)


def _matches(parts: list[str], pattern: list[str]) -> bool:
    """Return whether *pattern* matches a path or a directory above it."""
    if not pattern or pattern == [""]:
        return True
    if pattern[0] == "**":
        return _matches(parts, pattern[1:]) or (bool(parts) and _matches(parts[1:], pattern))
    return bool(parts) and fnmatch.fnmatchcase(parts[0], pattern[0]) and _matches(parts[1:], pattern[1:])
