"""The API's objects, trimmed to what is read: a field that is not here is dropped while the bytes are decoded."""

from typing import Protocol

import msgspec


class ApiObject(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Any of them: named in their words, read in ours."""


class Meta(ApiObject, frozen=True):
    """What every object has."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    """Grows with each change of the specification; 0: the cluster is too old to say."""
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    finalizers: tuple[str, ...] = ()

    @property
    def key(self) -> "Key":
        """What tells it from others of its kind."""
        return (self.namespace, self.name)


Key = tuple[str, str]
"""Namespace and name."""


class Object(Protocol):
    """Anything the API lists and watches."""

    @property
    def metadata(self) -> Meta:
        """What every object has."""
        ...


class Bare(ApiObject, frozen=True):
    """Any object, by what all of them have."""

    metadata: Meta = Meta()


class Record(ApiObject, frozen=True):
    """The ConfigMap of an allocation, without the scripts in it."""

    metadata: Meta = Meta()


class ContainerAmounts(ApiObject, frozen=True):
    """Requests and limits of a container."""

    requests: dict[str, str] = {}
    limits: dict[str, str] = {}


class Container(ApiObject, frozen=True):
    """A container as it was asked for."""

    name: str = ""
    resources: ContainerAmounts = ContainerAmounts()


class PodSpec(ApiObject, frozen=True):
    """What was asked for."""

    node_name: str = ""
    containers: tuple[Container, ...] = ()
    active_deadline_seconds: int | None = None
    termination_grace_period_seconds: int = 30


class Terminated(ApiObject, frozen=True):
    """How a container ended."""

    exit_code: int | None = None
    reason: str = ""
    message: str = ""
    started_at: str | None = None
    finished_at: str | None = None


class ContainerRunning(ApiObject, frozen=True):
    """A container that runs."""

    started_at: str | None = None


class ContainerWaiting(ApiObject, frozen=True):
    """A container that does not run yet."""

    reason: str = ""
    message: str = ""


class ContainerState(ApiObject, frozen=True):
    """Exactly one of these."""

    waiting: ContainerWaiting | None = None
    running: ContainerRunning | None = None
    terminated: Terminated | None = None


class ContainerStatus(ApiObject, frozen=True):
    """A container as the node sees it."""

    name: str = ""
    state: ContainerState = ContainerState()
    resources: ContainerAmounts | None = None


class Condition(ApiObject, frozen=True):
    """Something true, false or unknown of an object."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    observed_generation: int = 0
    """Which version of the specification it speaks of; 0: the cluster is too old to say."""


class PodStatus(ApiObject, frozen=True):
    """What became of it."""

    phase: str = ""
    reason: str = ""
    message: str = ""
    start_time: str | None = None
    conditions: tuple[Condition, ...] = ()
    container_statuses: tuple[ContainerStatus, ...] = ()

    def condition(self, kind: str) -> Condition | None:
        """Return the condition of a type, where it is true."""
        return next((one for one in self.conditions if one.type == kind and one.status == "True"), None)


class Pod(ApiObject, frozen=True):
    """A pod of ours."""

    metadata: Meta = Meta()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


class NeighbourSpec(ApiObject, frozen=True):
    """What a pod of others holds."""

    node_name: str = ""
    containers: tuple[Container, ...] = ()


class Neighbour(ApiObject, frozen=True):
    """A pod that is not ours, by what it takes away from a node."""

    metadata: Meta = Meta()
    spec: NeighbourSpec = NeighbourSpec()


class Taint(ApiObject, frozen=True):
    """What keeps pods away from a node."""

    key: str = ""
    value: str = ""
    effect: str = ""


class NodeSpec(ApiObject, frozen=True):
    """What the operator says of a node."""

    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()


class NodeInfo(ApiObject, frozen=True):
    """What the kubelet says of the machine."""

    architecture: str = ""
    kernel_version: str = ""
    operating_system: str = ""


class NodeStatus(ApiObject, frozen=True):
    """What the node says of itself."""

    allocatable: dict[str, str] = {}
    conditions: tuple[Condition, ...] = ()
    node_info: NodeInfo = NodeInfo()


class KubeNode(ApiObject, frozen=True):
    """A node of the cluster."""

    metadata: Meta = Meta()
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


class ListMeta(ApiObject, frozen=True):
    """What every list has."""

    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")
