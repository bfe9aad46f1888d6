"""Files as one archive in chunks: the same chunks whenever the files are the same, and most of them when few changed.

The archive is a tar. Small files are packed together; the contents of a large one are cut where its bytes say so, and
so are the same after something was put in before them. What a chunk holds is known by its SHA-256, which is kept beside
the state of its files: what has not changed is not read again.
"""

import hashlib
import os
import stat
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple, TypeVar

import msgspec

from yunhe.entrypoints.client.ignoring import Ignoring, LeftOut, rules_above
from yunhe.kernel.errors import FieldProblem, InvalidInputError
from yunhe.kernel.units import KIB, MIB
from yunhe.storage.private_files import private_home, write_private

WHOLE = ""
"""The name of a source whose contents are meant, not the source itself."""
LARGE_BYTES = MIB
"""A file from this size on has chunks of its own."""
LEAST_PACK_BYTES, MOST_PACK_BYTES = 256 * KIB, MIB
LEAST_CUT_BYTES, MEAN_CUT_BYTES, MOST_CUT_BYTES = 64 * KIB, 256 * KIB, MIB
_READ_BYTES = 8 * MIB
_BLOCK = 512
"""Of a tar."""
_WINDOW_BYTES = 8
_SETTLED_S = 2.0
"""A file that was changed so shortly ago may change again within the same tick of the clock."""
_GZIP = 16 + zlib.MAX_WBITS
LANES = 4
"""So many files are read, and requests sent, at once."""
_SAME_CUTS = 0.5
"""A file that was changed in place keeps its cuts, while so much of it is as it was."""

T = TypeVar("T")
Item = TypeVar("Item")
Source = tuple[str, Path]
"""A directory's contents (``WHOLE``), or a file and the name it gets."""
Read = Callable[[int], object]
"""Told how many bytes have been read."""


class TreeEntry(NamedTuple):
    """A file, directory or link of the archive."""

    name: str
    path: str
    state: os.stat_result
    link: str = ""

    @property
    def content_bytes(self) -> int:
        """Return how many bytes follow its header."""
        return self.state.st_size if stat.S_ISREG(self.state.st_mode) else 0

    def header(self) -> bytes:
        """Return its tar header; owner and times are the same for everybody."""
        import tarfile  # noqa: PLC0415 - only for what has changed

        info = tarfile.TarInfo(self.name)
        info.size = self.content_bytes
        if self.link:
            info.type, info.linkname, info.mode = tarfile.SYMTYPE, self.link, 0o777
        elif stat.S_ISDIR(self.state.st_mode):
            info.type, info.mode = tarfile.DIRTYPE, 0o755
        else:
            info.mode = 0o755 if self.state.st_mode & 0o100 else 0o644
        return info.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")


class TreeGroup(NamedTuple):
    """Entries that are read together; a large file has no headers here, they are in the group before."""

    entries: tuple[TreeEntry, ...]
    large: bool = False
    before_bytes: int = 0
    """Zeros that fill up the file before."""
    last: bool = False

    @property
    def content_bytes(self) -> int:
        """Return how many bytes of files are read for it."""
        return sum(entry.content_bytes for entry in self.entries if self.large or not _is_large(entry))

    def key(self) -> bytes:
        """Return what changes whenever a file of it does, or its place in the archive."""
        told = hashlib.blake2b(f"{self.large} {self.before_bytes} {self.last}".encode(), digest_size=16)
        for name, _, state, link in self.entries:
            stamps = (state.st_size, state.st_mtime_ns, state.st_ctime_ns, state.st_ino, state.st_mode)
            told.update(f"\0{name}\0{link}\0{stamps}".encode(errors="surrogateescape"))
        return told.digest()

    def cuts_key(self) -> bytes:
        """Return under which key the cuts of a large file are kept; they may do while its size is the same."""
        told = f"cuts\0{self.entries[0].name}\0{self.content_bytes}".encode(errors="surrogateescape")
        return hashlib.blake2b(told, digest_size=16).digest()

    def is_settled(self, now: float) -> bool:
        """Return whether none of its files was changed just now."""
        return all(entry.state.st_ctime < now - _SETTLED_S for entry in self.entries)

    def chunks(self) -> Iterator[bytes]:
        """Read it, in chunks."""
        if self.large:
            with open(self.entries[0].path, "rb") as file:  # noqa: PTH123 - as below
                yield from _cut(file, self.entries[0])
            return
        data = bytearray(self.before_bytes)
        for entry in self.entries:
            data += entry.header()
            if entry.content_bytes and not _is_large(entry):
                with open(entry.path, "rb") as file:  # noqa: PTH123 - a tree may have very many
                    data += _exactly(file, entry, entry.content_bytes)
                data += bytes(-entry.content_bytes % _BLOCK)
        if self.last:
            data += bytes(2 * _BLOCK)
        yield bytes(data)


