"""Archives to and from an allocation: put together from what Ray serves of a node."""

import tarfile
import tempfile
import zlib
from collections.abc import AsyncIterator

from yunhe.infrastructure.contract import archives
from yunhe.infrastructure.contract.model import Upload
from yunhe.infrastructure.ray.client import MAX_PACKAGE_BYTES, RayClient
from yunhe.kernel.errors import NotFoundError, TooLargeError
from yunhe.kernel.ids import AllocationId

PIECE_BYTES = 256 * 1024
SPOOL_BYTES = 8 * 1024 * 1024
_GZIP = 16 + zlib.MAX_WBITS


async def read_archive(upload: Upload, chunks: AsyncIterator[bytes]) -> bytes:
    """Return the whole archive, checked; one that Ray would not take is not read at all."""
    if upload.size_bytes > MAX_PACKAGE_BYTES:
        raise TooLargeError(
            f"An archive of {upload.size_bytes} bytes is over what Ray's dashboard takes, {MAX_PACKAGE_BYTES}.",
            remedy="Leave large data out of what is sent, and have the task fetch it.",
        )
    return await archives.read_archive(upload, chunks)


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
