"""The contract over a Kubernetes cluster.

An allocation is a bare Pod with a record beside it. A Job would add nothing but a controller that, by its own
documentation, may start the same program twice; a Pod's name is taken once, and our finalizer keeps it in the API,
whoever deletes it, until it is released. So what happened is always there to be read, also by a process that has
just started: this one keeps nothing that it could not read again.
"""

import math
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import anyio
from anyio.abc import TaskGroup

from yunhe.agent.runs.changes import ChangeLog
from yunhe.infrastructure.contract.archives import check_paths
from yunhe.infrastructure.contract.engine import ExecSession, ForwardSession
from yunhe.infrastructure.contract.model import (
    Account,
    Catalogue,
    Description,
    ExecRequest,
    Inventory,
    LaunchOrder,
    LogChunk,
    Observation,
    Observed,
    Upload,
    UsageMinute,
)
from yunhe.infrastructure.kubernetes.api.answers import AlreadyThereError, decode
from yunhe.infrastructure.kubernetes.api.client import Api
from yunhe.infrastructure.kubernetes.api.exec_session import open_exec
from yunhe.infrastructure.kubernetes.api.forward_session import open_forward
from yunhe.infrastructure.kubernetes.api.informer import Informer, Pace
from yunhe.infrastructure.kubernetes.api.kubeconfig import read_access
from yunhe.infrastructure.kubernetes.api.shapes import Key, KubeNode, Neighbour, Pod, Record
from yunhe.infrastructure.kubernetes.api.watch import WatchSource
from yunhe.infrastructure.kubernetes.facts import NO_RESIZE, ClusterFacts, describe, find_out, read_account
from yunhe.infrastructure.kubernetes.files.log_watch import LogWatches
from yunhe.infrastructure.kubernetes.files.logs import LogReader, Look
from yunhe.infrastructure.kubernetes.files.outputs import fetch_archive, within_reach
from yunhe.infrastructure.kubernetes.files.uploads import Uploads, kept_of, volume
from yunhe.infrastructure.kubernetes.objects import names
from yunhe.infrastructure.kubernetes.objects.manifests import manifests_of
from yunhe.infrastructure.kubernetes.objects.nodes import (
    catalogue_of,
    node_of,
    tolerations_for,
    unmapped_devices,
)
from yunhe.infrastructure.kubernetes.objects.phases import (
    Progress,
    allocation_of,
    container_of,
    first_step,
    has_run,
    is_over,
    observed,
    state_of,
)
from yunhe.infrastructure.kubernetes.objects.pods import (
    Brought,
    RecordState,
    check_order,
    collection,
    path_of,
    pod_body,
    secret_body,
)
from yunhe.infrastructure.kubernetes.objects.records import (
    BY_ALLOCATION,
    AllocationRecords,
    released,
    stopped,
)
from yunhe.infrastructure.kubernetes.reconciler import FORCE_AFTER_AT_LEAST_S, PodReconciler
from yunhe.infrastructure.kubernetes.resizing import resize_pod
from yunhe.infrastructure.kubernetes.sweeping import Sweeper
from yunhe.infrastructure.kubernetes.target import ClusterSettings
from yunhe.infrastructure.kubernetes.usage.metering import Metering
from yunhe.infrastructure.kubernetes.usage.stats import Stats
from yunhe.kernel.clock import system_clock
from yunhe.kernel.errors import (
    ConflictError,
    ForbiddenError,
    InvalidInputError,
    NotFoundError,
    PoolUnreachableError,
    TooLargeError,
    UnsupportedError,
    YunheError,
)
from yunhe.kernel.ids import AllocationId
from yunhe.kernel.resources import Resources

REFUSALS = (ForbiddenError, InvalidInputError, NotFoundError, TooLargeError, UnsupportedError)
BEFORE_THE_END = (RecordState.PREPARING, RecordState.CLAIMED)
SYNC_WITHIN_S = 30.0
STALE_AFTER_S = 10.0
BY_NODE = "node"
KEEPER_WITHIN_S = 30.0
LOOK_AGAIN_S = 0.3