class Chunk(NamedTuple):
    """A part of the archive: which one of a group, and at which byte of a large file."""

    digest: bytes
    size_bytes: int
    group: TreeGroup
    offset: int = 0

    def member(self) -> bytes:
        """Return it as a gzip member; raise when its files are not as they were any more."""
        if self.group.large:
            entry = self.group.entries[0]
            with open(entry.path, "rb") as file:  # noqa: PTH123 - as above
                file.seek(self.offset)
                data = _exactly(file, entry, self.size_bytes)
        else:
            (data,) = self.group.chunks()
        if hashlib.sha256(data).digest() != self.digest:
            raise _changed(self.group.entries[0])
        packer = zlib.compressobj(_level(data), zlib.DEFLATED, _GZIP)
        return packer.compress(data) + packer.flush()


class Tree(NamedTuple):
    """Files to send as one archive."""

    chunks: tuple[Chunk, ...]

    @property
    def digests(self) -> bytes:
        """Return the digests of all chunks, in order."""
        return b"".join(chunk.digest for chunk in self.chunks)

    def batches(self, missing: Sequence[str], most_bytes: int) -> list[list[Chunk]]:
        """Return the chunks that are *missing*, each once, in portions of about so many bytes."""
        wanted = {bytes.fromhex(digest) for digest in missing}
        found: list[list[Chunk]] = []
        size = most_bytes
        for chunk in {chunk.digest: chunk for chunk in self.chunks if chunk.digest in wanted}.values():
            if size + chunk.size_bytes > most_bytes:
                found.append([])
                size = 0
            found[-1].append(chunk)
            size += chunk.size_bytes
        return found


def body_of(chunks: Sequence[Chunk]) -> bytes:
    """Return chunks as the API takes them."""
    frames: list[bytes] = []
    for chunk in chunks:
        member = chunk.member()
        frames += (chunk.digest, len(member).to_bytes(4, "big"), member)
    return b"".join(frames)


def scan(
    sources: Sequence[Source], *, all_files: bool = False, of_repository: bool = False
) -> tuple[list[TreeEntry], LeftOut]:
    """Return what is in *sources*, sorted by name, and what is left out; nothing is read.

    With *of_repository*, the rules above a directory hold in it too.
    """
    found: dict[str, TreeEntry] = {}
    left_out = LeftOut()
    for name, source in sources:
        if not source.exists():
            raise InvalidInputError(
                f"{source} does not exist.",
                remedy="Paths of workdir and file_mounts are relative to where yunhe is called.",
                fields=(FieldProblem(str(source), "does not exist"),),
            )
        if name != WHOLE or not source.is_dir():
            found[name or source.name] = TreeEntry(name or source.name, str(source), source.stat())
            continue
        root = source.resolve()
        rules = None if all_files else rules_above(root) if of_repository else Ignoring()
        for entry in _walk(str(root), str(root), rules, left_out):
            found[entry.name] = entry
    return [found[name] for name in sorted(found, key=lambda name: name.split("/"))], left_out


