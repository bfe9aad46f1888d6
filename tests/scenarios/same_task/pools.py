"""Four real engines as pools of one platform, and what each engine itself says of an allocation."""

import sys
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from engines.kubernetes.cluster import Cluster, cluster
from engines.kubernetes.nodes import node, run_nodes
from engines.ray_cluster import RayCluster, RayIsMissingError, ray_cluster, ray_python
from engines.slurm.cluster import SlurmCluster, slurm_cluster
from integration.entrypoints.cli.conftest import Shell, free_port
from support.agent_roots import agent_root
from support.repository import REPOSITORY
from yunhe.agent.limits.limits import find_backend
from yunhe.infrastructure.kubernetes.objects import names
from yunhe.infrastructure.kubernetes.objects.quantities import mib, millis
from yunhe.infrastructure.slurm.site.answers import records

PRICE = "cpu=7.3/h,mem=0.91/h,io=0.57/GiB"
"""Odd enough that what is rounded wrongly shows in the last digit."""
SECRET = "locks and weirs"
MIB = 2**20


@dataclass(frozen=True)
class Reserved:
    """What an engine itself says it holds for an allocation."""

    cpu_millis: int
    memory_mib: int


@dataclass(frozen=True)
class EnginePool:
    """One engine as a pool of the platform."""

    engine: str
    name: str
    """Of the pool; what ``yunhe up`` makes has a name already."""
    added_by: tuple[str, ...]
    """What ``yunhe pool`` is given to add it, or only to price what is there."""
    reserved: Callable[[str], Reserved]
    runs: Callable[[], int]
    """How much of ours the engine itself says is running or waiting to."""


@dataclass(frozen=True)
class Platform:
    """A platform with every engine."""

    shell: Shell
    up: tuple[str, ...]
    """What ``yunhe up`` is given, also after a stop."""
    pools: tuple[EnginePool, ...]


# What each engine itself says


def host_pool(root: Path) -> EnginePool:
    def reserved(allocation_id: str) -> Reserved:
        keeper = find_backend(str(root))
        if keeper.kind == "v1":
            cpu, memory = (Path(keeper.paths[name], allocation_id) for name in ("cpu", "memory"))
            quota, period = ((cpu / f"cpu.cfs_{name}_us").read_text() for name in ("quota", "period"))
            limit = (memory / "memory.limit_in_bytes").read_text()
        else:
            group = Path(keeper.paths["unified"], allocation_id)
            quota, period = (group / "cpu.max").read_text().split()
            limit = (group / "memory.max").read_text()
        return Reserved(1000 * int(quota) // int(period), int(limit) // MIB)

    def runs() -> int:
        keeper = find_backend(str(root))
        return sum(bool(keeper.group(name).processes()) for name in keeper.leftovers())

    return EnginePool("host", "this-machine", ("price", "this-machine", PRICE), reserved, runs)


def kubernetes_pool(made: Cluster) -> EnginePool:
    def pods(selector: str) -> list[dict[str, Any]]:
        with made.client() as client:
            found = client.get("/api/v1/pods", params={"labelSelector": selector}).raise_for_status()
            return found.json()["items"]

    def reserved(allocation_id: str) -> Reserved:
        (pod,) = pods(f"{names.ALLOCATION}={allocation_id}")
        limits = pod["spec"]["containers"][0]["resources"]["limits"]
        return Reserved(millis(limits["cpu"]), mib(limits["memory"]))

    def runs() -> int:
        ours = pods(f"{names.MANAGED_BY}=yunhe")
        return sum(pod["status"].get("phase") not in ("Succeeded", "Failed") for pod in ours)

    options = ("--option", f"kubeconfig={made.kubeconfig()}", "--option", "sample_every=0.5")
    return EnginePool(
        "kubernetes",
        "cluster",
        ("add", "kubernetes", *options, "--name", "cluster", "--price", PRICE),
        reserved,
        runs,
    )


def slurm_pool(made: SlurmCluster) -> EnginePool:
    def reserved(allocation_id: str) -> Reserved:
        (number,) = made.jobs(allocation_id)
        (job,) = records(made.ask("scontrol", "show", "job", number, "--oneliner"))
        return Reserved(1000 * int(job["NumCPUs"]), int(job["MinMemoryNode"].removesuffix("M")))

    options = {
        "root": str(made.directory / "platform"),
        "slurm_conf": str(made.configuration),
        "partition": "main",
        "python": sys.executable,
    }
    words = [word for name, value in options.items() for word in ("--option", f"{name}={value}")]
    return EnginePool(
        "slurm",
        "site",
        ("add", "slurm", *words, "--name", "site", "--price", PRICE),
        reserved,
        lambda: len(made.ask("squeue", "--noheader", "--format=%i").split()),
    )


def ray_pool(made: RayCluster) -> EnginePool:
    def ask(path: str, **query: str) -> Any:
        return (
            httpx.get(f"{made.url}{path}", params=query, timeout=30, trust_env=False)
            .raise_for_status()
            .json()
        )

    def reserved(allocation_id: str) -> Reserved:
        """Ray tells what a job asked for at the actor that runs its entrypoint."""
        actors = ask("/api/v0/actors", detail="1", limit="1000")["data"]["result"]["result"]
        (wanted,) = [
            actor["required_resources"] for actor in actors if actor["name"].endswith(f"_{allocation_id}")
        ]
        return Reserved(round(1000 * wanted["CPU"]), int(wanted["memory"]) // MIB)

    def runs() -> int:
        return sum(job["status"] in ("PENDING", "RUNNING") for job in ask("/api/jobs/"))

    return EnginePool(
        "ray", "actors", ("add", "ray", made.url, "--name", "actors", "--price", PRICE), reserved, runs
    )


# All of them at once


@contextmanager
def four_pools(home: Path) -> Generator[Platform]:
    """Bring up every engine and one platform, and add them to it as an operator would."""
    try:
        ray_python()
    except RayIsMissingError as reason:
        pytest.skip(str(reason))
    with ExitStack() as stack:
        kubernetes, slurm, ray = _together(stack, cluster(), slurm_cluster(), ray_cluster())
        stack.enter_context(run_nodes(kubernetes, node("node-1"), node("node-2")))
        root = stack.enter_context(agent_root())
        shell = Shell(home, REPOSITORY)
        stack.callback(shell, "down")
        words = ("--no-sample", "--port", str(free_port()), "--agent-root", str(root))
        said = shell("up", *words, timeout_s=110)
        assert said.returncode == 0, said.stderr
        pools = (host_pool(root), kubernetes_pool(kubernetes), slurm_pool(slurm), ray_pool(ray))
        for pool in pools:
            done = shell("pool", *pool.added_by, timeout_s=180)
            assert done.returncode == 0, done.stdout + done.stderr
        kept = shell("secret", "set", "CANAL_KEY", typed=SECRET)
        assert kept.returncode == 0, kept.stderr
        yield Platform(shell, words, pools)


def _together(stack: ExitStack, *starting: AbstractContextManager[Any]) -> list[Any]:
    """Enter several at the same time; what did start is ended even if another did not."""
    with ThreadPoolExecutor(len(starting)) as threads:
        entered = [threads.submit(stack.enter_context, one) for one in starting]
    return [one.result() for one in entered]
