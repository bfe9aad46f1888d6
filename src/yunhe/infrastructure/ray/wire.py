"""Ray's own words, as its dashboard answers them; what we do not use is left out."""

import msgspec

MARK_RESOURCES = {"CPU": 1.0}
"""What makes a job a mark: Ray records it, refuses to schedule it (CPU is not asked for in this way), and calls it
failed within milliseconds, without a process anywhere. Should a Ray to come accept it, it would run ``true``."""


class RayVersion(msgspec.Struct, frozen=True):
    """The answer of ``/api/version``."""

    ray_version: str
    version: str = ""
    session_name: str = ""


class RayJob(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of ``/api/jobs/``."""

    type: str
    status: str
    submission_id: str | None = None
    message: str | None = None
    error_type: str | None = None
    start_time: int | None = None
    """Milliseconds since the epoch, as all times of Ray."""
    end_time: int | None = None
    metadata: dict[str, str] | None = None
    driver_node_id: str | None = None
    driver_exit_code: int | None = None


class RaySubmission(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The body of ``POST /api/jobs/``."""

    entrypoint: str
    submission_id: str
    metadata: dict[str, str] = {}
    runtime_env: dict[str, object] = {}
    entrypoint_num_cpus: float = 0.0
    entrypoint_num_gpus: float = 0.0
    entrypoint_memory: int = 0
    entrypoint_resources: dict[str, float] = {}


class RayNode(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of ``/api/v0/nodes``: what Ray may give away on a node."""

    node_id: str
    node_ip: str
    state: str
    state_message: str | None = None
    node_name: str = ""
    resources_total: dict[str, float] = {}
    labels: dict[str, str] = {}


class _Nodes(msgspec.Struct, frozen=True):
    result: list[RayNode]


class _NodesData(msgspec.Struct, frozen=True):
    result: _Nodes


class NodesAnswer(msgspec.Struct, frozen=True):
    """The answer of ``/api/v0/nodes``."""

    data: _NodesData

    @property
    def nodes(self) -> list[RayNode]:
        """Return the nodes, dead ones too."""
        return self.data.result.result


class StateSnapshot(msgspec.Struct, frozen=True):
    """What the autoscaler thinks of a node."""

    state: str = ""


class Raylet(msgspec.Struct, frozen=True, rename="camel"):
    """Ray's own process on a node."""

    node_id: str = ""
    node_type_name: str = ""
    instance_type_name: str = ""
    state_snapshot: StateSnapshot = StateSnapshot()


class Gpu(msgspec.Struct, frozen=True, rename="camel"):
    """A graphics processor, in MiB and per cent."""

    memory_total: float = 0.0
    memory_used: float = 0.0
    utilization_gpu: float | None = None


class DiskUse(msgspec.Struct, frozen=True):
    """A file system, in bytes."""

    total: float = 0.0
    used: float = 0.0


class RayNodeStats(
    msgspec.Struct, frozen=True, rename={"boot_time": "bootTime", "network_speed": "networkSpeed"}
):
    """One entry of ``/nodes?view=summary``: what is measured on a node."""

    raylet: Raylet = Raylet()
    cpu: float = 0.0
    """Per cent of all cores of the machine."""
    mem: tuple[float, ...] = ()
    """Bytes: total, available, per cent, used."""
    gpus: list[Gpu] | None = None
    disk: dict[str, DiskUse] | None = None
    boot_time: float | None = None
    network_speed: tuple[float, ...] = ()
    """Bytes per second: sent, received."""


class _SummaryData(msgspec.Struct, frozen=True):
    summary: list[RayNodeStats]


class SummaryAnswer(msgspec.Struct, frozen=True):
    """The answer of ``/nodes?view=summary``."""

    data: _SummaryData


class _FilesData(msgspec.Struct, frozen=True):
    result: dict[str, list[str]]


class FilesAnswer(msgspec.Struct, frozen=True):
    """The answer of ``/api/v0/logs``: names by what Ray takes the files for."""

    data: _FilesData


class Ended(msgspec.Struct, frozen=True, kw_only=True):
    """How an allocation ended, as its wrapper recorded it."""

    exit_code: int | None
    ending: str
    ended_at: float
    detail: str = ""


class RayReport(msgspec.Struct, frozen=True, kw_only=True):
    """What the runner on the node tells of its allocation; see ``node.report``."""

    started_at: float | None
    step: str
    log_bytes: int
    log_starts: list[int]
    meters: dict[str, int]
    last_minute: int
    ended: Ended | None


class ReportReading(msgspec.Struct, frozen=True):
    """What was read of a report: it, or that there is none."""

    report: RayReport | None = None
    certain: bool = True
    """False: the node did not answer, so that the report may be older than what it says now."""
