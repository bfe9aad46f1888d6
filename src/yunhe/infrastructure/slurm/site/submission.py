"""An order in sbatch's words. Scripts travel as files, everything else as arguments or environment."""

from __future__ import annotations

import math
from typing import Any

from yunhe.agent.protocol.refusals import UNSUPPORTED, Refusal, invalid
from yunhe.agent.runs.directory import Run
from yunhe.infrastructure.slurm.site.answers import PREFIX
from yunhe.infrastructure.slurm.site.nodes import Landscape, Partition
from yunhe.infrastructure.slurm.site.programs import SiteSettings
from yunhe.infrastructure.slurm.site.sealing import KEY, split_secrets

SCRIPT = """#!/bin/sh
# Written once for every job of this site: what differs comes as environment.
exec "$YUNHE_PYTHON" -I -S "$YUNHE_PROGRAM" job --run "$YUNHE_RUN"
"""
LEEWAY_S = 60
"""Slurm's limit lies this far behind our own, which ends a task to the second and says so."""


def check_order(order: dict[str, Any], settings: SiteSettings, landscape: Landscape) -> Partition:
    """Return the partition the order goes to; refuse, naming the field, what the site can never give."""
    if order.get("image"):
        raise Refusal(UNSUPPORTED, "image: this site runs scripts on its nodes, not containers.")
    node = landscape.node(order["node_id"])
    partition = landscape.partition_for(node, settings.partition)
    asked = order["resources"]
    for name in ("cpu_millis", "memory_mib", "disk_mib"):
        most = max(node["total"][name] for node in landscape.nodes_in(partition))
        if asked.get(name, 0) > most:
            raise invalid(
                f"resources.{name}", f"no node of {partition.name} has more than {most}", asked[name]
            )
    for accelerator in asked.get("accelerators", ()):
        _check_accelerator(accelerator, partition, landscape)
    limit = partition.limit_minutes
    timeout_s = order.get("timeout_s")
    if timeout_s is not None and limit is not None and timeout_s > limit * 60:
        raise invalid("timeout_s", f"partition {partition.name} allows {limit} minutes", timeout_s)
    return partition


def _check_accelerator(asked: dict[str, Any], partition: Partition, landscape: Landscape) -> None:
    if asked["milli"] % 1000:
        raise invalid("resources.accelerators.milli", "Slurm gives whole accelerators only", asked["milli"])
    if asked.get("memory_mib"):
        raise invalid(
            "resources.accelerators.memory_mib",
            "Slurm cannot be asked for device memory",
            asked["memory_mib"],
        )
    kinds = {
        entry["kind"]: entry["milli"]
        for node in landscape.nodes_in(partition)
        for entry in node["total"].get("accelerators", ())
    }
    if asked["milli"] > kinds.get(asked["kind"], 0):
        raise invalid("resources.accelerators", f"{partition.name} has {kinds or 'none'} on a node", asked)


def arguments_of(run: Run, order: dict[str, Any], settings: SiteSettings, partition: Partition) -> list[str]:
    """Return what sbatch is called with."""
    asked = order["resources"]
    words = {
        "job-name": PREFIX + run.id,
        "chdir": run.path,
        "output": run.at("slurm.out"),
        "nodes": "1",
        "ntasks": "1",
        "cpus-per-task": str(max(1, math.ceil(asked.get("cpu_millis", 0) / 1000))),
        "mem": f"{asked['memory_mib']}M" if asked.get("memory_mib") else "",
        "gres": ",".join(map(_gres, asked.get("accelerators", ()))),
        "time": _time(order, settings, partition),
        "partition": partition.name,
        "account": settings.account,
        "qos": settings.qos,
    }
    options = [f"--{name}={value}" for name, value in words.items() if value]
    # A job that Slurm starts again would run twice what we promised to run once; the platform has its own retries.
    return ["--parsable", "--no-requeue", *options, run.at("job.sh")]


def _gres(asked: dict[str, Any]) -> str:
    kind = "gpu" if asked["kind"] == "gpu" else f"gpu:{asked['kind']}"
    return f"{kind}:{asked['milli'] // 1000}"


def _time(order: dict[str, Any], settings: SiteSettings, partition: Partition) -> str:
    """Return the limit in whole minutes; empty: the partition's own default."""
    limit_s = order.get("timeout_s")
    if limit_s is None:
        return str(math.ceil(settings.time_limit_s / 60)) if settings.time_limit_s else ""
    limit = math.ceil((limit_s + order.get("grace_s", 0.0) + LEEWAY_S) / 60)
    return str(limit if partition.limit_minutes is None else min(limit, partition.limit_minutes))


def environment_of_job(
    run: Run, settings: SiteSettings, program: str, secrets: dict[str, str]
) -> dict[str, str]:
    """Return what the job's environment holds for us; the secrets are split."""
    variables = {"YUNHE_PYTHON": settings.python, "YUNHE_PROGRAM": program, "YUNHE_RUN": run.path}
    return {**variables, KEY: split_secrets(run, secrets)} if secrets else variables
