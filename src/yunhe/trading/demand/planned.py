"""Fields people may bring from elsewhere that are not honoured yet: each says what to do instead."""

from typing import NamedTuple


class Planned(NamedTuple):
    """Why a field is refused, and the one value that asks for nothing and so may stay."""

    instead: str
    neutral: object = None


PLAN_ONLY: dict[str, Planned] = {
    "num_nodes": Planned("submit one task per node (yunhe run a.yaml b.yaml)", 1),
    "service": Planned("start the server in run and set a timeout"),
    "components": Planned("submit one task per component", ()),
    "links": Planned("submit one task per component", ()),
}
"""Fields that ``yunhe plan`` decides and explains and that ``yunhe run`` refuses."""

TASK_FIELDS: dict[str, Planned] = {
    "volumes": Planned("send files with file_mounts, fetch them with outputs"),
    "data": Planned("send files with workdir or file_mounts"),
    "network": Planned("leave it out"),
    "budget": Planned("bound the cost with timeout and resources; see it with yunhe cost"),
    "config": Planned("leave it out; the platform is configured with yunhe config"),
    "experimental": Planned("leave it out"),
    "event_callback": Planned("follow the job with yunhe logs -f or the API's events"),
    "file_mounts_mapping": Planned("use file_mounts"),
}

RESOURCE_FIELDS: dict[str, Planned] = {
    "use_spot": Planned("set the task's tier: low is cheapest and gives way first", False),
    "image_id": Planned("name the image with the task's image"),
    "infra": Planned("name a pool with pool, or prefer a place with near"),
    "cloud": Planned("name a pool with pool, or prefer a place with near"),
    "region": Planned("prefer a place with the task's near"),
    "zone": Planned("prefer a place with the task's near"),
    "instance_type": Planned("say what is needed with cpus, memory and accelerators"),
    "ports": Planned("reach a running job with yunhe exec"),
    "disk_tier": Planned("leave it out"),
    "network_tier": Planned("leave it out"),
    "local_disk": Planned("ask for disk_size"),
    "autostop": Planned("set the task's timeout"),
    "job_recovery": Planned("set the task's retries"),
    "spot_recovery": Planned("set the task's retries"),
    "accelerator_args": Planned("leave it out"),
    "priority": Planned("set the task's tier: high, medium or low"),
    "labels": Planned("put what tells jobs apart into the task's name"),
}

SERVICE_FIELDS: dict[str, Planned] = {
    "readiness_probe": Planned("leave it out; only where the replicas would go is decided"),
    "replica_policy": Planned("say how many with replicas"),
    "ports": Planned("leave it out; only where the replicas would go is decided"),
}

ALIASES: dict[str, str] = {
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
    "nodes": "num_nodes",
    "ram": "memory",
    "retry": "retries",
    "script": "run",
    "vcpus": "cpus",
    "working_dir": "workdir",
}
"""What people write from habit → our word; difflib finds the misspellings."""
