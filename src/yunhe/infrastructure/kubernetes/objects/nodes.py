"""The cluster's nodes in our words."""

from collections.abc import Iterable

from yunhe.infrastructure.contract.model import Catalogue, Node, NodeSystem, Region, Spec
from yunhe.infrastructure.kubernetes.api.shapes import Container, KubeNode, Taint
from yunhe.infrastructure.kubernetes.objects.quantities import mib, millis
from yunhe.infrastructure.kubernetes.target import ClusterSettings
from yunhe.infrastructure.kubernetes.usage.stats import NodeUse
from yunhe.kernel.ids import NodeId
from yunhe.kernel.places import Place
from yunhe.kernel.resources import Accelerators, Resources

ZONE = "topology.kubernetes.io/zone"
REGION = "topology.kubernetes.io/region"
INSTANCE_TYPE = "node.kubernetes.io/instance-type"
GPU_MEMORY = "nvidia.com/gpu.memory"
HOSTNAME = "kubernetes.io/hostname"
TROUBLE_PREFIXES = (
    "node.kubernetes.io/",
    "node.cloudprovider.kubernetes.io/",
    "ToBeDeletedByClusterAutoscaler",
)
_KEEPS_AWAY = frozenset({"NoSchedule", "NoExecute"})


def node_of(
    node: KubeNode, neighbours: Iterable[Container], use: NodeUse | None, settings: ClusterSettings
) -> Node:
    """Return a node: what is allocatable less what pods of others have asked for, and what is in use."""
    total = _allocatable(node, settings)
    taken = requested(neighbours, settings.accelerators_of(node.metadata.labels))
    ready, reason = _readiness(node)
    used = Resources(cpu_millis=use.cpu_millis, memory_mib=use.memory_mib) if use is not None else taken
    return Node(
        id=NodeId(node.metadata.name),
        total=Resources(
            cpu_millis=max(0, total.cpu_millis - taken.cpu_millis),
            memory_mib=max(0, total.memory_mib - taken.memory_mib),
            disk_mib=max(0, total.disk_mib - taken.disk_mib),
            accelerators=tuple(
                Accelerators(a.kind, max(0, a.milli - taken.accelerator_milli(a.kind)), a.memory_mib)
                for a in total.accelerators
            ),
        ),
        used=used,
        ready=ready,
        reason=reason,
        isa=node.status.node_info.architecture,
        labels={name: value for name, value in node.metadata.labels.items() if name != HOSTNAME},
        taints=tuple(_shown(taint) for taint in owners_taints(node)),
        system=NodeSystem(
            os=node.status.node_info.operating_system, kernel=node.status.node_info.kernel_version
        ),
        throughput=use.throughput if use is not None else None,
    )


SPOT_TAINTS = ("cloud.google.com/gke-spot", "kubernetes.azure.com/scalesetpriority")
"""What clouds taint nodes with that they may take back; every task that is ``interruptible`` tolerates ``spot``."""


def owners_taints(node: KubeNode) -> tuple[Taint, ...]:
    """Return the taints that keep pods away unless they tolerate them; those that tell of trouble are not among them."""
    return tuple(
        taint
        for taint in node.spec.taints
        if taint.effect in _KEEPS_AWAY and not taint.key.startswith(TROUBLE_PREFIXES)
    )


def tolerations_for(node: KubeNode) -> list[dict[str, str]]:
    """Return what a pod that a decision sent to *node* tolerates there."""
    return [
        {"key": taint.key, "operator": "Equal", "value": taint.value, "effect": taint.effect}
        for taint in owners_taints(node)
    ]


def _shown(taint: Taint) -> str:
    if taint.key in SPOT_TAINTS:
        return "spot"
    return f"{taint.key}={taint.value}" if taint.value else taint.key