def _walk(root: str, directory: str, rules: Ignoring | None, left_out: LeftOut) -> Iterator[TreeEntry]:
    rules = rules and rules.inside(directory)
    with os.scandir(directory) as children:
        for child in children:
            name, is_dir = child.path[len(root) + 1 :], child.is_dir(follow_symlinks=False)
            if rules is not None and rules.leaves_out(child.path, is_dir=is_dir):
                left_out.add(name, Path(child.path), is_dir=is_dir)
                continue
            state = child.stat(follow_symlinks=False)
            if child.is_symlink():
                yield TreeEntry(name, child.path, state, _checked_link(child.path, root))
            elif is_dir or stat.S_ISREG(state.st_mode):  # sockets, pipes and devices mean nothing elsewhere
                yield TreeEntry(name, child.path, state)
            if is_dir:
                yield from _walk(root, child.path, rules, left_out)


def _checked_link(path: str, root: str) -> str:
    link = Path(path)
    if not link.resolve().is_relative_to(root):
        raise InvalidInputError(
            f"{path} is a symbolic link that leads out of {root}.",
            remedy="Copy what it points to, or mount that path by itself with file_mounts.",
            fields=(FieldProblem(path, "leads out of the directory", str(link.readlink())),),
        )
    return str(link.readlink())


def group(entries: Sequence[TreeEntry]) -> Iterator[TreeGroup]:
    """Yield entries in groups; where one begins depends on names and sizes near it, not on all before it."""
    held: list[TreeEntry] = []
    size, before = 0, 0
    for entry in entries:
        large = _is_large(entry)
        own = _BLOCK + (0 if large else entry.content_bytes + -entry.content_bytes % _BLOCK)
        full = size + own > MOST_PACK_BYTES
        if held and (full or (size >= LEAST_PACK_BYTES and _begins(entry.name))):
            yield TreeGroup(tuple(held), before_bytes=before)
            held, size, before = [], 0, 0
        held.append(entry)
        size += own
        if large:
            yield TreeGroup(tuple(held), before_bytes=before)
            yield TreeGroup((entry,), large=True)
            held, size, before = [], 0, -entry.content_bytes % _BLOCK
    yield TreeGroup(tuple(held), before_bytes=before, last=True)


def _is_large(entry: TreeEntry) -> bool:
    return entry.content_bytes >= LARGE_BYTES


def _begins(name: str) -> bool:
    return zlib.crc32(name.encode(errors="surrogateescape")) % 4 == 0


Digests = list[tuple[bytes, int]]
"""Digest and size of each chunk of a group."""


def read_tree(entries: Sequence[TreeEntry], cache: Path | None = None, read: Read = lambda _: None) -> Tree:
    """Return entries in chunks; those whose digests are in the file *cache* are not read, and what is new is put there."""
    groups = list(group(entries))
    keys = [one.key() for one in groups]
    known = _known(cache)
    unread = [number for number, key in enumerate(keys) if key not in known]
    began = time.time()

    def digest(number: int) -> tuple[bytes, Digests]:
        one = groups[number]
        before = known.get(one.cuts_key(), []) if one.large else []
        found = _digests(_at_cuts(one.entries[0], before)) if before else []
        if len(set(found) & set(before)) <= _SAME_CUTS * len(found):
            found = _digests(one.chunks())
        read(one.content_bytes)
        return keys[number], found

    digests = known | dict(at_once(digest, unread))
    if cache is not None and unread:
        settled = [(key, one) for key, one in zip(keys, groups, strict=True) if one.is_settled(began)]
        kept = {key: digests[key] for key, _ in settled}
        kept |= {one.cuts_key(): digests[key] for key, one in settled if one.large}
        private_home(cache.parent)
        write_private(cache, msgspec.msgpack.encode(kept))
    chunks: list[Chunk] = []
    for key, one in zip(keys, groups, strict=True):
        offset = 0
        for digest_, size in digests[key]:
            chunks.append(Chunk(digest_, size, one, offset))
            offset += size
    return Tree(tuple(chunks))


