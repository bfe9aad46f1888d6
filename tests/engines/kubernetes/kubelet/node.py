"""One node of a cluster: its Node object, its lease, and the pods bound to it."""

import datetime as dt
import platform
import shutil
from functools import partial
from typing import NamedTuple

import anyio
import anyio.abc

from engines.kubernetes.kubelet.access import STRATEGIC, Access, Object
from engines.kubernetes.kubelet.containers import now
from engines.kubernetes.kubelet.pods import Home, PodWorker
from engines.kubernetes.kubelet.resize import Refused, refusal

HEARTBEAT_S = 5.0
LEASE_S = 40
NOT_READY = "node.kubernetes.io/not-ready"


class NodeSpec(NamedTuple):
    """What a node is called and has."""

    name: str
    capacity: dict[str, str]
    labels: dict[str, str]


class Node:
    """Keeps one Node object alive and runs what is bound to it."""

    def __init__(self, access: Access, spec: NodeSpec, home: Home) -> None:
        self.name = spec.name
        self._access, self._spec, self._home = access, spec, home
        self._workers: dict[str, PodWorker] = {}

    # What others ask

    def workers(self) -> list[PodWorker]:
        """Return the pods there are."""
        return list(self._workers.values())

    def find(self, namespace: str, name: str) -> PodWorker | None:
        """Return a pod by its name."""
        for worker in self._workers.values():
            metadata = worker.pod["metadata"]
            if (metadata["namespace"], metadata["name"]) == (namespace, name):
                return worker
        return None

    # The Node object

    async def register(self, port: int) -> None:
        """Make the Node object, ready for pods; *port* is where this kubelet answers."""
        body = {
            "metadata": {
                "name": self.name,
                "labels": {"kubernetes.io/hostname": self.name} | self._spec.labels,
            },
        }
        await self._access.call("POST", "/api/v1/nodes", body)
        await self._report_ready(port)
        await self._remove_taint()
        lease = {
            "metadata": {"name": self.name},
            "spec": {"holderIdentity": self.name, "leaseDurationSeconds": LEASE_S},
        }
        await self._access.call(
            "POST", "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases", lease
        )

    async def heartbeat(self) -> None:
        """Renew the lease until cancelled."""
        path = f"/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{self.name}"
        while True:
            moment = f"{dt.datetime.now(dt.UTC):%Y-%m-%dT%H:%M:%S.%fZ}"
            await self._access.call("PATCH", path, {"spec": {"renewTime": moment}}, STRATEGIC)
            await anyio.sleep(HEARTBEAT_S)

    async def _report_ready(self, port: int) -> None:
        healthy = {
            "DiskPressure": "False",
            "MemoryPressure": "False",
            "PIDPressure": "False",
            "Ready": "True",
        }
        status = {
            "capacity": self._spec.capacity,
            "allocatable": self._spec.capacity,
            "addresses": [
                {"type": "InternalIP", "address": self._home.address},
                {"type": "Hostname", "address": self.name},
            ],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
            "nodeInfo": {
                "kubeletVersion": "v1.34.3-test",
                "kernelVersion": platform.release(),
                "operatingSystem": "linux",
                "architecture": "amd64",
            },
            "conditions": [
                {
                    "type": kind,
                    "status": holds,
                    "reason": "TestKubelet",
                    "message": "",
                    "lastHeartbeatTime": now(),
                    "lastTransitionTime": now(),
                }
                for kind, holds in healthy.items()
            ],
        }
        await self._access.call("PATCH", f"/api/v1/nodes/{self.name}/status", {"status": status}, STRATEGIC)

    async def _remove_taint(self) -> None:
        """Open the node for pods; with a node-lifecycle controller this only spares its delay."""
        node = await self._access.get(f"/api/v1/nodes/{self.name}")
        assert node is not None
        taints = [taint for taint in node["spec"].get("taints", ()) if taint["key"] != NOT_READY]
        patch = {"spec": {"taints": taints or None}}
        headers = {"content-type": "application/merge-patch+json"}
        await self._access.call("PATCH", f"/api/v1/nodes/{self.name}", patch, headers)

    # Its pods

    async def follow_pods(self) -> None:
        """Run every pod that is bound to this node until cancelled; then end what still runs."""
        async with anyio.create_task_group() as tasks:
            try:
                async for kind, thing in self._access.changes(
                    "/api/v1/pods", f"fieldSelector=spec.nodeName={self.name}"
                ):
                    await self._heed(kind, thing, tasks)
            finally:
                with anyio.CancelScope(shield=True):
                    async with anyio.create_task_group() as ends:
                        for worker in self.workers():
                            ends.start_soon(worker.vanish)

    async def _heed(self, kind: str, thing: Object, tasks: anyio.abc.TaskGroup) -> None:
        if kind == "SYNC":
            pods = {pod["metadata"]["uid"]: pod for pod in thing["items"]}
            for uid in self._workers.keys() - pods.keys():
                tasks.start_soon(self._workers[uid].vanish)
            for pod in pods.values():
                self._take(pod, tasks)
        elif kind in ("ADDED", "MODIFIED"):
            self._take(thing, tasks)
        elif kind == "DELETED" and thing["metadata"]["uid"] in self._workers:
            self._workers[thing["metadata"]["uid"]].update(thing)
            tasks.start_soon(self._workers[thing["metadata"]["uid"]].vanish)

    def _take(self, pod: Object, tasks: anyio.abc.TaskGroup) -> None:
        uid = pod["metadata"]["uid"]
        if uid in self._workers:
            self._workers[uid].update(pod)
            return
        worker = PodWorker(self._access, pod, self._home, self._room)
        self._workers[uid] = worker
        tasks.start_soon(self._run, worker)

    async def _run(self, worker: PodWorker) -> None:
        await worker.run()
        del self._workers[worker.uid]
        await anyio.to_thread.run_sync(
            partial(shutil.rmtree, self._home.folder / worker.uid, ignore_errors=True)
        )
        for other in self.workers():
            other.update(other.pod)  # a resize that waited may have room now

    async def _room(self, worker: PodWorker) -> Refused | None:
        node = await self._access.get(f"/api/v1/nodes/{self.name}")
        assert node is not None
        others = [other.pod["spec"] for other in self.workers() if other is not worker and not other.is_over]
        return refusal(node, worker.pod["spec"], others)
