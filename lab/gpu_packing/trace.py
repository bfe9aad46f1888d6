"""The OpenB trace: nodes, pod lists by variant, and arrivals drawn from them."""

import csv
import gzip
from pathlib import Path
from typing import NamedTuple

import numpy as np

from yunhe.kernel.ids import NodeId, PoolId
from yunhe.kernel.resources import Accelerators, Resources
from yunhe.scheduling.perception.model import NodeFacts

NODES = "openb_node_list_gpu_node.csv"
PODS = "openb_pod_list_"
POOL = PoolId("openb")
OVERLOAD = 1.3


class Pod(NamedTuple):
    """One row of a pod list."""

    name: str
    cpu_milli: int
    memory_mib: int
    num_gpu: int
    gpu_milli: int
    gpu_spec: str

    @property
    def resources(self) -> Resources:
        """The pod's ask; any model of GPU will do unless it names some."""
        milli = self.num_gpu * self.gpu_milli
        wanted = (
            (Accelerators("|".join(sorted(set(self.gpu_spec.split("|")))) or "*", milli),) if milli else ()
        )
        return Resources(self.cpu_milli, self.memory_mib, 0, wanted)


def read_nodes(folder: Path) -> list[NodeFacts]:
    """Return the nodes of the cluster, empty."""
    with (folder / NODES).open(newline="") as file:
        rows = list(csv.DictReader(file))
    facts: list[NodeFacts] = []
    for row in rows:
        amount = Resources(
            int(row["cpu_milli"]),
            int(row["memory_mib"]),
            0,
            (Accelerators(row["model"], int(row["gpu"]) * 1000),),
        )
        facts.append(NodeFacts(id=NodeId(row["sn"]), pool_id=POOL, total=amount, free=amount))
    return facts


def variants(folder: Path) -> list[str]:
    """Return the names of the pod lists in *folder*."""
    return sorted(path.name.removeprefix(PODS).partition(".")[0] for path in folder.glob(f"{PODS}*.csv*"))


def read_pods(folder: Path, variant: str) -> list[Pod]:
    """Return the pods of one variant."""
    packed = folder / f"{PODS}{variant}.csv.gz"
    if packed.exists():
        text = gzip.decompress(packed.read_bytes()).decode()
    else:
        text = packed.with_suffix("").read_text()
    return [
        Pod(
            row["name"],
            int(row["cpu_milli"]),
            int(row["memory_mib"]),
            int(row["num_gpu"]),
            int(row["gpu_milli"]),
            row.get("gpu_spec") or "",
        )
        for row in csv.DictReader(text.splitlines())
    ]


def arrivals(pods: list[Pod], gpus: int, seed: int) -> list[Pod]:
    """Shuffle the pods, then append uniformly drawn copies until demand reaches 130 % of the GPUs."""
    random = np.random.default_rng(seed)
    order = [pods[index] for index in random.permutation(len(pods))]
    demand = sum(pod.num_gpu * pod.gpu_milli for pod in order)
    while demand < OVERLOAD * gpus * 1000:
        pod = pods[int(random.integers(len(pods)))]
        order.append(pod)
        demand += pod.num_gpu * pod.gpu_milli
    return order
