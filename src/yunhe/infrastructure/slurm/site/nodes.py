"""What the site has: partitions, nodes, sizes, and what our account may hold."""

from __future__ import annotations

import contextlib
import getpass
import os
import time
from datetime import datetime
from typing import Any, NamedTuple

from yunhe.agent.protocol.refusals import NOT_FOUND, Refusal, invalid
from yunhe.infrastructure.slurm.site import answers
from yunhe.infrastructure.slurm.site.programs import SiteSettings, Slurm

_NOT_READY = (
    "DOWN",
    "DRAIN",
    "FAIL",
    "MAINT",
    "NOT_RESPONDING",
    "POWERED_DOWN",
    "REBOOT",
    "UNKNOWN",
    "INVAL",
    "FUTURE",
)
_ISA = {"x86_64": "amd64", "aarch64": "arm64"}
_QUOTAS = ("MaxJobs", "MaxSubmit", "GrpJobs", "GrpSubmit", "MaxTRES", "GrpTRES", "GrpTRESMins")


class Partition(NamedTuple):
    """A queue with its nodes and its limit."""

    name: str
    default: bool
    limit_minutes: int | None
    up: bool


class Landscape(NamedTuple):
    """Every partition and node, as Slurm told of them at one moment."""

    taken_at: float
    partitions: dict[str, Partition]
    nodes: dict[str, dict[str, Any]]
    members: dict[str, tuple[str, ...]]
    """The partitions of each node."""

    def node(self, name: str) -> dict[str, Any]:
        """Return the node *name*, or say that there is none."""
        if name not in self.nodes:
            raise Refusal(
                NOT_FOUND,
                f"This site has no node {name} for us.",
                fields=[{"field": "node_id", "problem": "is not one of this site's", "value": name}],
            )
        return self.nodes[name]

    def partition_for(self, node: dict[str, Any], wanted: str) -> Partition:
        """Return the partition to reach *node* by: the one asked for, else the default, else its first."""
        names = self.members[node["id"]]
        choices = [self.partitions[name] for name in names if not wanted or name == wanted]
        if not choices:
            raise invalid("node_id", f"is not in partition {wanted}", node["id"])
        return next((partition for partition in choices if partition.default), choices[0])

    def nodes_in(self, partition: Partition) -> list[dict[str, Any]]:
        """Return the nodes of a partition."""
        return [node for node in self.nodes.values() if partition.name in self.members[node["id"]]]


def read_landscape(slurm: Slurm, settings: SiteSettings) -> Landscape:
    """Ask Slurm for its partitions and nodes; where the operator named a partition, for that one alone."""
    disk = os.statvfs(settings.root)
    disk_mib = disk.f_blocks * disk.f_frsize >> 20
    used_disk_mib = disk_mib - (disk.f_bavail * disk.f_frsize >> 20)
    partitions = {
        fields["PartitionName"]: Partition(
            fields["PartitionName"],
            fields.get("Default") == "YES",
            answers.minutes(fields.get("MaxTime", "")),
            fields.get("State") == "UP",
        )
        for fields in answers.records(slurm.ask("scontrol", "show", "partition", "--oneliner"))
        if settings.partition in ("", fields["PartitionName"])
    }
    nodes: dict[str, dict[str, Any]] = {}
    members: dict[str, tuple[str, ...]] = {}
    for fields in answers.records(slurm.ask("scontrol", "show", "node", "--oneliner", "--detail")):
        name = fields["NodeName"]
        queues = tuple(queue for queue in fields.get("Partitions", "").split(",") if queue in partitions)
        if queues:
            nodes[name] = node_of(fields, disk_mib, used_disk_mib)
            members[name] = queues
    return Landscape(time.time(), partitions, nodes, members)


