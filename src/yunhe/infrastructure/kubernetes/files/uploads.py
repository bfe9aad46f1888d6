"""Files for an allocation, kept in the cluster from when they come until the release.

An archive is cut into ConfigMaps that nobody can change and that belong to the record. It counts once the record lists
it, which is written last and only while the record still waits for its launch: of an archive that was cut off on its
way, the pod never hears. Being in the cluster, files outlast any process of ours, and a pod starts with them wherever
it is sent. They are no place for much: etcd holds a few GiB in all.
"""

import base64
from collections.abc import AsyncIterator, Iterator

import msgspec

from yunhe.infrastructure.contract.archives import check_paths, read_archive
from yunhe.infrastructure.contract.model import Upload
from yunhe.infrastructure.kubernetes.api.answers import AlreadyThereError, decode
from yunhe.infrastructure.kubernetes.api.client import JSON, Api
from yunhe.infrastructure.kubernetes.api.shapes import Bare, Key, Record
from yunhe.infrastructure.kubernetes.objects import names
from yunhe.infrastructure.kubernetes.objects.phases import allocation_of, state_of
from yunhe.infrastructure.kubernetes.objects.pods import Body, RecordState, collection, path_of
from yunhe.infrastructure.kubernetes.objects.records import AllocationRecords
from yunhe.kernel.errors import ConflictError, NotFoundError, TooLargeError

PIECE_BYTES = 900_000
"""A ConfigMap holds a MiB, and its names and labels are part of it."""
FILES_LIMIT_BYTES = 24 * 2**20
"""All archives of one allocation together, compressed as they come."""
PIECE = "piece"
"""The key of a piece in its ConfigMap."""
NAMES_ONLY = f"application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,{JSON}"


class Kept(msgspec.Struct, frozen=True, kw_only=True):
    """One archive that is there whole."""

    path: str
    digest: str
    size_bytes: int

    @property
    def pieces(self) -> int:
        """How many ConfigMaps hold it."""
        return -(-self.size_bytes // PIECE_BYTES)


class BareList(msgspec.Struct, frozen=True):
    """What a search finds, by name."""

    items: tuple[Bare, ...] | None = None
    """A list of names only that finds nothing says so by null."""


def kept_of(record: Record) -> tuple[Kept, ...]:
    """Return the archives of an allocation, in the order they are unpacked."""
    return msgspec.json.decode(record.metadata.annotations.get(names.FILES, "[]"), type=tuple[Kept, ...])


class Uploads:
    """Keeps and removes the files of allocations."""

    def __init__(self, api: Api, records: AllocationRecords) -> None:
        self._api = api
        self._records = records

    async def put(self, upload: Upload, chunks: AsyncIterator[bytes]) -> None:
        """Check an archive whole and keep it; the newest at a path is not read twice."""
        (path,) = check_paths((upload.path,), "path")
        key = self._records.key_of(upload)
        record = await self._records.read(key)
        if record is not None:
            self._records.fence(record, upload.token)
            if _has(record, path, upload.digest):
                await self._records.command(key, upload.token, lambda _: None)
                return
            _refuse_more(record, upload)
        elif upload.size_bytes > FILES_LIMIT_BYTES:
            raise _too_large(upload.size_bytes)
        archive = await read_archive(upload, chunks)
        # Only now: a refused archive leaves nothing, not even a record.
        record = await self._records.prepare(upload)
        _refuse_more(record, upload)
        kept = Kept(path=path, digest=upload.digest, size_bytes=upload.size_bytes)
        for number, piece in enumerate(_cut(archive)):
            await self._create_once(key[0], _piece_body(record, kept, number, piece))
        try:
            await self._records.command(key, upload.token, lambda now: _listing(now, kept, upload))
        except ConflictError:
            await self._remove_if_released(key)
            raise

    async def remove(self, record: Record) -> None:
        """Remove all pieces that were made for an allocation, listed or not."""
        if names.FILES not in record.metadata.annotations:
            return
        namespace = record.metadata.namespace
        label = {"labelSelector": f"{names.PIECE_OF}={names.label_value(allocation_of(record))}"}
        body = await self._api.get(collection("configmaps", namespace), label, accept=NAMES_ONLY)
        for piece in decode(body, BareList).items or ():
            try:
                await self._api.delete(path_of("configmaps", (namespace, piece.metadata.name)))
            except NotFoundError:
                continue

    async def _remove_if_released(self, key: Key) -> None:
        """Remove what came after a release had removed the rest; nobody would do so again."""
        record = await self._records.read(key)
        if record is not None and state_of(record) is RecordState.RELEASED:
            await self.remove(record)

    async def _create_once(self, namespace: str, body: Body) -> None:
        try:
            await self._api.create(collection("configmaps", namespace), body)
        except AlreadyThereError:
            return  # its name says what is in it, and nobody can change it


def volume(record: Record) -> Body:
    """Return the volume in which a pod finds its archives: a folder for each, by number, with its pieces in order."""
    sources: list[Body] = [
        {
            "configMap": {
                "name": _piece_name(record, kept, piece),
                "items": [{"key": PIECE, "path": f"{number}/{piece:04d}"}],
            }
        }
        for number, kept in enumerate(kept_of(record), start=1)
        for piece in range(kept.pieces)
    ]
    return {"projected": {"defaultMode": 0o444, "sources": sources}}


def _piece_body(record: Record, kept: Kept, number: int, piece: bytes) -> Body:
    metadata = record.metadata
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": metadata.name, "uid": metadata.uid}
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": _piece_name(record, kept, number),
            "namespace": metadata.namespace,
            "labels": {
                names.MANAGED_BY: "yunhe",
                names.PIECE_OF: names.label_value(allocation_of(record)),
            },
            "ownerReferences": [owner],
        },
        "immutable": True,
        "binaryData": {PIECE: base64.b64encode(piece).decode()},
    }


def _piece_name(record: Record, kept: Kept, number: int) -> str:
    return names.piece_name(allocation_of(record), record.metadata.uid, kept.path, kept.digest, number)


def _cut(archive: bytes) -> Iterator[bytes]:
    for start in range(0, len(archive), PIECE_BYTES):
        yield archive[start : start + PIECE_BYTES]


def _has(record: Record, path: str, digest: str) -> bool:
    """Return whether the newest archive at a path is this one."""
    at_path = [kept.digest for kept in kept_of(record) if kept.path == path]
    return bool(at_path) and at_path[-1] == digest


def _refuse_more(record: Record, upload: Upload) -> None:
    """Refuse an archive that comes too late or is too much."""
    state = state_of(record)
    if state is not RecordState.PREPARING:
        raise ConflictError(f"{upload.allocation_id} takes no more files: it is {state}.")
    total = upload.size_bytes + sum(kept.size_bytes for kept in kept_of(record))
    if total > FILES_LIMIT_BYTES:
        raise _too_large(total)


def _listing(record: Record, kept: Kept, upload: Upload) -> dict[str, Body] | None:
    """Return the change by which an archive counts."""
    if _has(record, kept.path, kept.digest):
        return None
    _refuse_more(record, upload)
    text = msgspec.json.encode((*kept_of(record), kept)).decode()
    return {"metadata": {"annotations": {names.FILES: text}}}


def _too_large(size_bytes: int) -> TooLargeError:
    return TooLargeError(
        f"Files of {size_bytes} bytes are over what a task may bring to a cluster, {FILES_LIMIT_BYTES}.",
        remedy="Leave large data out of workdir and file_mounts, and have the task fetch it.",
    )