def at_once(work: Callable[[Item], T], items: Sequence[Item]) -> Iterator[T]:
    """Yield what *work* returns for each item, as it comes; the first error ends it all."""
    if len(items) <= 1:
        yield from map(work, items)
        return
    from concurrent.futures import ThreadPoolExecutor, as_completed  # noqa: PLC0415 - often there is nothing to do

    with ThreadPoolExecutor(LANES) as lanes:
        try:
            for done in as_completed([lanes.submit(work, item) for item in items]):
                yield done.result()
        except BaseException:
            lanes.shutdown(wait=False, cancel_futures=True)
            raise


def _digests(chunks: Iterator[bytes]) -> Digests:
    return [(hashlib.sha256(chunk).digest(), len(chunk)) for chunk in chunks]


def _at_cuts(entry: TreeEntry, before: Digests) -> Iterator[bytes]:
    """Yield a large file's bytes, cut as they were before."""
    with open(entry.path, "rb") as file:  # noqa: PTH123 - as above
        for _, size in before:
            yield _exactly(file, entry, size)


def unread_bytes(entries: Sequence[TreeEntry], cache: Path | None) -> int:
    """Return how many bytes would be read to know the chunks of *entries*."""
    known = _known(cache)
    return sum(one.content_bytes for one in group(entries) if one.key() not in known)


def _known(cache: Path | None) -> dict[bytes, Digests]:
    """Return the digests that were kept; a file that cannot be read is as none."""
    if cache is None:
        return {}
    try:
        return msgspec.msgpack.decode(cache.read_bytes(), type=dict[bytes, Digests])
    except (OSError, msgspec.DecodeError):
        return {}


def _cut(file: BinaryIO, entry: TreeEntry) -> Iterator[bytes]:
    """Yield a file's bytes, cut after windows of eight bytes whose product with a constant is small."""
    pending, left = b"", entry.content_bytes
    while left or pending:
        data = pending + _exactly(file, entry, min(left, _READ_BYTES))
        left -= len(data) - len(pending)
        ends, start = _ends(data), 0
        while len(data) - start > (MOST_CUT_BYTES if left else 0):
            near = (end for end in ends if start + LEAST_CUT_BYTES <= end <= start + MOST_CUT_BYTES)
            end = next(near, min(start + MOST_CUT_BYTES, len(data)))
            yield data[start:end]
            start = end
        pending = data[start:]


def _ends(data: bytes) -> list[int]:
    """Return where *data* may be cut, in order."""
    import numpy as np  # noqa: PLC0415 - slow to load, and only needed for large files that are new

    factor, bound = np.uint64(0x9E3779B97F4A7C15), np.uint64(2**64 // MEAN_CUT_BYTES)
    found: list[int] = []
    for begin in range(0, len(data), MIB):  # what fits the processor's cache
        block = data[begin : begin + MIB + _WINDOW_BYTES - 1]
        for offset in range(_WINDOW_BYTES):
            count = (len(block) - offset) // _WINDOW_BYTES
            if count > 0:
                windows = np.frombuffer(block, "<u8", count, offset)
                at = np.flatnonzero(windows * factor < bound)
                found += (begin + offset + _WINDOW_BYTES * (at + 1)).tolist()
    return sorted(set(found))


def _exactly(file: BinaryIO, entry: TreeEntry, size: int) -> bytes:
    data = file.read(size)
    if len(data) != size:
        raise _changed(entry)
    return data


def _changed(entry: TreeEntry) -> InvalidInputError:
    return InvalidInputError(
        f"{entry.path}, or a file near it, changed while it was sent.",
        remedy="Run it again; what was sent is not sent again.",
        fields=(FieldProblem(entry.name, "changed while it was sent"),),
    )


def _level(data: bytes) -> int:
    """Return how hard to compress *data*: not at all where a sample of it does not get smaller."""
    middle = len(data) // 2
    sample = data[middle : middle + 32 * KIB]
    return 1 if len(zlib.compress(sample, 1)) < 0.95 * len(sample) else 0
