"""What each field of SkyPilot's task means here: one table, read by the translation, the CLI and the reference page."""

from enum import StrEnum
from typing import NamedTuple


class Effect(StrEnum):
    """What becomes of a field."""

    HONOURED = "honoured"
    """It does here what it does there."""
    MEANING = "meaning"
    """It is accepted, and means what is said beside it."""
    NOTE = "note"
    """It is accepted, and changes neither what runs, nor where, nor its price."""
    PLANNED = "planned only"
    """``plan`` reads it and plans; ``run`` refuses it, with the reason."""
    REFUSED = "refused"


class Case(NamedTuple):
    """One form of a field, and what becomes of it."""

    field: str
    form: str
    effect: Effect
    says: str
    """A sentence without its subject; of what is planned only: why, and what to do instead."""


_H, _M, _N, _P, _R = Effect.HONOURED, Effect.MEANING, Effect.NOTE, Effect.PLANNED, Effect.REFUSED
_STORE = "buckets are not mounted yet: fetch what it needs in setup, keep results with outputs"
_VOLUME = "named volumes are not carried out yet: send files with file_mounts, keep results with outputs"
_SERVICE = "is read with the service; only where its replicas go is planned"
_GROUP = "is read with the file; only where its tasks go is planned"
_TPU = "is for a TPU machine that a cloud makes, and no pool makes one yet: leave it out"
_CONFIG = "is for SkyPilot's own provisioning, which does not run here: leave it out"
_INTERNAL = "is SkyPilot's own record and changes nothing"

