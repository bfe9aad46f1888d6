"""What every engine checks of an archive before it lets any of it near a node, and of the paths it is asked for."""

import hashlib
import io
import tarfile
from collections.abc import AsyncIterator, Sequence

from anyio import to_thread

from yunhe.agent.files.members import MAX_UNPACKED_BYTES, NOT_AN_ARCHIVE, check_path, members_of
from yunhe.agent.protocol.refusals import TOO_LARGE, Refusal
from yunhe.infrastructure.contract.model import Upload
from yunhe.kernel.errors import FieldProblem, InvalidInputError, TooLargeError

_LINKS = (tarfile.SYMTYPE, tarfile.LNKTYPE)


def check_paths(paths: Sequence[str], field: str) -> list[str]:
    """Return *paths* in their simplest form; refuse any that could lead out."""
    try:
        return ["/".join(check_path(path, field)) for path in paths]
    except Refusal as refusal:
        raise InvalidInputError(refusal.problem, fields=(FieldProblem(field, refusal.problem),)) from None


async def read_archive(upload: Upload, chunks: AsyncIterator[bytes]) -> bytes:
    """Return the whole archive, or say what is wrong with it; nothing of a bad one goes anywhere."""
    check_paths((upload.path,), "path")
    data = bytearray()
    async for chunk in chunks:
        data += chunk
        if len(data) > upload.size_bytes:
            break
    if len(data) != upload.size_bytes:
        raise _bad("size_bytes", f"is {upload.size_bytes}, but another number of bytes came")
    if hashlib.sha256(data).hexdigest() != upload.digest:
        raise _bad("digest", "is not that of what came")
    whole = bytes(data)
    limit_bytes = upload.resources.disk_mib * 2**20 or MAX_UNPACKED_BYTES
    await to_thread.run_sync(_check_members, whole, limit_bytes)
    return whole


def leads_out(member: tarfile.TarInfo) -> bool:
    """Return whether a link's target, followed from where it lies, leaves the directory."""
    above = member.name.split("/")[:-1] if member.issym() else []
    depth = -1 if member.linkname.startswith("/") else 0
    for part in [*above, *member.linkname.split("/")]:
        depth += -1 if part == ".." else 0 if part in ("", ".") else 1
        if depth < 0:
            return True
    return False


def _check_members(data: bytes, limit_bytes: int) -> None:
    links: set[str] = set()
    try:
        for _, member, parts in members_of(io.BytesIO(data), limit_bytes):
            _check_member(member, "/".join(parts), links)
    except Refusal as refusal:
        if refusal.code == TOO_LARGE:
            raise TooLargeError(refusal.problem) from None
        raise _bad("member", refusal.problem.rstrip(".")) from None
    except NOT_AN_ARCHIVE as error:
        raise _bad("archive", f"is not a gzip-compressed tar: {error}") from None


def _check_member(member: tarfile.TarInfo, name: str, links: set[str]) -> None:
    """Refuse what would be written anywhere but below the directory; *links* are the symbolic ones so far.

    Each link by itself stays inside, but one reached through another need not: so nothing may go through any.
    """
    _refuse_through(links, name.rpartition("/")[0], member)
    if member.type in _LINKS:
        if leads_out(member):
            raise _bad("member", f"{member.name} is a link that leads out of the directory")
        if member.issym():
            links.add(name)
        else:
            _refuse_through(links, check_paths((member.linkname,), "member")[0], member)
    elif not (member.isdir() or member.isreg()):
        raise _bad("member", f"{member.name} is neither file, directory nor link")


def _refuse_through(links: set[str], path: str, member: tarfile.TarInfo) -> None:
    while path and links:
        if path in links:
            raise _bad("member", f"{member.name} goes through a symbolic link")
        path = path.rpartition("/")[0]


def _bad(field: str, problem: str) -> InvalidInputError:
    return InvalidInputError(
        f"The archive is refused: {field} {problem}.", fields=(FieldProblem(field, problem),)
    )
