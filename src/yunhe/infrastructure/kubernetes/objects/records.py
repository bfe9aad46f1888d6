"""The record of each allocation: a ConfigMap that claims it, fences it and outlives it.

It is there from the first file that comes, ``preparing``; the launch turns that into a claim, or makes one at once.
Every command goes through the record first, with the version it read as a precondition, so that of two commands at
once the cluster itself lets one win. The scripts lie in the record and the pod cannot start without them: a stop takes
them away, and a pod that somebody makes late, or too late, starts nothing.
"""

import logging
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import msgspec

from yunhe.infrastructure.contract.model import LaunchOrder, Upload
from yunhe.infrastructure.kubernetes.api.answers import AlreadyThereError, ChangedMeanwhileError, decode
from yunhe.infrastructure.kubernetes.api.client import Api
from yunhe.infrastructure.kubernetes.api.informer import Informer
from yunhe.infrastructure.kubernetes.api.shapes import Key, Record
from yunhe.infrastructure.kubernetes.objects import names
from yunhe.infrastructure.kubernetes.objects.phases import allocation_of, state_of, token_of
from yunhe.infrastructure.kubernetes.objects.pods import (
    RecordState,
    collection,
    mark_body,
    namespace_body,
    path_of,
    preparing_body,
    record_body,
    service_account_body,
)
from yunhe.infrastructure.kubernetes.target import ClusterSettings
from yunhe.kernel.errors import FencedError, NotFoundError
from yunhe.kernel.ids import AllocationId

log = logging.getLogger(__name__)

BY_ALLOCATION = "allocation"
NO_SCRIPTS: dict[str, Any] = {"data": None}

Change = Callable[[Record], dict[str, Any] | None]
"""Says what to change of a record as it is now; None: nothing."""


class RecordList(msgspec.Struct, frozen=True):
    """What a search finds."""

    items: tuple[Record, ...] = ()