@asynccontextmanager
async def open_engine(
    settings: ClusterSettings, *, pace: Pace | None = None
) -> AsyncGenerator["KubernetesEngine"]:
    """Hold a connection to a cluster; raise ``PoolUnreachableError`` if there is none to begin with."""
    async with Api(read_access(settings.context, settings.kubeconfig)) as api:
        facts = await find_out(api)
        problem: YunheError | None = None
        async with anyio.create_task_group() as group:
            engine = KubernetesEngine(api, settings, facts, group, pace=pace)
            try:
                await engine.start()
            except YunheError as error:
                problem = error  # raised as it is outside, where no group wraps it
            else:
                yield engine
            group.cancel_scope.cancel()
        if problem is not None:
            raise problem


class KubernetesEngine:
    """An engine whose nodes are a cluster's."""

    def __init__(
        self,
        api: Api,
        settings: ClusterSettings,
        facts: ClusterFacts,
        group: TaskGroup,
        *,
        pace: Pace | None = None,
    ) -> None:
        self.api = api
        self.settings = settings
        self._facts = facts
        self._group = group
        self._background = anyio.CancelScope()
        self._observed_once = False
        self._changes = ChangeLog(int(time.time() * 1_000_000))
        self._changed = anyio.Event()
        ours = f"{names.ALLOCATION},{names.STATE}!={RecordState.RELEASED}"
        scope = settings.namespace
        self._record_informer = Informer(
            api,
            WatchSource(path=collection("configmaps", scope), shape=Record, label_selector=ours),
            pace=pace,
        )
        self._pod_informer = Informer(
            api,
            WatchSource(path=collection("pods", scope), shape=Pod, label_selector=names.ALLOCATION),
            pace=pace,
        )
        self._node_informer = Informer(api, WatchSource(path=collection("nodes"), shape=KubeNode), pace=pace)
        self._unmapped: str | None = None
        """What is said of devices without a name; None: the nodes have changed since."""
        self._node_informer.store.listen(lambda _key, _was, _is: self._nodes_changed())
        self._neighbour_informer = Informer(
            api,
            WatchSource(
                path=collection("pods"),
                shape=Neighbour,
                label_selector=f"!{names.ALLOCATION}",
                field_selector="spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed",
            ),
            pace=pace,
        )
        self._neighbour_informer.store.index(BY_NODE, lambda pod: (pod.spec.node_name,))
        self.pods, self._live_records = self._pod_informer.store, self._record_informer.store
        self.pods.listen(lambda key, _was, _is: self._tell(key))
        self._live_records.listen(lambda key, was, _is: self._tell(key, was))
        self.records = AllocationRecords(api, settings, self._record_informer)
        self._uploads = Uploads(api, self.records)
        self._stats = Stats(api, facts.usage)
        self._metering = Metering(api, self._stats, self.pods, settings.sample_every_s, system_clock)
        self._taps = LogWatches(api, group, self._tell)
        self._caretaker = PodReconciler(
            api, self._live_records, self.pods, self._taps, self._metering, system_clock
        )

    async def start(self) -> None:
        """Begin to watch the cluster; return once all that is there has been seen."""
        self._group.start_soon(self._run_background)
        for informer in self._informers():
            await informer.wait_synced(SYNC_WITHIN_S)

    async def _run_background(self) -> None:
        with self._background:
            async with anyio.create_task_group() as group:
                for informer in self._informers():
                    group.start_soon(informer.run)
                group.start_soon(self._caretaker.run)
                group.start_soon(Sweeper(self.api, self.settings, system_clock).run)
                group.start_soon(self._metering.run, lambda: self._observed_once)

    def _informers(
        self,
    ) -> tuple[Informer[Record] | Informer[Pod] | Informer[KubeNode] | Informer[Neighbour], ...]:
        """Return those that run; who may see one namespace only is not shown what others hold of the nodes."""
        ours = (self._record_informer, self._pod_informer, self._node_informer)
        return (*ours, self._neighbour_informer) if self._facts.sees_neighbours else ours

    # What it is

    async def describe(self) -> Description:
        """Return what this engine is and can do."""
        return describe(self._facts, self.settings)

    async def account(self) -> Account:
        """Return who we are to the cluster, and the quotas of our namespaces."""
        return await read_account(self.api, self.settings)

    async def catalogue(self) -> Catalogue:
        """Return the sizes of node the cluster has."""
        return catalogue_of(self._node_informer.store.all(), self.settings)

    async def inventory(self) -> Inventory:
        """Return every node with what it has and what is in use now."""
        self._refuse_if_stale()
        nodes = sorted(self._node_informer.store.all(), key=lambda node: node.metadata.name)
        use = await self._stats.node_use({node.metadata.name for node in nodes})
        return Inventory(
            taken_at=time.time(),
            nodes=tuple(
                node_of(
                    node,
                    (
                        container
                        for pod in self._neighbour_informer.store.by(BY_NODE, node.metadata.name)
                        for container in pod.spec.containers
                    ),
                    use.get(node.metadata.name),
                    self.settings,
                )
                for node in nodes
            ),
        )

    def manifests(self, order: LaunchOrder) -> tuple[dict[str, Any], ...]:
        """Return objects that, applied as they are, run *order* without the platform."""
        return manifests_of(order, self.settings)

    # Lifecycle

    async def launch(self, order: LaunchOrder) -> None:
        """Claim an order by its record, then make its pod; each is made once, whoever repeats it."""
        check_order(order, self.settings)
        record, is_ours = await self.records.claim(order)
        if not is_ours:
            return
        key, uid = record.metadata.key, record.metadata.uid
        brought = Brought(tuple(kept.path for kept in kept_of(record)), volume(record))
        try:
            if order.secrets:
                await self._create_once("secrets", key, secret_body(order, key, uid))
            pod = pod_body(order, key, uid, self.settings, brought)
            node = self._node_informer.store.get(("", order.node_id)) if order.node_id else None
            if node is not None and (tolerations := tolerations_for(node)):
                pod["spec"]["tolerations"] = tolerations
            answer = await self._create_once("pods", key, pod)
        except REFUSALS:
            # A quota or an admission rule said no. A pod that is there all the same was made by an earlier call.
            if await self._read_pod(key) is None:
                await self.release(order.allocation_id, order.token)
                raise
            return
        if answer:
            self.pods.put(decode(answer, Pod))

    async def stop(self, allocation_id: AllocationId, token: int, *, grace_s: float = 10.0) -> None:
        """Mark an allocation as stopped, which nothing undoes, and begin to end its pod."""
        record = await self.records.find(allocation_id)
        if record is None:
            record = await self.records.leave_mark(allocation_id, token)
        key = record.metadata.key
        pod = await self._read_pod(key)
        stop_by = time.time() + max(grace_s, FORCE_AFTER_AT_LEAST_S)
        over = pod is not None and is_over(pod)
        record = await self.records.command(
            key,
            token,
            lambda now: stopped(stop_by) if state_of(now) in BEFORE_THE_END and not over else None,
        )
        if pod is None:
            # A launch may just have made it; from now on it finds no scripts, and the caretaker ends it.
            pod = await self._read_pod(key)
        if pod is not None and not is_over(pod) and state_of(record) is RecordState.STOPPED:
            await self._caretaker.end(record, pod)

    async def release(self, allocation_id: AllocationId, token: int) -> None:
        """Remove an ended allocation's pod, secret and files; its record stays as a mark."""
        record = await self.records.find(allocation_id)
        if record is None:
            return
        key = record.metadata.key
        pod = await self._read_pod(key)
        self.records.fence(record, token)
        if state_of(record) is RecordState.PREPARING or (pod is not None and not is_over(pod)):
            raise ConflictError(f"{allocation_id} has not ended yet.", remedy="Stop it first.")
        record = await self.records.command(
            key, token, lambda now: None if state_of(now) is RecordState.RELEASED else released()
        )
        has_secret = names.SECRET in record.metadata.annotations
        if pod is not None:
            await self._caretaker.remove(pod, secret=has_secret)
        elif has_secret:
            await self._caretaker.remove_secret(key)
        await self._uploads.remove(record)

    async def observe(self, *, beyond: int = -1, wait_s: float = 0.0) -> Observation:
        """Return what changed after *beyond*, or everything, from the live copy; wait for news if asked to."""
        self._observed_once = True
        with anyio.move_on_after(wait_s):
            while self._changes.version == beyond:
                await self._changed.wait()
        self._refuse_if_stale()
        now, since = time.time(), self._changes.after(beyond)
        records = self._live_records.all() if since is None else self._records_of(since[0])
        return Observation(
            version=self._changes.version,
            allocations=tuple(self._observe_one(record, now) for record in records),
            since=-1 if since is None else beyond,
            gone=() if since is None else tuple(AllocationId(name) for name in since[1]),
            notices=self._notices(),
        )

    def _records_of(self, allocations: list[str]) -> list[Record]:
        return [record for name in allocations for record in self._live_records.by(BY_ALLOCATION, name)]

    def _notices(self) -> tuple[str, ...]:
        problems = [str(one.problem) for one in self._informers() if one.problem is not None]
        if self._unmapped is None:
            self._unmapped = unmapped_devices(self._node_informer.store.all(), self.settings)
        return (*problems, self._unmapped) if self._unmapped else tuple(problems)

    def _nodes_changed(self) -> None:
        self._unmapped = None

    def _observe_one(self, record: Record, now: float) -> Observed:
        key = record.metadata.key
        pod, tap = self.pods.get(key), self._taps.get(key)
        began = pod is not None and has_run(pod)
        progress = Progress(
            step=(tap.step if tap is not None else "") or (first_step(record) if began else ""),
            log_bytes=tap.log_bytes if tap is not None else 0,
            meters=self._metering.meters(pod) if pod is not None else Progress().meters,
        )
        return observed(record, pod, progress, self.settings, now)

    async def logs(
        self, allocation_id: AllocationId, *, offset: int = 0, follow: bool = False
    ) -> AsyncIterator[LogChunk]:
        """Yield output from byte *offset*; with *follow*, until the allocation has ended and all is read."""
        record = await self.records.find(allocation_id)
        if record is None or state_of(record) is RecordState.RELEASED:
            raise NotFoundError(f"There is no output of {allocation_id}.")
        key = record.metadata.key
        reader = LogReader(self.api, allocation_id, key, lambda: self._look(allocation_id, key))
        async for chunk in reader.read(offset, follow=follow):
            yield chunk

    async def usage(self, *, beyond: int = -1) -> AsyncIterator[UsageMinute]:
        """Yield every folded minute after *beyond*; those up to it are let go."""
        self._observed_once = True
        for minute in self._metering.minutes(beyond):
            yield minute

    async def close(self) -> None:
        """Stop watching and let go of the connections; allocations go on."""
        self._background.cancel()
        self._taps.close_all()
        await self.api.close()

    # Powers

    async def resize(self, allocation_id: AllocationId, token: int, resources: Resources) -> None:
        """Change the limits of a running allocation in place."""
        if not self._facts.resizes:
            raise UnsupportedError(NO_RESIZE, remedy="Move the allocation, or upgrade the cluster.")
        record, pod = await self._running(allocation_id, token)
        await resize_pod(self.api, pod, resources, self.settings, lambda: self.pods.get(record.metadata.key))

    def exec(
        self, allocation_id: AllocationId, request: ExecRequest
    ) -> AbstractAsyncContextManager[ExecSession]:
        """Run a command beside a running allocation; leaving the block ends it."""
        return self._exec(allocation_id, request)

    @asynccontextmanager
    async def _exec(
        self, allocation_id: AllocationId, request: ExecRequest
    ) -> AsyncGenerator[ExecSession, None]:
        record, _ = await self._running(allocation_id)
        async with open_exec(self.api, record.metadata.key, request) as session:
            yield session

    @asynccontextmanager
    async def forward(self, allocation_id: AllocationId, port: int) -> AsyncGenerator[ForwardSession, None]:
        """Connect to a port inside a running allocation; leaving the block hangs up."""
        record, _ = await self._running(allocation_id)
        async with open_forward(self.api, record.metadata.key, port) as session:
            yield session

    async def put_archive(self, upload: Upload, chunks: AsyncIterator[bytes]) -> None:
        """Check an archive and keep it in the cluster until the pod unpacks it; the newest at a path is not read twice."""
        await self._uploads.put(upload, chunks)

    async def get_archive(self, allocation_id: AllocationId, paths: tuple[str, ...]) -> AsyncIterator[bytes]:
        """Yield a gzip-compressed tar of what matches *paths*: from the keeper, or while it runs from the task itself."""
        patterns = check_paths(paths, "paths")
        record = await self.records.find(allocation_id)
        if record is None or state_of(record) is RecordState.RELEASED:
            raise NotFoundError(f"There are no files of {allocation_id} here.", remedy="It may be released.")
        container = await self._container_within_reach(record)
        async for piece in fetch_archive(self.api, record.metadata.key, container, patterns):
            yield piece

    # How

    async def _container_within_reach(self, record: Record) -> str:
        """Return the container from which files are fetched; a task may have ended before its keeper has begun."""
        until = anyio.current_time() + KEEPER_WITHIN_S
        while True:
            pod = await self._read_pod(record.metadata.key)
            container = within_reach(allocation_of(record), pod)
            if container is not None:
                return container
            if anyio.current_time() > until:
                raise PoolUnreachableError(f"The keeper of {allocation_of(record)} has not started yet.")
            await anyio.sleep(LOOK_AGAIN_S)

    async def _running(self, allocation_id: AllocationId, token: int | None = None) -> tuple[Record, Pod]:
        """Return an allocation whose container runs now; with *token*, only to whom may command it."""
        record = await self.records.find(allocation_id)
        if record is None:
            raise NotFoundError(f"There is no allocation {allocation_id} here.")
        if token is not None:
            record = await self.records.command(record.metadata.key, token, lambda _: None)
        pod = await self._read_pod(record.metadata.key)
        state = container_of(pod) if pod is not None else None
        if pod is None or state is None or state.state.running is None:
            raise ConflictError(f"{allocation_id} is not running.")
        return record, pod

    async def _read_pod(self, key: Key) -> Pod | None:
        """Return a pod as it is now, not as it was when we last heard of it."""
        try:
            pod = decode(await self.api.get(path_of("pods", key)), Pod)
        except NotFoundError:
            return None
        self.pods.put(pod)
        return pod

    async def _create_once(self, kind: str, key: Key, body: dict[str, object]) -> bytes:
        try:
            return await self.api.create(collection(kind, key[0]), body)
        except AlreadyThereError:
            return b""

    def _look(self, allocation_id: AllocationId, key: Key) -> Look:
        record, pod = self._live_records.get(key), self.pods.get(key)
        if record is None:
            raise NotFoundError(f"There is no output of {allocation_id}.")
        never = state_of(record) not in BEFORE_THE_END
        return Look(pod, is_over(pod) if pod is not None else never)

    def _tell(self, key: Key, was: Record | None = None) -> None:
        """Let whoever waits look at an allocation again, or see that it is gone; a pod without a record is none."""
        record = self._live_records.get(key)
        if record is not None:
            self._changes.note(allocation_of(record))
        elif was is not None:
            self._changes.forget(allocation_of(was))
        else:
            return
        changed, self._changed = self._changed, anyio.Event()
        changed.set()

    def _refuse_if_stale(self) -> None:
        """Say that the cluster cannot be seen rather than tell what was true a while ago."""
        for informer in self._informers():
            since = informer.failing_since
            if since is not None and anyio.current_time() - since > STALE_AFTER_S:
                words = informer.problem.problem if informer.problem is not None else "no answer"
                seconds = math.floor(anyio.current_time() - since)
                raise PoolUnreachableError(f"The cluster has not been seen for {seconds} s: {words}")
