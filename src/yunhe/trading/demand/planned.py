"""Fields people may bring from elsewhere that are not honoured yet: each says what to do instead."""

from typing import NamedTuple


class UnsupportedField(NamedTuple):
    """Why a field is refused, and the one value that asks for nothing and so may stay."""

    instead: str
    neutral: object = None


PLAN_ONLY: dict[str, UnsupportedField] = {
    "num_nodes": UnsupportedField("submit one task per node (yunhe run a.yaml b.yaml)", 1),
    "service": UnsupportedField("start the server in run and set a timeout"),
    "components": UnsupportedField("submit one task per component", ()),
    "links": UnsupportedField("submit one task per component", ()),
}
"""Fields that ``yunhe plan`` decides and explains and that ``yunhe run`` refuses."""

TASK_FIELDS: dict[str, UnsupportedField] = {
    "volumes": UnsupportedField("send files with file_mounts, fetch them with outputs"),
    "data": UnsupportedField("send files with workdir or file_mounts"),
    "budget": UnsupportedField("bound the price with budget_per_hour and the time with timeout"),
    "config": UnsupportedField("leave it out; the platform is configured with yunhe config"),
    "experimental": UnsupportedField("leave it out"),
    "event_callback": UnsupportedField("follow the job with yunhe logs -f or the API's events"),
    "file_mounts_mapping": UnsupportedField("use file_mounts"),
}

RESOURCE_FIELDS: dict[str, UnsupportedField] = {
    "image_id": UnsupportedField("name the image with the task's image"),
    "cloud": UnsupportedField("say where with infra: CLOUD/REGION/ZONE"),
    "region": UnsupportedField("say where with infra: '*/REGION', or keep it in regions with residency"),
    "zone": UnsupportedField("say where with infra: '*/*/ZONE', or ask for a label with where: zone=b"),
    "instance_type": UnsupportedField("ask for a label with where: instance_type=NAME"),
    "ports": UnsupportedField("name them in the task's ports"),
    "disk_tier": UnsupportedField("leave it out"),
    "network_tier": UnsupportedField("leave it out"),
    "local_disk": UnsupportedField("ask for disk_size"),
    "autostop": UnsupportedField("set the task's timeout"),
    "job_recovery": UnsupportedField("set the task's retries"),
    "spot_recovery": UnsupportedField("set the task's retries"),
    "accelerator_args": UnsupportedField("leave it out"),
    "priority": UnsupportedField("set the task's priority"),
    "labels": UnsupportedField("ask for labels of pools and nodes with the task's where"),
}

CHOICE_FIELDS: dict[str, UnsupportedField] = {
    **RESOURCE_FIELDS,
    "use_spot": UnsupportedField("say it once, in the task's resources", False),
}
"""Those of one alternative or component."""

SERVICE_FIELDS: dict[str, UnsupportedField] = {
    "readiness_probe": UnsupportedField("leave it out; only where the replicas would go is decided"),
    "replica_policy": UnsupportedField("say how many with replicas"),
    "ports": UnsupportedField("leave it out; only where the replicas would go is decided"),
}

ALIASES: dict[str, str] = {
    "arch": "architecture",
    "args": "run",
    "cmd": "run",
    "command": "run",
    "commands": "run",
    "container": "image",
    "cores": "cpus",
    "cpu": "cpus",
    "disk": "disk_size",
    "environment": "envs",
    "files": "file_mounts",
    "gpu": "accelerators",
    "gpus": "accelerators",
    "mem": "memory",
    "mounts": "file_mounts",
    "isa": "architecture",
    "labels": "where",
    "latency": "max_latency",
    "node_selector": "where",
    "nodes": "num_nodes",
    "not_before": "start_after",
    "region": "residency",
    "regions": "residency",
    "spot": "interruptible",
    "taints": "tolerations",
    "use_spot": "interruptible",
    "zone": "residency",
    "zones": "residency",
    "ram": "memory",
    "retry": "retries",
    "script": "run",
    "vcpus": "cpus",
    "working_dir": "workdir",
}
"""What people write from habit → our word; difflib finds the misspellings."""
