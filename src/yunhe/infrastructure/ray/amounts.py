"""Resources in Ray's words and in ours: CPU, memory, GPU, and whatever else an operator has named."""

from collections.abc import Sequence

import msgspec

from yunhe.infrastructure.contract.model import (
    Catalogue,
    Inventory,
    Node,
    NodeSystem,
    Region,
    Spec,
    Throughput,
)
from yunhe.infrastructure.ray.wire import RayNode, RayNodeStats
from yunhe.kernel.errors import FieldProblem, InvalidInputError, PoolUnreachableError, UnsupportedError
from yunhe.kernel.ids import NodeId
from yunhe.kernel.resources import Accelerators, Resources

MIB = 1024 * 1024
GPU = "GPU"
TYPE_PREFIX = "accelerator_type:"
_A_LITTLE = 0.001
"""How much of ``accelerator_type:T`` a job asks for: it only says on what it must run."""
_NOT_OFFERED = ("CPU", "memory", "object_store_memory", GPU)
_WHOLE = (GPU, "TPU", "NPU", "HPU", "neuron_cores")
"""What Ray gives away in parts of one, or in whole ones: two and a half it refuses."""
_REGION_LABEL = "ray.io/region"
_ID_LABEL = "ray.io/node-id"


class RayAmounts(msgspec.Struct, frozen=True):
    """What a job asks Ray for."""

    num_cpus: float
    memory: int
    num_gpus: float
    resources: dict[str, float]


def ask(wanted: Resources, nodes: Sequence[RayNode]) -> RayAmounts:
    """Return *wanted* as Ray is asked for it; refuse what no living node has in all."""
    if not nodes:
        raise PoolUnreachableError("The Ray cluster has no living node.", remedy="Start one, or wait for it.")
    _check_fits(wanted, nodes)
    num_gpus, resources = 0.0, dict[str, float]()
    for accelerators in wanted.accelerators:
        kind, amount = accelerators.kind, accelerators.milli / 1000
        if kind == GPU or any(_gpu_kind(node) == kind for node in nodes):
            num_gpus += amount
            if kind != GPU:
                resources[f"{TYPE_PREFIX}{kind}"] = _A_LITTLE
        else:
            resources[kind] = amount
    for kind, amount in ((GPU, num_gpus), *resources.items()):
        if kind in _WHOLE and amount > 1 and amount != int(amount):
            problem = FieldProblem(
                "resources.accelerators", "must be a whole number, or less than one", f"{amount:g}"
            )
            raise InvalidInputError(f"Ray gives no {amount:g} of {kind}.", fields=(problem,))
    return RayAmounts(wanted.cpu_millis / 1000, wanted.memory_mib * MIB, num_gpus, resources)


def _check_fits(wanted: Resources, nodes: Sequence[RayNode]) -> None:
    # Ray reserves no disk and knows no device memory: neither decides what fits.
    asked = msgspec.structs.replace(
        wanted,
        disk_mib=0,
        accelerators=tuple(msgspec.structs.replace(a, memory_mib=0) for a in wanted.accelerators),
    )
    totals = [total_of(node) for node in nodes]
    if any(total.covers(asked) for total in totals):
        return
    nearest = min(totals, key=lambda total: _lack(total.shortfall(asked)), default=Resources())
    short = nearest.shortfall(asked)
    problems = [
        FieldProblem(f"resources.{name}", f"is more than any node has; the nearest lacks {lack}")
        for name in ("cpu_millis", "memory_mib")
        if (lack := getattr(short, name))
    ]
    problems += [
        FieldProblem(
            "resources.accelerators", f"the nearest node lacks {a.milli / 1000:g} of {a.kind}", a.kind
        )
        for a in short.accelerators
    ]
    raise InvalidInputError("No node of this Ray cluster has that much.", fields=tuple(problems))


def _lack(short: Resources) -> tuple[int, int, int]:
    return sum(a.milli for a in short.accelerators), short.cpu_millis, short.memory_mib


def total_of(node: RayNode, stats: RayNodeStats | None = None) -> Resources:
    """Return what Ray may give away on a node; custom resources are accelerators of that name."""
    offered = node.resources_total
    device_mib = round(sum(gpu.memory_total for gpu in (stats.gpus or []))) if stats else 0
    accelerators: list[Accelerators] = []
    if offered.get(GPU):
        accelerators.append(Accelerators(_gpu_kind(node), round(offered[GPU] * 1000), device_mib))
    accelerators += [
        Accelerators(name, round(amount * 1000))
        for name, amount in sorted(offered.items())
        if name not in _NOT_OFFERED and not name.startswith(("node:", TYPE_PREFIX))
    ]
    return Resources(
        cpu_millis=round(offered.get("CPU", 0.0) * 1000),
        memory_mib=int(offered.get("memory", 0.0)) // MIB,
        disk_mib=_disk_mib(stats)[0],
        accelerators=tuple(accelerators),
    )


