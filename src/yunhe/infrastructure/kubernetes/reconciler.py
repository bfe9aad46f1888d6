"""Brings each pod to where its record says it should be, whoever began it and died before the end.

One look at a time for each key, at what is known now, in any order, any number of times: a stop that was only marked
is carried out, one that is ignored is forced when its grace is over, an end is written down with its meters and the
length of its log, and what was released is removed.
"""

import logging
from contextlib import suppress

import anyio
import msgspec

from yunhe.infrastructure.contract.model import ExecRequest
from yunhe.infrastructure.kubernetes.api.answers import ChangedMeanwhileError, decode
from yunhe.infrastructure.kubernetes.api.client import Api
from yunhe.infrastructure.kubernetes.api.exec_session import open_exec
from yunhe.infrastructure.kubernetes.api.key_queue import KeyQueue
from yunhe.infrastructure.kubernetes.api.shapes import Key, Pod, Record
from yunhe.infrastructure.kubernetes.api.store import Store
from yunhe.infrastructure.kubernetes.files.log_watch import LogWatches
from yunhe.infrastructure.kubernetes.objects import names
from yunhe.infrastructure.kubernetes.objects.phases import (
    Final,
    final_of,
    has_keeper,
    has_run,
    is_gone,
    is_over,
    is_running,
    state_of,
    terminated_of,
    unsettled_s,
    verdict_of,
    with_end,
)
from yunhe.infrastructure.kubernetes.objects.pods import KEPT_AFTER_GRACE_S, RecordState, path_of
from yunhe.infrastructure.kubernetes.objects.wrapper import read_note
from yunhe.infrastructure.kubernetes.usage.metering import Metering
from yunhe.kernel.backoff import Backoff
from yunhe.kernel.clock import Clock
from yunhe.kernel.errors import ConflictError, InvalidInputError, NotFoundError, YunheError

WORKERS = 8
RESYNC_S = 60.0
"""Everything is looked at again now and then, behind what has just changed: no single event must be heard."""
LOOK_AGAIN_S = 2.0
FORCE_AFTER_AT_LEAST_S = 2.0
"""A deleted pod's log is gone with it: what obeys the polite signal keeps its log even where there is no grace."""
READ_LOG_TRIES = 4
SIGNAL_WITHIN_S = 10.0
ASK = "kill -TERM 1"
"""Process 1 of the task's container is our wrapper, which hands it on and keeps the grace."""
FORCE = "kill -KILL -1"
"""All but process 1 and whoever says it."""

log = logging.getLogger(__name__)


