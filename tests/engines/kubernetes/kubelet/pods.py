"""The life of one pod on a node."""

import datetime as dt
import math
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import NamedTuple

import anyio
import anyio.abc

from engines.kubernetes.kubelet.access import STRATEGIC, Access, Object
from engines.kubernetes.kubelet.containers import NOTE, Plan, Run
from engines.kubernetes.kubelet.contents import Contents, NotYetError, expand
from engines.kubernetes.kubelet.quantities import mebibytes, millis
from engines.kubernetes.kubelet.resize import Refused
from engines.kubernetes.kubelet.statuses import Conditions, Container, pod_status
from yunhe.agent.limits.limits import LimitsBackend

RETRY_S = 0.3
BACK_OFF_S = 0.5
"""Before a container is started again; a real kubelet waits 10 s, then twice as long each time."""
DEFAULT_GRACE_S = 30


class Home(NamedTuple):
    """What a node gives to its pods."""

    address: str
    folder: Path
    keeper: LimitsBackend


class PodWorker:
    """Runs one pod from the moment it is bound to the node until it is gone."""

    def __init__(self, access: Access, pod: Object, home: Home, room: "Room") -> None:
        self.pod = pod
        self._room = room
        self.uid: str = pod["metadata"]["uid"]
        self.is_over = False
        self._is_gone = False
        self._access, self._home = access, home
        self._folder = home.folder / self.uid
        self._path = f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}"
        self._contents = Contents(access, pod, self._folder, home.address)
        self._conditions = Conditions()
        self._inits = [
            Container(spec, spec.get("resources", {})) for spec in pod["spec"].get("initContainers", ())
        ]
        self._mains = [Container(spec, spec.get("resources", {})) for spec in pod["spec"]["containers"]]
        self._changed = anyio.Event()
        self._stopping = anyio.Event()
        self._grace_s = math.inf
        self._ended = anyio.Event()
        self._reporting = anyio.Lock()

    # What others ask

    def container(self, name: str) -> Container | None:
        """Return a container by its name."""
        return next((one for one in (*self._inits, *self._mains) if one.spec["name"] == name), None)

    def containers(self) -> list[Container]:
        """Return the containers that are not for initialization."""
        return self._mains

    def update(self, pod: Object) -> None:
        """Take a newer version of the pod."""
        self.pod = pod
        changed, self._changed = self._changed, anyio.Event()
        changed.set()

    # From start to end

    async def run(self) -> None:
        """Live the pod's life."""
        phase = self.pod.get("status", {}).get("phase")
        if phase in ("Succeeded", "Failed"):
            self.is_over = True  # it ended before this kubelet was started
            self._ended.set()
        elif phase == "Running":
            self._give_up_earlier_runs()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._heed_changes, tasks)
            if not self.is_over:
                if not any(container.has_ended for container in self._mains):
                    await self._live()
                await self._conclude()
            await self._wait_for_deletion()
            tasks.cancel_scope.cancel()

    async def vanish(self) -> None:
        """End what runs without a word: the pod is no more."""
        self._is_gone = True
        self._stopping.set()
        self.update(self.pod)
        for container in (*self._inits, *self._mains):
            if container.run is not None:
                await container.run.stop(0)

    async def _live(self) -> None:
        """Do all that comes before the end; a stop while the pod is still being prepared ends that too."""
        async with anyio.create_task_group() as preparing:
            preparing.start_soon(self._cancel_when_stopping, preparing.cancel_scope)
            await self._report()
            await self._prepare()
            preparing.cancel_scope.cancel()
        for container in self._inits:
            if not self._stopping.is_set() and await self._keep(container, policy=self._init_policy()):
                return
        if self._stopping.is_set():
            return
        self._conditions.is_initialized = True
        self._conditions.phase = "Running"
        async with anyio.create_task_group() as running:
            for container in self._mains:
                running.start_soon(self._keep, container, self.pod["spec"].get("restartPolicy", "Always"))

    def _give_up_earlier_runs(self) -> None:
        """Call lost what an earlier kubelet of this node ran: a node that was started anew has nothing of it."""
        told = {status["name"]: status for status in self.pod["status"].get("containerStatuses", ())}
        for container in self._mains:
            name = container.spec["name"]
            lost = Run.lost(
                Plan([], {}, "/", ""), self._folder / "lost", self._home.keeper, f"{self.uid}-{name}"
            )
            container.restarts = told.get(name, {}).get("restartCount", 0)
            if self.pod["spec"].get("restartPolicy", "Always") == "Never":
                container.run, container.waiting = lost, ""
            else:
                container.last, container.restarts = lost, container.restarts + 1

    async def _prepare(self) -> None:
        while True:
            try:
                await self._contents.write_volumes()
            except NotYetError as why:
                await self._wait_for(self._mains, "ContainerCreating", str(why))
            else:
                return

    async def _keep(self, container: Container, policy: str) -> int:
        """Start a container as often as *policy* says; return its last exit code."""
        while True:
            code = await self._run_once(container)
            wants_more = policy == "Always" or (policy == "OnFailure" and code != 0)
            if self._stopping.is_set() or not wants_more:
                return code
            container.waiting = "CrashLoopBackOff"
            await self._report()
            with anyio.move_on_after(BACK_OFF_S):
                await self._stopping.wait()
            container.waiting = ""
            if self._stopping.is_set():
                return code
            container.last, container.restarts = container.run, container.restarts + 1

    async def _run_once(self, container: Container) -> int:
        plan = await self._plan(container)
        if plan is None:
            return 1
        name = f"{self.uid}-{container.spec['name']}-{container.restarts}"
        run = Run(plan, self._folder / name, self._home.keeper, name)
        container.waiting = ""
        container.run = run
        await run.execute(self._report)
        await self._report()
        return run.exit_code

    async def _plan(self, container: Container) -> Plan | None:
        """Return how to start the container, once all it refers to is there; None if it is to stop first."""
        while not self._stopping.is_set():
            try:
                return await self._plan_now(container)
            except NotYetError as why:
                await self._wait_for([container], "CreateContainerConfigError", str(why))
        return None

    async def _plan_now(self, container: Container) -> Plan:
        spec = container.spec
        environment = await self._contents.environment(spec)
        command = [*spec.get("command", ()), *spec.get("args", ())]
        if not command:
            raise NotYetError("the test kubelet has no images, so a container needs a command")
        limits = container.resources.get("limits", {})
        security = self.pod["spec"].get("securityContext", {}) | spec.get("securityContext", {})
        names = {"runAsUser": "user", "runAsGroup": "group"}
        return Plan(
            command=[expand(word, environment) for word in command],
            environment=environment,
            directory=spec.get("workingDir", "/"),
            host_name=self.pod["spec"].get("hostname", self.pod["metadata"]["name"])[:63],
            mounts=self._contents.mounts(spec),
            user={ours: security[theirs] for theirs, ours in names.items() if theirs in security},
            cpu_millis=millis(limits.get("cpu", 0)),
            memory_mib=mebibytes(limits.get("memory", 0)),
            note=spec.get("terminationMessagePath", NOTE),
        )

    def _init_policy(self) -> str:
        return "Never" if self.pod["spec"].get("restartPolicy") == "Never" else "OnFailure"

    async def _conclude(self) -> None:
        """Say how it ended: a pod that was stopped before its containers ran has failed."""
        codes = [one.run.exit_code if one.run is not None else 1 for one in (*self._inits, *self._mains)]
        self._conditions.phase = "Failed" if any(codes) or self._conditions.reason else "Succeeded"
        self._conditions.resize.clear()
        self.is_over = True
        await self._report()
        self._ended.set()

    async def _wait_for_deletion(self) -> None:
        """Stay until the pod is to be deleted, then let the API server forget it."""
        while not self._is_gone and "deletionTimestamp" not in self.pod["metadata"]:
            await self._changed.wait()
        body = {"gracePeriodSeconds": 0, "preconditions": {"uid": self.uid}}
        await self._access.call("DELETE", self._path, body)

    # What comes from outside

    async def _heed_changes(self, tasks: anyio.abc.TaskGroup) -> None:
        """Act on deletion, on a deadline and on new sizes, whenever the pod changes."""
        while not self._ended.is_set():
            changed, metadata = self._changed, self.pod["metadata"]
            grace_s = metadata.get("deletionGracePeriodSeconds", DEFAULT_GRACE_S)
            if "deletionTimestamp" in metadata and grace_s < self._grace_s:  # a later one may only be shorter
                tasks.start_soon(self._stop, grace_s)
            await self._resize()
            with anyio.move_on_after(self._deadline_in_s()) as scope:
                await changed.wait()
            if scope.cancelled_caught and not self._stopping.is_set():
                self._conditions.reason = "DeadlineExceeded"
                self._conditions.message = "Pod was active on the node longer than the specified deadline"
                grace_s = self.pod["spec"].get("terminationGracePeriodSeconds", DEFAULT_GRACE_S)
                tasks.start_soon(self._stop, grace_s)

    def _deadline_in_s(self) -> float | None:
        deadline_s = self.pod["spec"].get("activeDeadlineSeconds")
        if deadline_s is None or self._stopping.is_set() or self.is_over:
            return None
        began = dt.datetime.fromisoformat(self._conditions.started_at)
        return max(0.0, deadline_s - (dt.datetime.now(dt.UTC) - began).total_seconds())

    async def _stop(self, grace_s: float) -> None:
        self._grace_s = grace_s
        self._stopping.set()
        async with anyio.create_task_group() as stops:
            for container in (*self._inits, *self._mains):
                if container.run is not None and not container.run.ended.is_set():
                    stops.start_soon(container.run.stop, grace_s)

    async def _cancel_when_stopping(self, scope: anyio.CancelScope) -> None:
        await self._stopping.wait()
        scope.cancel()

    # In-place resize

    async def _resize(self) -> None:
        """Give running containers the sizes their specification now asks for, or say why not."""
        wanted = {spec["name"]: spec.get("resources", {}) for spec in self.pod["spec"]["containers"]}
        changed = [one for one in self._mains if wanted[one.spec["name"]] != one.resources and one.is_running]
        if not changed:
            if self._conditions.resize:  # what was asked for and refused is not asked for any more
                self._conditions.resize = {}
                await self._report()
            return
        refused = await self._room(self)
        if refused is not None:
            self._conditions.resize = {"PodResizePending": (refused.reason, refused.message)}
        else:
            self._conditions.resize = {}
            for container in changed:
                self._apply(container, wanted[container.spec["name"]])
        await self._report()

    def _apply(self, container: Container, resources: Object) -> None:
        assert container.run is not None
        limits = resources.get("limits", {})
        try:
            container.run.group.set_cpu(millis(limits.get("cpu", 0)))
            container.run.group.set_memory(mebibytes(limits.get("memory", 0)))
        except OSError as why:  # it uses more memory than the new limit
            self._conditions.resize = {"PodResizeInProgress": ("Error", str(why))}
        else:
            container.resources = resources

    # Reports

    async def _wait_for(self, containers: list[Container], reason: str, message: str) -> None:
        for container in containers:
            container.waiting, container.message = reason, message
        await self._report()
        with anyio.move_on_after(RETRY_S):
            await self._stopping.wait()

    async def _report(self) -> None:
        """Tell the API server how the pod is now."""
        async with self._reporting:
            status = pod_status(self.pod, self._conditions, self._inits, self._mains, self._home.address)
            body = {"metadata": {"uid": self.uid}, "status": status}
            await self._access.call("PATCH", f"{self._path}/status", body, STRATEGIC)


Room = Callable[[PodWorker], Awaitable[Refused | None]]
"""Asks the node whether it has room for the sizes a pod now asks for."""
