"""Archives to and from an allocation: checked before they are sent, put together from what Ray serves of a node."""

import hashlib
import io
import tarfile
import tempfile
import zlib
from collections.abc import AsyncIterator

from yunhe.agent.archives import MAX_MEMBERS, MAX_UNPACKED_BYTES, check_path
from yunhe.agent.refusals import Refusal
from yunhe.infrastructure.contract.model import Upload
from yunhe.infrastructure.ray.client import MAX_PACKAGE_BYTES, RayClient
from yunhe.kernel.errors import FieldProblem, InvalidInputError, NotFoundError, TooLargeError
from yunhe.kernel.ids import AllocationId

PIECE_BYTES = 256 * 1024
SPOOL_BYTES = 8 * 1024 * 1024
_GZIP = 16 + zlib.MAX_WBITS
_LINKS = (tarfile.SYMTYPE, tarfile.LNKTYPE)


def check_paths(paths: tuple[str, ...], field: str) -> list[str]:
    """Return *paths* in their simplest form; refuse any that could lead out."""
    try:
        return ["/".join(check_path(path, field)) for path in paths]
    except Refusal as refusal:
        raise InvalidInputError(refusal.problem, fields=(FieldProblem(field, refusal.problem),)) from None


async def read_archive(upload: Upload, chunks: AsyncIterator[bytes]) -> bytes:
    """Return the whole archive, or say what is wrong with it; nothing of a bad one goes anywhere."""
    check_paths((upload.path,), "path")
    if upload.size_bytes > MAX_PACKAGE_BYTES:
        raise TooLargeError(
            f"An archive of {upload.size_bytes} bytes is over what Ray's dashboard takes, {MAX_PACKAGE_BYTES}.",
            remedy="Leave large data out of what is sent, and have the task fetch it.",
        )
    data = bytearray()
    async for chunk in chunks:
        data += chunk
        if len(data) > upload.size_bytes:
            break
    if len(data) != upload.size_bytes:
        raise _bad("size_bytes", f"is {upload.size_bytes}, but another number of bytes came")
    if hashlib.sha256(data).hexdigest() != upload.digest:
        raise _bad("digest", "is not that of what came")
    _check_members(bytes(data))
    return bytes(data)


def _check_members(data: bytes) -> None:
    total = 0
    try:
        with tarfile.open(fileobj=io.BytesIO(data), mode="r:gz") as members:
            for count, member in enumerate(members):
                total += member.size
                if count >= MAX_MEMBERS or total > MAX_UNPACKED_BYTES:
                    raise TooLargeError(f"An archive may hold {MAX_MEMBERS} files.")
                check_paths((member.name,), "member")
                if member.type in _LINKS:
                    _check_link(member)
                elif not (member.isdir() or member.isreg()):
                    raise _bad("member", f"{member.name} is neither file, directory nor link")
    except (tarfile.TarError, zlib.error, EOFError, OSError) as error:
        raise _bad("archive", f"is not a gzip-compressed tar: {error}") from None


def _check_link(member: tarfile.TarInfo) -> None:
    """Refuse a link whose target leaves the directory; the node checks again when it unpacks."""
    above = member.name.split("/")[:-1] if member.issym() else []
    depth = -1 if member.linkname.startswith("/") else 0
    for part in [*above, *member.linkname.split("/")]:
        depth += -1 if part == ".." else 0 if part in ("", ".") else 1
        if depth < 0:
            raise _bad("member", f"{member.name} is a link that leads out of the directory")


def _bad(field: str, problem: str) -> InvalidInputError:
    return InvalidInputError(
        f"The archive is refused: {field} {problem}.", fields=(FieldProblem(field, problem),)
    )


async def fetch_archive(
    client: RayClient, node_id: str, allocation_id: AllocationId, patterns: list[str]
) -> AsyncIterator[bytes]:
    """Yield a gzip-compressed tar of what matches *patterns* in an allocation's directory."""
    packer = zlib.compressobj(3, zlib.DEFLATED, _GZIP)
    top = f"yunhe/{allocation_id}/work/"
    for name in await _names(client, node_id, top, patterns):
        async for piece in _member(client, node_id, top, name):
            packed = packer.compress(piece)
            if packed:
                yield packed
    yield packer.compress(b"\0" * 2 * tarfile.BLOCKSIZE) + packer.flush()


async def _names(client: RayClient, node_id: str, top: str, patterns: list[str]) -> list[str]:
    """Return what matches, with all that lies below a directory that does; directories end in a slash."""
    found: set[str] = set()
    for pattern in patterns:
        matches = await client.list_files(node_id, f"{top}{pattern or '*'}")
        for match in matches:
            found.add(match)
            if match.endswith("/"):
                found.update(await client.list_files(node_id, f"{match}**/*"))
    return sorted(name.removeprefix(top) for name in found if name.startswith(top))


async def _member(client: RayClient, node_id: str, top: str, name: str) -> AsyncIterator[bytes]:
    """Yield the header, content and padding of one member; a file that is gone meanwhile is left out."""
    info = tarfile.TarInfo(name.rstrip("/"))
    if name.endswith("/"):
        info.type, info.mode = tarfile.DIRTYPE, 0o755
        yield info.tobuf()
        return
    with tempfile.SpooledTemporaryFile(SPOOL_BYTES) as spool:
        try:
            async with client.stream_file(node_id, top + name) as chunks:
                async for chunk in chunks:
                    spool.write(chunk)
        except NotFoundError:
            return
        info.size = spool.tell()
        spool.seek(0)
        yield info.tobuf()
        while piece := spool.read(PIECE_BYTES):
            yield piece
        yield b"\0" * (-info.size % tarfile.BLOCKSIZE)