class PodReconciler:
    """Looks after pods and their records."""

    def __init__(
        self,
        api: Api,
        records: Store[Record],
        pods: Store[Pod],
        taps: LogWatches,
        metering: Metering,
        clock: Clock,
    ) -> None:
        self.queue = KeyQueue()
        self._api = api
        self._records = records
        self._pods = pods
        self._taps = taps
        self._metering = metering
        self._clock = clock
        records.listen(lambda key, _was, _is: self.queue.add(key))
        pods.listen(lambda key, _was, _is: self.queue.add(key))

    async def run(self) -> None:
        """Look after everything until cancelled."""
        async with anyio.create_task_group() as group:
            for _ in range(WORKERS):
                group.start_soon(self._work)
            while True:
                await anyio.sleep(RESYNC_S)
                for pod in self._pods.all():
                    self.queue.add(pod.metadata.key, urgent=False)

    async def _work(self) -> None:
        while True:
            key = await self.queue.take()
            try:
                await self.look(key)
            except ChangedMeanwhileError:
                self.queue.add_after(key, 0.1)
            except YunheError:
                self.queue.add_after(key, LOOK_AGAIN_S)
            except Exception:
                # Whatever somebody wrote on one object, the others are looked after.
                log.exception("look failed, will be repeated", extra={"key": key})
                self.queue.add_after(key, LOOK_AGAIN_S)
            finally:
                self.queue.done(key)

    async def look(self, key: Key) -> None:
        """Do the next thing that an allocation needs, if any."""
        record, pod = self._records.get(key), self._pods.get(key)
        if pod is None:
            self._taps.close(key)
            self._metering.forget(key)
        elif record is None:
            await self._clear_away(pod)
        elif is_over(pod):
            if final_of(pod) is None and has_run(pod):
                wait_s = unsettled_s(record, pod, self._clock())
                if wait_s > 0:
                    self.queue.add_after(key, wait_s)
                    return
                await self._write_down_the_end(record, pod)
            self._taps.close(key)
        else:
            if has_run(pod):
                self._taps.open(key, record, lambda: self._pods.get(key))
            if state_of(record) is RecordState.STOPPED:
                await self.end(record, pod)

    async def end(self, record: Record, pod: Pod) -> None:
        """End a pod that its record says is stopped: politely first, and by force when the grace is over."""
        key = pod.metadata.key
        stop_by = float(record.metadata.annotations.get(names.STOP_BY, "0"))
        # With a keeper the pod must not go with the task: the wrapper forces that, and the files are still to be fetched.
        left_s = stop_by + (KEPT_AFTER_GRACE_S if has_keeper(pod) else 0.0) - self._clock()
        try:
            if not pod.spec.node_name:
                self._keep(await self._api.delete(path_of("pods", key), uid=pod.metadata.uid))
            elif left_s > 0 and has_keeper(pod) and is_running(pod):
                # A node that ends a whole pod says nothing of the task before its keeper has ended too.
                await self._signal(key, ASK if self._clock() < stop_by else FORCE)
                left_s = min(left_s, LOOK_AGAIN_S)
            elif left_s <= 0 and pod.metadata.deletion_timestamp is None:
                await self._api.delete(path_of("pods", key), uid=pod.metadata.uid, grace_s=1)
            elif pod.spec.active_deadline_seconds != 1:
                # Only the node can signal a container. A deadline that has passed makes it do so and keeps pod and
                # log, which a deletion would not.
                self._keep(
                    await self._api.patch(path_of("pods", key), {"spec": {"activeDeadlineSeconds": 1}})
                )
        except (NotFoundError, InvalidInputError):
            self.queue.add_after(key, LOOK_AGAIN_S)
        if left_s > 0:
            self.queue.add_after(key, left_s + 0.05)

    async def _signal(self, key: Key, script: str) -> None:
        """Signal the task from inside its container; what comes too early, or not at all, is repeated."""
        request = ExecRequest(argv=("/bin/sh", "-c", script))
        with suppress(YunheError), anyio.move_on_after(SIGNAL_WITHIN_S):
            async with open_exec(self._api, key, request) as session:
                await session.wait()

    async def remove(self, pod: Pod, *, secret: bool) -> None:
        """Remove an ended pod and its secret; only its record stays."""
        key = pod.metadata.key
        keep = [name for name in pod.metadata.finalizers if name != names.FINALIZER]
        body = {"metadata": {"uid": pod.metadata.uid, "finalizers": keep or None}}
        try:
            await self._api.patch(path_of("pods", key), body)
            if not is_gone(pod):
                # Its keeper runs. The node ends that and then lets go of the pod, whoever has deleted it before.
                await self._api.delete(path_of("pods", key), uid=pod.metadata.uid, grace_s=1)
            elif pod.metadata.deletion_timestamp is None:
                await self._api.delete(path_of("pods", key), uid=pod.metadata.uid, grace_s=0)
        except (NotFoundError, ConflictError):
            self.queue.add_after(key, LOOK_AGAIN_S)  # gone already, or another has taken its name
        self._pods.remove(pod)
        if secret:
            await self.remove_secret(key)

    async def remove_secret(self, key: Key) -> None:
        """Remove the secret of an allocation."""
        try:
            await self._api.delete(path_of("secrets", key))
        except NotFoundError:
            return

    async def _clear_away(self, pod: Pod) -> None:
        """Remove a pod whose record is only a mark, or is gone."""
        key = pod.metadata.key
        try:
            record = decode(await self._api.get(path_of("configmaps", key)), Record)
        except NotFoundError:
            await self.remove(pod, secret=True)
            return
        if state_of(record) is RecordState.RELEASED:
            await self.remove(pod, secret=names.SECRET in record.metadata.annotations)
        else:
            self._records.put(record)

    async def _write_down_the_end(self, record: Record, pod: Pod) -> None:
        """Write on the pod what will be told of it from now on."""
        key = pod.metadata.key
        detail, ended = "", terminated_of(pod)
        log_bytes, step = 0, read_note(ended.message).step if ended is not None else ""
        backoff = Backoff(0.2)
        for _ in range(READ_LOG_TRIES):
            try:
                tap = await self._taps.whole(key, record)
                log_bytes, step, detail = tap.log_bytes, tap.step or step, ""
                break
            except YunheError as error:
                detail = f"Its log could not be read: {error.problem}"
                await anyio.sleep(backoff.next_s())
        else:
            held = self._taps.get(key)
            log_bytes = held.log_bytes if held is not None else 0
        final = Final(log_bytes=log_bytes, step=step, meters=self._metering.finish(pod), detail=detail)
        if has_keeper(pod):
            final = await self._with_ending(final, pod)
        body = {
            "metadata": {
                "resourceVersion": pod.metadata.resource_version,
                "annotations": {names.FINAL: msgspec.json.encode(final).decode()},
            }
        }
        self._keep(await self._api.patch(path_of("pods", key), body))

    async def _with_ending(self, final: Final, pod: Pod) -> Final:
        """Return *final* with how it ended, once and for all, by what its record says now: a stop is in it first."""
        body = await self._api.get(path_of("configmaps", pod.metadata.key))
        verdict = verdict_of(decode(body, Record), pod)
        return with_end(final, verdict, pod) if verdict.ending is not None else final

    def _keep(self, answer: bytes) -> None:
        """Let what we changed be seen at once; a deletion that is complete answers with no pod."""
        pod = decode(answer, Pod)
        if pod.metadata.name:
            self._pods.put(pod)