def inventory(nodes: Sequence[RayNode], stats: Sequence[RayNodeStats], taken_at: float) -> Inventory:
    """Return the living nodes with their water level."""
    measured = {one.raylet.node_id: one for one in stats}
    return Inventory(
        taken_at=taken_at, nodes=tuple(_node(node, measured.get(node.node_id)) for node in alive(nodes))
    )


def alive(nodes: Sequence[RayNode]) -> list[RayNode]:
    """Return the living nodes; a state we do not know is an error, not a guess."""
    for node in nodes:
        if node.state not in ("ALIVE", "DEAD"):
            raise UnsupportedError(
                f"Ray calls node {node.node_id} {node.state!r}, a state this version does not know.",
                remedy="Upgrade Yunhe, or use a Ray version that the documentation lists.",
            )
    return [node for node in nodes if node.state == "ALIVE"]


def _node(node: RayNode, stats: RayNodeStats | None) -> Node:
    total = total_of(node, stats)
    if stats is None:
        return Node(
            id=NodeId(node.node_id), total=total, used=Resources(), ready=False, reason="not measured yet"
        )
    draining = stats.raylet.state_snapshot.state == "DRAINING"
    return Node(
        id=NodeId(node.node_id),
        total=total,
        used=_used(total, stats),
        ready=not draining,
        reason="Ray drains it" if draining else "",
        labels=_labels(node),
        system=NodeSystem(booted_at=stats.boot_time),
        throughput=_throughput(stats),
    )


def _labels(node: RayNode) -> dict[str, str]:
    """Return a node's labels, and what Ray counts there under names of its owner's."""
    own = {
        f"resource/{name}": f"{amount:g}"
        for name, amount in node.resources_total.items()
        if name not in _NOT_OFFERED and not name.startswith("node:")
    }
    return {**{name: value for name, value in node.labels.items() if name != _ID_LABEL}, **own}


def _throughput(stats: RayNodeStats) -> Throughput | None:
    if len(stats.network_speed) < 2:
        return None
    sent, received, *_ = stats.network_speed
    return Throughput(received_bytes_per_s=received, sent_bytes_per_s=sent)


def _used(total: Resources, stats: RayNodeStats) -> Resources:
    """Return the level of the machine, as a share of what Ray may give away of it.

    Ray is often given a part of a machine; the level is measured on the whole.
    """
    memory_share = stats.mem[3] / stats.mem[0] if len(stats.mem) > 3 and stats.mem[0] else 0.0
    busy = [gpu.utilization_gpu or 0.0 for gpu in stats.gpus or []]
    gpu_share = sum(busy) / len(busy) / 100 if busy else 0.0
    return Resources(
        cpu_millis=round(total.cpu_millis * stats.cpu / 100),
        memory_mib=round(total.memory_mib * memory_share),
        disk_mib=_disk_mib(stats)[1],
        accelerators=tuple(
            Accelerators(a.kind, round(a.milli * gpu_share), round(_device_used_mib(stats)))
            for a in total.accelerators
            if a.memory_mib
        ),
    )


def _device_used_mib(stats: RayNodeStats) -> float:
    return sum(gpu.memory_used for gpu in stats.gpus or [])


def _disk_mib(stats: RayNodeStats | None) -> tuple[int, int]:
    """Return size and use of the file system that Ray's directory is on: the last that it names."""
    if stats is None or not stats.disk:
        return 0, 0
    disk = list(stats.disk.values())[-1]
    return int(disk.total) // MIB, int(disk.used) // MIB


def _gpu_kind(node: RayNode) -> str:
    """Return the type of a node's graphics processors, where Ray says it."""
    names = [name.removeprefix(TYPE_PREFIX) for name in node.resources_total if name.startswith(TYPE_PREFIX)]
    return names[0] if names else GPU


def catalogue(nodes: Sequence[RayNode], stats: Sequence[RayNodeStats]) -> Catalogue:
    """Return each size of node that the cluster has now, and how many of it."""
    measured = {one.raylet.node_id: one for one in stats}
    counts: dict[tuple[str, str, Resources], int] = {}
    for node in alive(nodes):
        raylet = measured.get(node.node_id, RayNodeStats()).raylet
        total = total_of(node)
        name = raylet.instance_type_name or raylet.node_type_name or _shape(total)
        key = (node.labels.get(_REGION_LABEL, ""), name, total)
        counts[key] = counts.get(key, 0) + 1
    taken = [(region, name) for region, name, _ in counts]
    return Catalogue(
        regions=tuple(Region(name=region) for region in sorted({region for region, _ in taken if region})),
        specs=tuple(
            Spec(
                name=name if taken.count((region, name)) == 1 else f"{name} ({_shape(total)})",
                region=region,
                resources=total,
                count=count,
            )
            for (region, name, total), count in sorted(counts.items(), key=lambda item: item[0][:2])
        ),
    )


def _shape(total: Resources) -> str:
    words = [f"{total.cpu_millis / 1000:g}-cpu", f"{total.memory_mib}-mib"]
    return "-".join([*words, *(f"{a.milli / 1000:g}-{a.kind.lower()}" for a in total.accelerators)])