def catalogue_of(nodes: Iterable[KubeNode], settings: ClusterSettings) -> Catalogue:
    """Return the sizes of node there are, by the names their owner gave them."""
    counts: dict[tuple[str, str], tuple[Resources, int]] = {}
    regions: dict[str, Region] = {}
    for node in sorted(nodes, key=lambda node: node.metadata.name):
        labels = node.metadata.labels
        zone = labels.get(ZONE, "")
        if zone:
            regions[zone] = Region(name=zone, place=Place(labels.get(REGION, zone)))
        resources = _allocatable(node, settings)
        name = labels.get(INSTANCE_TYPE) or f"{resources.cpu_millis}m-{resources.memory_mib}Mi"
        size, count = counts.get((zone, name), (resources, 0))
        counts[zone, name] = (size if resources.covers(size) else resources, count + 1)
    return Catalogue(
        regions=tuple(regions.values()),
        specs=tuple(
            Spec(name=name, region=zone, resources=resources, count=count)
            for (zone, name), (resources, count) in counts.items()
        ),
    )


def unmapped_devices(nodes: Iterable[KubeNode], settings: ClusterSettings) -> str:
    """Say which devices of the nodes nobody can ask for, as no option names them, and how to; empty: none."""
    found: dict[str, int] = {}
    for node in nodes:
        mapped = settings.accelerators_of(node.metadata.labels)
        for name, text in node.status.allocatable.items():
            if "/" in name and name not in mapped and millis(text):
                found[name] = found.get(name, 0) + millis(text) // 1000
    if not found:
        return ""
    shown = ", ".join(f"{count} × {name}" for name, count in sorted(found.items()))
    return (
        f"{shown}: no job can ask for what has no name here. Add the pool with --option "
        f"accelerators={','.join(f'KIND={name}' for name in sorted(found))}, KIND being what tasks call it."
    )


def requested(containers: Iterable[Container], kinds: dict[str, str]) -> Resources:
    """Return what containers have asked for together; *kinds* names each extended resource."""
    total = Resources()
    for container in containers:
        total = total.plus(_resources(container.resources.requests, kinds))
    return total


def _allocatable(node: KubeNode, settings: ClusterSettings) -> Resources:
    labels = node.metadata.labels
    rules = settings.accelerators_of(labels)
    found = _resources(node.status.allocatable, rules)
    each_mib = labels.get(GPU_MEMORY, "")
    if not each_mib.isdigit():
        return found
    return Resources(
        cpu_millis=found.cpu_millis,
        memory_mib=found.memory_mib,
        disk_mib=found.disk_mib,
        accelerators=tuple(
            Accelerators(a.kind, a.milli, a.milli // 1000 * int(each_mib)) for a in found.accelerators
        ),
    )


def _resources(amounts: dict[str, str], kinds: dict[str, str]) -> Resources:
    """Return amounts in our words; *kinds* names each extended resource."""
    return Resources(
        cpu_millis=millis(amounts.get("cpu", "0")),
        memory_mib=mib(amounts.get("memory", "0")),
        disk_mib=mib(amounts.get("ephemeral-storage", "0")),
        accelerators=tuple(
            Accelerators(kinds[resource], millis(amounts[resource]))
            for resource in sorted(kinds)
            if resource in amounts and millis(amounts[resource])
        ),
    )


def _readiness(node: KubeNode) -> tuple[bool, str]:
    """Return whether new pods may go there, and why not."""
    ready = next((one for one in node.status.conditions if one.type == "Ready"), None)
    if ready is None:
        return False, "The node has not said whether it is ready."
    if ready.status != "True":
        return False, ready.message or ready.reason or f"Ready is {ready.status}."
    if node.spec.unschedulable:
        return False, "The node is cordoned."
    tolerable = owners_taints(node)
    for taint in node.spec.taints:
        if taint.effect in _KEEPS_AWAY and taint not in tolerable:
            return False, f"The node is tainted {taint.key}={taint.value}:{taint.effect}."
    return True, ""