def node_of(fields: dict[str, str], disk_mib: int, used_disk_mib: int) -> dict[str, Any]:
    """Return a node as ``scontrol`` tells of it."""
    cpu_millis, memory_mib = answers.whole(fields["CPUTot"]) * 1000, answers.whole(fields["RealMemory"])
    free_mib = answers.whole(fields.get("FreeMem", "")) if fields.get("FreeMem") != "N/A" else memory_mib
    load = float(fields["CPULoad"]) if fields.get("CPULoad", "N/A") != "N/A" else 0.0
    flags = fields["State"].rstrip("*~#!%$@+^-").split("+")
    silent = "*" in fields["State"]
    ready = not silent and not any(flag.startswith(_NOT_READY) for flag in flags)
    node: dict[str, Any] = {
        "id": fields["NodeName"],
        "total": {"cpu_millis": cpu_millis, "memory_mib": memory_mib, "disk_mib": disk_mib},
        "used": {
            "cpu_millis": min(cpu_millis, round(load * 1000)),
            "memory_mib": max(0, memory_mib - free_mib),
            "disk_mib": used_disk_mib,
        },
        "ready": ready,
        "isa": _ISA.get(fields.get("Arch", ""), fields.get("Arch", "")),
        "labels": _labels(fields),
        "system": _system(fields),
    }
    if not ready:
        node["reason"] = f"{fields['State'].lower()}: {fields.get('Reason', 'Slurm gives no reason')}"
    total = answers.accelerators(fields.get("Gres", ""))
    if total:
        node["total"]["accelerators"] = total
        held = answers.accelerators(fields.get("GresUsed", ""))
        node["used"]["accelerators"] = held
    return node


def _labels(fields: dict[str, str]) -> dict[str, str]:
    """Return a node's features and partitions, each a label of its own."""
    found: dict[str, str] = {}
    for kind, listed in (("feature", "ActiveFeatures"), ("partition", "Partitions")):
        names = fields.get(listed, "").split(",")
        found.update({f"{kind}/{name}": "true" for name in names if name not in ("", "(null)")})
    return found


def _system(fields: dict[str, str]) -> dict[str, Any]:
    words = fields.get("OS", "").split()
    system: dict[str, Any] = {"os": words[0].lower() if words else "", "kernel": "".join(words[1:2])}
    with contextlib.suppress(ValueError):  # a node that has not been heard of
        booted = datetime.strptime(fields.get("BootTime", ""), "%Y-%m-%dT%H:%M:%S")  # noqa: DTZ007 - the site's clock
        system["booted_at"] = booted.timestamp()
    return system


def catalogue_of(landscape: Landscape) -> dict[str, Any]:
    """Return the partitions as regions and the sizes of node in each, with how many there are."""
    sizes: dict[tuple[str, str], dict[str, Any]] = {}
    for node in landscape.nodes.values():
        for partition in landscape.members[node["id"]]:
            name = _size_name(node["total"])
            size = {"name": name, "region": partition, "resources": node["total"], "count": 0}
            sizes.setdefault((partition, name), size)["count"] += 1
    regions = [{"name": name} for name in sorted(landscape.partitions)]
    return {"regions": regions, "specs": [sizes[key] for key in sorted(sizes)]}


def _size_name(total: dict[str, Any]) -> str:
    words = [f"{total['cpu_millis'] // 1000}cpu", f"{total['memory_mib']}mib"]
    words += [f"{entry['milli'] // 1000}{entry['kind']}" for entry in total.get("accelerators", ())]
    return "-".join(words)


def account_of(slurm: Slurm, settings: SiteSettings, configuration: dict[str, str]) -> dict[str, Any]:
    """Return who we are to Slurm and the limits of our association, where the site keeps accounts."""
    user = getpass.getuser()
    words = f" for {settings.account}" if settings.account else ""
    identity = f"{user}@{configuration.get('ClusterName', 'slurm')}{words}"
    if configuration.get("AccountingStorageType") != "accounting_storage/slurmdbd":
        return {"identity": identity, "quotas": []}
    wanted = ["account", "partition", *_QUOTAS]
    asked = ["where", f"user={user}", f"cluster={configuration.get('ClusterName', '')}"]
    asked += [f"account={settings.account}"] if settings.account else []
    text = slurm.ask("sacctmgr", "-nP", "show", "assoc", *asked, f"format={','.join(wanted)}")
    return {"identity": identity, "quotas": quotas(text)}


def quotas(text: str) -> list[dict[str, Any]]:
    """Return every limit of every association that ``sacctmgr`` printed, named as Slurm names it."""
    found: list[dict[str, Any]] = []
    for line in text.splitlines():
        account, partition, *limits = line.split("|")
        where = f"{account}/{partition}" if partition else account
        for name, value in zip(_QUOTAS, limits):  # noqa: B905 - Python 3.8
            if value.isdigit():
                found.append({"name": f"{where} {name}", "limit": int(value)})
            else:
                found += [
                    {"name": f"{where} {name} {what}{' (MiB)' if what == 'mem' else ''}", "limit": limit}
                    for what, limit in answers.amounts(value).items()
                ]
    return found