CASES: dict[str, Case] = {
    "name": Case("name", "text", _H, "is what the job is called"),
    "name.changed": Case("name", "with capitals or blanks", _M, "is written {value} here"),
    "run": Case("run", "a script", _H, "runs; its exit code is the job's"),
    "run.missing": Case("run", "left out, beside setup", _M, "is left out: the job ends when setup has ended"),
    "setup": Case("setup", "a script", _H, "runs before run, in the same place"),
    "variables": Case("run, setup", "$SKYPILOT_NODE_RANK, _NUM_NODES, _NODE_IPS, _NUM_GPUS_PER_NODE, _TASK_ID", _H, "are set as on a cluster of one node; the ID is the job's"),
    "sky_workdir": Case("run, setup", "~/sky_workdir", _H, "is the directory that the job starts in, by SkyPilot's name for it"),
    "workdir": Case("workdir", "a local path", _H, "is sent, and the job starts in a copy of it"),
    "workdir.missing": Case("workdir", "a local path that is not here", _P, "is not a directory here: call it where the directory is"),
    "workdir.git": Case("workdir", "{url, ref}", _H, "is cloned on the node before setup, with git; what it needs to log in goes into secrets"),
    "num_nodes": Case("num_nodes", "a number", _P, "is read: members on so many nodes of one pool, all or none; to run it, submit one task per node"),
    "num_nodes.one": Case("num_nodes", "1", _H, "is one node"),
    "envs": Case("envs", "NAME: text or a number", _H, "is in the environment, and takes the place of $NAME in file_mounts, workdir and service"),
    "envs.flag": Case("envs", "NAME: true or false", _M, "is the text {value} in the environment, as with SkyPilot"),
    "envs.missing": Case("envs", "NAME: with no value", _P, "has no value: give it with --env {name}=…"),
    "secrets.named": Case("secrets", "NAME: with no value, or a list of names", _H, "comes from the project's secret of that name: yunhe secret set {name}"),
    "secrets.empty": Case("secrets", "NAME: ''", _H, "is an empty variable"),
    "secrets.value": Case("secrets", "NAME: with its value", _P, "has its value in the file, and a task is kept: yunhe secret set {name}, then leave the value out or add --secret {name}"),
    "managed_secrets": Case("managed_secrets", "a list of names", _H, "comes from the project's secret of that name: yunhe secret set {name}"),
    "managed_secrets.mounted": Case("managed_secrets", "{NAME: {mount_path}}", _P, "secrets are not written to files yet: name it in secrets and write the file in setup"),
    "file_mounts.local": Case("file_mounts", "a relative target or ~/…: a local path", _H, "is sent to that place in the job's directory"),
    "file_mounts.missing": Case("file_mounts", "a local path that is not here", _P, "there is no such file here: call it where the file is"),
    "file_mounts.absolute": Case("file_mounts", "/absolute: a local path", _P, "lies outside the job's directory, where a job cannot write on shared machines: write it as ~{target}"),
    "file_mounts.remote": Case("file_mounts", "s3://, gs://, https:// and other addresses", _P, "addresses are not fetched yet: fetch it in setup"),
    "file_mounts.copy": Case("file_mounts", "{source: a local path, mode: COPY}", _M, "is sent as files; no bucket is made"),
    "file_mounts.store": Case("file_mounts", "{name, source, store, mode, persistent, …}", _P, _STORE),
    "file_mounts.volume": Case("file_mounts", "{store: volume, …}", _P, _VOLUME),
    "volumes": Case("volumes", "/path: NAME, or {name, size, …}", _P, _VOLUME),
    "volume_mounts": Case("volume_mounts", "any", _P, _VOLUME),
    "inputs": Case("inputs", "{address: GB}", _N, "is an estimate of sizes and moves nothing"),
    "outputs.estimate": Case("outputs", "{address: GB}", _N, "is an estimate of sizes and moves nothing; a list names what is kept"),
    "event_callback": Case("event_callback", "a script", _P, "scripts are not run on events: follow the job with yunhe logs -f or the API's events, and leave it out"),
    "api_server_access": Case("api_server_access", "true", _P, "a job is given no access to the platform: pass a token with secrets, and leave it out"),
    "api_server_access.false": Case("api_server_access", "false", _H, "a job has no access to the platform"),
    "file_mounts_mapping": Case("file_mounts_mapping", "any", _N, _INTERNAL),
    "_metadata": Case("_metadata", "any", _N, _INTERNAL),
    "resources.cpus": Case("resources.cpus", "4, 4+", _H, "are reserved and kept to; 4+ is at least 4, and 4 are taken"),
    "resources.memory": Case("resources.memory", "16, 16+, 64GB", _H, "is reserved and kept to; 16+ is at least 16 GiB, and 16 are taken"),
    "resources.memory.ratio": Case("resources.memory", "4x", _H, "is so many GiB for each core: {value} GiB"),
    "resources.disk_size": Case("resources.disk_size", "256, 256GB", _H, "is free disk that is reserved where it runs"),
    "resources.ephemeral_storage": Case("resources.ephemeral_storage", "as disk_size", _H, "is disk_size by its older name"),
    "resources.accelerators": Case("resources.accelerators", "A100, A100:8, {A100: 8}", _H, "are reserved on one node"),
    "resources.accelerators.set": Case("resources.accelerators", "{A100:8, H100:8}", _H, "are alternatives, as any_of: the policy chooses"),
    "resources.accelerators.list": Case("resources.accelerators", "[A100:8, H100:8]", _H, "are alternatives in order, as ordered"),
    "resources.gpus": Case("resources.gpus", "as accelerators", _H, "is accelerators by another name"),
    "resources.accelerator_args": Case("resources.accelerator_args", "any", _P, _TPU),
    "resources.infra": Case("resources.infra", "CLOUD/REGION/ZONE, k8s/CONTEXT, ssh/NAME, KIND/NAME, *", _H, "only pools of that kind or with the label cloud=CLOUD, of that name or in that region, on nodes with the label zone=ZONE; --infra '*' lifts it"),
    "resources.cloud": Case("resources.cloud", "a name", _H, "is the first part of infra"),
    "resources.region": Case("resources.region", "a name", _H, "is the second part of infra"),
    "resources.zone": Case("resources.zone", "a name", _H, "is the third part of infra"),
    "resources.instance_type": Case("resources.instance_type", "a name", _M, "only nodes with the label instance_type={value} (or one that ends in /instance-type); of such a node it takes what cpus and memory say, 1 core and 1 GiB when not said"),
    "resources.use_spot": Case("resources.use_spot", "true", _M, "may run on capacity that can be taken back, at its price, and elsewhere too; taken back, it waits for another place"),
    "resources.use_spot.false": Case("resources.use_spot", "false", _H, "never runs on capacity that can be taken back"),
    "resources.disk_tier": Case("resources.disk_tier", "high, ultra", _H, "only nodes with the label disk_tier={value}"),
    "resources.disk_tier.any": Case("resources.disk_tier", "low, medium, best", _M, "is whatever disk the place has: disk is priced by size, not by tier"),
    "resources.network_tier": Case("resources.network_tier", "standard, best", _M, "is whatever network the place has: it is not priced by tier"),
    "resources.local_disk": Case("resources.local_disk", "any", _R, "is not read: ask for the size with disk_size and for the kind with where: disk=nvme"),
    "resources.max_hourly_cost": Case("resources.max_hourly_cost", "a number", _M, "is budget_per_hour, in the platform's currency: {value}"),
    "resources.image_id": Case("resources.image_id", "docker:NAME, or NAME with a registry", _H, "is the container image to run in; only pools that run images"),
    "resources.image_id.machine": Case("resources.image_id", "an image of a machine: ami-…, projects/…, skypilot:…", _P, "is the image of a machine, and no pool boots machines from images yet: name a container image as docker:NAME, or give --image"),
    "resources.image_id.regions": Case("resources.image_id", "{REGION: image}", _P, "are images of machines, region by region; only these regions are planned for: name one container image as docker:NAME, or give --image"),
    "resources.ports": Case("resources.ports", "8080, 8080-8090, a list", _M, "are opened to nobody: yunhe forward JOB connects to them from your machine"),
    "resources.ports.many": Case("resources.ports", "more than 1024 of them", _M, "are opened to nobody and are not listed: yunhe forward JOB PORT connects to one from your machine"),
    "resources.labels": Case("resources.labels", "{name: text}", _N, "name machines that SkyPilot makes; jobs here share machines, so nothing is labelled"),
    "resources.priority": Case("resources.priority", "-1000 to 1000", _H, "higher goes first among the jobs that wait"),
    "resources.priority_class": Case("resources.priority_class", "a name", _R, "names a class of SkyPilot's server: set priority to a number"),
    "resources.autostop": Case("resources.autostop", "true, 10, 10m, {idle_minutes, down, wait_for}", _M, "holds anyway: a job gives back all it holds when it ends"),
    "resources.autostop.false": Case("resources.autostop", "false", _M, "a job gives back all it holds when it ends; to keep it, end run with sleep infinity and set a timeout"),
    "resources.autostop.hook": Case("resources.autostop", "{hook, hook_timeout}", _P, "scripts are not run when a machine stops: put it at the end of run"),
    "resources.job_recovery": Case("resources.job_recovery", "FAILOVER, EAGER_NEXT_REGION, {strategy}", _M, "holds anyway: a job whose place is taken back waits for another one, wherever there is room"),
    "resources.job_recovery.none": Case("resources.job_recovery", "none", _M, "a job whose place is taken back waits for another one all the same; yunhe stop ends it"),
    "resources.job_recovery.restarts": Case("resources.job_recovery", "{max_restarts_on_errors}", _H, "is retries: {value}"),
    "resources.job_recovery.codes": Case("resources.job_recovery", "{recover_on_exit_codes}", _P, "every failure is tried again, whatever its code: leave it out and set retries"),
    "resources.job_recovery.other": Case("resources.job_recovery", "{another key}", _P, "is an option of a strategy that does not exist here: leave it out"),
    "resources.spot_recovery": Case("resources.spot_recovery", "FAILOVER, EAGER_FAILOVER", _M, "is job_recovery by its older name: a job whose place is taken back waits for another one"),
    "resources.volumes": Case("resources.volumes", "a list", _P, _VOLUME),
    "resources.any_of": Case("resources.any_of", "a list of resources", _H, "are alternatives over what is said beside them; the policy chooses"),
    "resources.ordered": Case("resources.ordered", "a list of resources", _H, "are alternatives in order of preference"),
    "resources.any_of.differs": Case("resources.any_of, ordered", "image_id, ports … of one alternative", _P, "differs between alternatives, and a task has one: say it once, beside any_of"),
    "resources._": Case("resources._…", "any", _P, "is SkyPilot's own record: leave it out"),
    "service": Case("service", "replicas, or replica_policy.min_replicas", _P, "is read: {value} equal servers, each on a node of its own; to run it, start the server in run and set a timeout"),
    "service.gang": Case("service", "beside num_nodes", _P, "is read: {value} equal servers of several nodes each; the nodes of one are planned; to run it, submit one task per node"),
    "service.replicas": Case("service.replicas", "a number", _P, "is how many replicas are planned"),
    "service.replica_policy": Case("service.replica_policy", "{min_replicas, max_replicas, target_qps_per_replica, …}", _P, "{value} is planned for, and its part in scaling is read with the service"),
    "service.other": Case("service.readiness_probe, load_balancing_policy, load_balancer, tls, ports", "any", _P, _SERVICE),
    "pool": Case("pool", "{workers, min_workers, …}", _P, "is read: {value} equal workers, planned as replicas; to run it, submit the jobs themselves: they share the pools"),
    "config.timeout": Case("config.….provision_timeout", "seconds", _M, "a job waits for a place as long as --wait says, and for ever when not said"),
    "config.options": Case("config.docker.run_options, pod_config, hooks and other keys", "any", _P, _CONFIG),
    "experimental": Case("experimental", "{config_overrides}", _P, _CONFIG),
    "documents": Case("several documents", "tasks after one another", _P, "is a pipeline of {value} tasks, one after another: each is planned; to run it, write one file per task and run them in order"),
    "documents.group": Case("several documents", "execution: parallel", _P, "is a group of {value} tasks that run together: each is planned; to run it, write one file per task: yunhe run a.yaml b.yaml"),
    "documents.header": Case("name, execution, primary_tasks, termination_delay, inter_connection", "in the first of several documents", _P, _GROUP),
}  # fmt: skip
"""By a short key that the translation names; a row of the reference page each."""