class AllocationRecords:
    """Reads and changes records."""

    def __init__(self, api: Api, settings: ClusterSettings, live: Informer[Record]) -> None:
        self._api = api
        self._settings = settings
        self._live = live
        self._ready_namespaces: set[str] = set()
        live.store.index(BY_ALLOCATION, lambda record: (allocation_of(record),))

    def key_of(self, order: LaunchOrder | Upload) -> Key:
        """Return where the objects of an order, or of what comes before it, go."""
        one = self._settings.namespace
        namespace = one or names.namespace_of(self._settings.prefix, order.project_id)
        return (namespace, names.object_name(order.allocation_id))

    def mark_key(self, allocation_id: AllocationId) -> Key:
        """Return where the mark of an allocation lies that was stopped before anyone knew its project."""
        return (self._settings.home, names.object_name(allocation_id))

    async def claim(self, order: LaunchOrder) -> tuple[Record, bool]:
        """Make an order's record, or take over the one there is; return it, and whether it is ours to begin."""
        key = self.key_of(order)
        await self._ready(key[0], order.project_id)
        record = await self._create_unless_marked(record_body(order, key[0]), order)
        if record is None:
            record = await self.command(
                key,
                order.token,
                lambda now: claimed(order) if state_of(now) is RecordState.PREPARING else None,
            )
        return record, state_of(record) is RecordState.CLAIMED

    async def prepare(self, upload: Upload) -> Record:
        """Make the record of an allocation whose files come before its launch, or take over the one there is."""
        key = self.key_of(upload)
        await self._ready(key[0], upload.project_id)
        record = await self._create_unless_marked(preparing_body(upload, key[0]), upload)
        return record or await self.command(key, upload.token, lambda _: None)

    async def read(self, key: Key) -> Record | None:
        """Return a record as it is now."""
        try:
            return decode(await self._api.get(path_of("configmaps", key)), Record)
        except NotFoundError:
            return None

    async def find(self, allocation_id: AllocationId) -> Record | None:
        """Return the record of an allocation: the live copy's if it has it, else what a search finds, marks last."""
        held = self._live.store.by(BY_ALLOCATION, allocation_id)
        if held:
            return held[0]
        label = {"labelSelector": f"{names.ALLOCATION}={names.label_value(allocation_id)}"}
        body = await self._api.get(collection("configmaps", self._settings.namespace), label)
        found = decode(body, RecordList).items
        mine = [record for record in found if allocation_of(record) == allocation_id]
        return min(mine, key=lambda record: record.metadata.key == self.mark_key(allocation_id), default=None)

    async def leave_mark(self, allocation_id: AllocationId, token: int) -> Record:
        """Mark an allocation nobody knows as stopped; return its record, should there be one after all."""
        home = self._settings.home
        await self._ready(home, "")
        body = mark_body(allocation_id, home, token, RecordState.RELEASED)
        try:
            mark = await self._create(home, body)
        except AlreadyThereError:
            mark = await self.command(self.mark_key(allocation_id), token, lambda _: None)
        # Whoever launches makes the record first and looks for the mark second; we the other way round, so that one
        # of the two sees the other.
        return await self.find(allocation_id) or mark

    async def command(self, key: Key, token: int, change: Change) -> Record:
        """Change a record on behalf of *token*; a lower one than it has seen is refused and changes nothing."""
        while True:
            record = decode(await self._api.get(path_of("configmaps", key)), Record)
            self.fence(record, token)
            wanted = change(record)
            if wanted is None and token == token_of(record):
                return self._keep(record)
            try:
                return await self._write(record, token, wanted or {})
            except ChangedMeanwhileError:
                continue

    def fence(self, record: Record, token: int) -> None:
        """Refuse a token lower than the highest that a record has seen."""
        if token < token_of(record):
            raise FencedError(
                f"{allocation_of(record)} is commanded by token {token_of(record)}, not by {token} any more."
            )

    async def _write(self, record: Record, token: int, wanted: dict[str, Any]) -> Record:
        metadata: dict[str, Any] = wanted.get("metadata", {})
        annotations: dict[str, Any] = metadata.get("annotations", {})
        body = wanted | {
            "metadata": metadata
            | {
                "annotations": annotations | {names.TOKEN: str(token)},
                "resourceVersion": record.metadata.resource_version,
            }
        }
        answer = await self._api.patch(path_of("configmaps", record.metadata.key), body)
        return self._keep(decode(answer, Record))

    async def _create_unless_marked(self, body: dict[str, Any], order: LaunchOrder | Upload) -> Record | None:
        """Make a record, released at once where a stop was here first; None if there is one."""
        key = self.key_of(order)
        try:
            record = await self._create(key[0], body)
        except AlreadyThereError:
            return None
        mark = (
            await self.read(self.mark_key(order.allocation_id))
            if key != self.mark_key(order.allocation_id)
            else None
        )
        if mark is None:
            return record
        fenced = max(order.token, token_of(mark))
        record = await self.command(key, fenced, lambda _: released())
        self.fence(mark, order.token)
        return record

    async def _create(self, namespace: str, body: dict[str, Any]) -> Record:
        try:
            answer = await self._api.create(collection("configmaps", namespace), body)
        except NotFoundError:
            # Somebody has removed the namespace since we made it.
            self._ready_namespaces.discard(namespace)
            raise
        return self._keep(decode(answer, Record))

    def _keep(self, record: Record) -> Record:
        """Let what we wrote be seen at once by whoever observes."""
        if state_of(record) is RecordState.RELEASED:
            self._live.store.remove(record)
        else:
            self._live.store.put(record)
        return record

    async def _ready(self, namespace: str, project_id: str) -> None:
        """Make sure of a namespace and of the account that pods in it have."""
        if namespace in self._ready_namespaces:
            return
        if not self._settings.namespace:
            await self._apply(f"/api/v1/namespaces/{namespace}", namespace_body(namespace, project_id))
        key = (namespace, names.SERVICE_ACCOUNT)
        await self._apply(path_of("serviceaccounts", key), service_account_body(namespace))
        self._ready_namespaces.add(namespace)

    async def _apply(self, path: str, body: dict[str, Any]) -> None:
        """Make an object as we want it; what an operator has set otherwise is the operator's."""
        try:
            await self._api.apply(path, body)
        except ChangedMeanwhileError:
            log.info("left as its owner wants it", extra={"path": path})


def claimed(order: LaunchOrder) -> dict[str, Any]:
    """Return the change that makes a claim of what was only prepared: from now on it has its scripts."""
    body = record_body(order, "")
    changed = {name: body["metadata"][name] for name in ("labels", "annotations")}
    changed["annotations"] |= {names.CLAIMED_AT: f"{time.time():.3f}"}
    return {"metadata": changed, "data": body["data"]}


def stopped(stop_by: float) -> dict[str, Any]:
    """Return the change that stops an allocation: the mark, and the scripts taken away."""
    return NO_SCRIPTS | {
        "metadata": {
            "labels": {names.STATE: RecordState.STOPPED},
            "annotations": {names.STOP_BY: f"{stop_by:.3f}"},
        }
    }


def released() -> dict[str, Any]:
    """Return the change that leaves nothing but the mark."""
    now = datetime.now(tz=UTC).isoformat(timespec="seconds")
    return NO_SCRIPTS | {
        "metadata": {
            "labels": {names.STATE: RecordState.RELEASED},
            "annotations": {names.RELEASED_AT: now},
        }
    }
