"""What the test kubelet says about a pod."""

from dataclasses import dataclass, field
from typing import Any

from engines.kubernetes.kubelet.access import Object
from engines.kubernetes.kubelet.containers import Run, now


@dataclass
class Container:
    """One container of a pod over all its starts."""

    spec: Object
    resources: Object
    """What it has been given, as far as it has been applied."""
    waiting: str = "PodInitializing"
    message: str = ""
    restarts: int = 0
    run: Run | None = None
    last: Run | None = None

    @property
    def is_running(self) -> bool:
        """Return whether its command runs now."""
        return self.run is not None and self.run.is_started and not self.run.ended.is_set()

    @property
    def has_ended(self) -> bool:
        """Return whether its last start is over."""
        return self.run is not None and self.run.ended.is_set()


@dataclass
class Conditions:
    """What is said of a pod besides its containers."""

    phase: str = "Pending"
    reason: str = ""
    message: str = ""
    started_at: str = field(default_factory=now)
    is_initialized: bool = False
    resize: dict[str, tuple[str, str]] = field(default_factory=dict[str, tuple[str, str]])
    """``PodResizePending`` or ``PodResizeInProgress``, with reason and message."""


def pod_status(
    pod: Object, conditions: Conditions, inits: list[Container], mains: list[Container], address: str
) -> Object:
    """Return the whole status, for a strategic merge: conditions of others stay."""
    is_ready = conditions.phase == "Running" and all(container.is_running for container in mains)
    is_over = conditions.phase in ("Succeeded", "Failed")
    generation = pod["metadata"].get("generation", 1)
    holding = {
        "PodReadyToStartContainers": not is_over,
        "Initialized": conditions.is_initialized,
        "ContainersReady": is_ready,
        "Ready": is_ready,
    }
    return {
        "phase": conditions.phase,
        "observedGeneration": generation,
        # A kubelet tells why it ended a pod with the last of its containers, not before.
        "reason": (is_over and conditions.reason) or None,
        "message": (is_over and conditions.message) or None,
        "startTime": conditions.started_at,
        "hostIP": address,
        "hostIPs": [{"ip": address}],
        "podIP": address,
        "podIPs": [{"ip": address}],
        "conditions": [
            *(_condition(pod, kind, holds=holds) for kind, holds in holding.items()),
            *_resize_conditions(pod, conditions),
        ],
        "initContainerStatuses": [_container_status(container, is_init=True) for container in inits] or None,
        "containerStatuses": [_container_status(container, is_init=False) for container in mains],
    }


def _condition(pod: Object, kind: str, *, holds: bool) -> Object:
    """Return a condition; its time changes only when it does."""
    said: list[Object] = pod.get("status", {}).get("conditions", [])
    since = [one["lastTransitionTime"] for one in said if (one["type"], one["status"]) == (kind, str(holds))]
    return {
        "type": kind,
        "status": str(holds),
        "lastTransitionTime": since[0] if since else now(),
        "observedGeneration": pod["metadata"].get("generation", 1),
    }


def _resize_conditions(pod: Object, conditions: Conditions) -> list[Object]:
    said: list[Object] = []
    for kind in ("PodResizePending", "PodResizeInProgress"):
        if kind in conditions.resize:
            reason, message = conditions.resize[kind]
            condition = _condition(pod, kind, holds=True)
            said.append(condition | {"reason": reason or None, "message": message or None})
        else:
            said.append({"$patch": "delete", "type": kind})
    return said


def _container_status(container: Container, *, is_init: bool) -> Object:
    run = container.run
    status: Object = {
        "name": container.spec["name"],
        "image": container.spec["image"],
        "imageID": f"host://{container.spec['image']}",
        "restartCount": container.restarts,
        "ready": (container.has_ended and run is not None and run.exit_code == 0)
        if is_init
        else container.is_running,
        "started": container.is_running,
        "state": _state(container),
        "resources": container.resources,
        "allocatedResources": container.resources.get("requests") or None,
    }
    if run is not None:
        status["containerID"] = _container_id(run)
    if container.last is not None:
        status["lastState"] = {"terminated": _terminated(container.last)}
    return status


def _state(container: Container) -> Object:
    run = container.run
    if run is None or (container.waiting and container.has_ended):
        return {"waiting": {"reason": container.waiting, "message": container.message or None}}
    if run.ended.is_set():
        return {"terminated": _terminated(run)}
    if run.is_started:
        return {"running": {"startedAt": run.started_at}}
    return {"waiting": {"reason": "ContainerCreating"}}


def _terminated(run: Run) -> Object:
    said: dict[str, Any] = {
        "exitCode": run.exit_code,
        "reason": run.reason,
        "message": run.message or None,
        "startedAt": run.started_at,
        "finishedAt": run.ended_at,
        "containerID": _container_id(run),
    }
    return said


def _container_id(run: Run) -> str:
    return f"process://{run.name}"