FILE_HEADER = ("name", "execution", "primary_tasks", "termination_delay", "inter_connection", "placement")
"""Fields that the first of several documents may have when it is about the file and no task of it."""
SERVICE_FIELDS = (
    "readiness_probe", "load_balancer", "load_balancing_policy", "tls", "ports", "replicas", "replica_policy", "pool", "workers",
)  # fmt: skip
REPLICA_POLICY = (
    "min_replicas", "max_replicas", "num_overprovision", "target_qps_per_replica", "dynamic_ondemand_fallback",
    "base_ondemand_fallback_replicas", "spot_placer", "upscale_delay_seconds", "downscale_delay_seconds",
)  # fmt: skip
WORKER_FIELDS = (
    "workers", "min_workers", "max_workers", "queue_length_threshold", "upscale_delay_seconds", "downscale_delay_seconds",
)  # fmt: skip
STORE_FIELDS = ("name", "source", "store", "persistent", "mode", "mount_options", "type", "config")
KINDS = (
    "A10", "A10G", "A100", "A100-80GB", "A40", "A6000", "B100", "B200", "B300", "GB200", "GB300", "GH200", "Gaudi2", "H100",
    "H100-SXM", "H100-NVLINK", "H200", "Inferentia", "Inferentia2", "K80", "L4", "L40", "L40S", "M60", "MI250", "MI300X", "P100",
    "P4", "RTX3090", "RTX4090", "RTX6000", "T4", "T4g", "Trainium", "Trainium2", "V100", "V100-32GB",
)  # fmt: skip
"""Kinds as SkyPilot writes them; it takes them in any case."""
