"""What passes between the platform and an engine."""

from enum import StrEnum

import msgspec

from yunhe.kernel.confinement import Confinement
from yunhe.kernel.ids import AllocationId, NodeId, ProjectId
from yunhe.kernel.places import Place
from yunhe.kernel.resources import Resources

CONTRACT_VERSION = 1


class Power(StrEnum):
    """What an engine may be able to do beyond the basics; each is a small protocol of its own."""

    RESIZE = "resize"
    PIN = "pin"
    PAUSE = "pause"
    FILES = "files"
    EXEC = "exec"
    FORWARD = "forward"
    """Connects to a port inside a running allocation."""
    IMAGES = "images"
    """Runs an allocation in a container of ``LaunchOrder.image``."""
    GANG = "gang"
    SERVICES = "services"
    CHECKPOINT = "checkpoint"
    VOLUMES = "volumes"


class Isolation(StrEnum):
    """How far an engine keeps projects apart."""

    PER_PROJECT = "per-project"
    """Each project has its own unprivileged user and directory."""
    ONE_PROJECT = "one-project"
    """Everything runs as one user: the pool may serve one project only."""


class GuardReport(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One promise of isolation: kept on this engine, or not and why."""

    name: str
    kept: bool
    reason: str = ""


class Description(msgspec.Struct, frozen=True, kw_only=True):
    """What an engine is and can do; it does not change while the engine runs one version."""

    engine: str
    version: str
    contract: int = CONTRACT_VERSION
    powers: frozenset[Power] = frozenset()
    missing: dict[str, str] = {}
    """Each power that is not there, with a sentence saying why."""
    isolation: Isolation = Isolation.PER_PROJECT
    limits: str = ""
    """How limits are kept: ``cgroup v1``, ``cgroup v2``, ``rlimits and nice`` …"""
    network_metered: bool = False
    guards: tuple[GuardReport, ...] = ()
    """What is kept between tasks, and between a task and its host; empty: the engine does not say."""
    permits: tuple[str, ...] = ()
    """What tasks may ask for in ``Confinement``: ``network``, ``host-network``, ``privileged``, ``sandboxed``."""


class NodeSystem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a node is; it changes when the node is booted anew."""

    os: str = ""
    kernel: str = ""
    cpu_model: str = ""
    cpu_flags: str = ""
    """As Linux lists them, with a blank between."""
    booted_at: float | None = None


class FileSystem(msgspec.Struct, frozen=True, kw_only=True):
    """A mounted file system of a node."""

    path: str
    type: str
    total_mib: int
    free_mib: int


class Throughput(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Bytes per second of the whole node since the last measurement; None: not measured."""

    received_bytes_per_s: float | None = None
    sent_bytes_per_s: float | None = None
    read_bytes_per_s: float | None = None
    written_bytes_per_s: float | None = None


class Node(msgspec.Struct, frozen=True, kw_only=True):
    """A machine inside a pool, as far as the engine lets us see it."""

    id: NodeId
    total: Resources
    used: Resources
    """Measured use now, ours and others' (the water level), not what is promised."""
    ready: bool = True
    reason: str = ""
    isa: str = ""
    """Instruction set: ``amd64``, ``arm64``, ``riscv64`` …; empty: not known."""
    labels: dict[str, str] = {}
    """What the engine's owner says of the node, in the engine's own words."""
    taints: tuple[str, ...] = ()
    """``key`` or ``key=value``; only work that tolerates each is sent here."""
    system: NodeSystem | None = None
    file_systems: tuple[FileSystem, ...] = ()
    throughput: Throughput | None = None


class Inventory(msgspec.Struct, frozen=True, kw_only=True):
    """Everything an engine has, at a moment."""

    taken_at: float
    nodes: tuple[Node, ...]


class Region(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A part of an engine that can be asked for by name: a cloud's region, a cluster's zone, a partition."""

    name: str
    place: Place | None = None


class Spec(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A size of node an engine has or can make."""

    name: str
    region: str = ""
    resources: Resources
    count: int | None = None
    """How many there are; None: as many as one pays for."""
    price_micros_per_hour: int | None = None
    """What the engine's owner asks for one; None: no price is known, which is not free."""


class Catalogue(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What an engine could give, as against what it has now (``Inventory``)."""

    regions: tuple[Region, ...] = ()
    specs: tuple[Spec, ...] = ()


class Quota(msgspec.Struct, frozen=True, kw_only=True):
    """A limit on what our account may hold at once."""

    name: str
    """In the engine's words: ``requests.cpu``, ``MaxJobs`` …"""
    limit: float
    used: float | None = None


class Account(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Who we are to an engine, and how much it lets us have."""

    identity: str
    quotas: tuple[Quota, ...] = ()


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """A script of a task; the text goes to a file and is executed, it is never put on a command line."""

    name: str
    script: str


class PythonNeed(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A Python environment that must be there before the first step; its programs are first on the PATH."""

    version: str = ""
    """``3.12``, ``3.12.4``; empty: whatever Python 3 there is."""
    requirements: tuple[str, ...] = ()
    """Lines of a requirements file."""
    file: str = ""
    """The path of a requirements file in the allocation's directory; instead of lines."""


class LaunchOrder(msgspec.Struct, frozen=True, kw_only=True):
    """Begin this allocation. Everything but the scripts travels as argument or environment."""

    allocation_id: AllocationId
    token: int
    """Fencing token: whoever sends a higher one commands the allocation from then on."""
    project_id: ProjectId
    node_id: NodeId
    resources: Resources
    steps: tuple[Step, ...]
    """Run in order in the allocation's directory; the first that fails ends it."""
    image: str = ""
    """Container image to run in; an engine without ``Power.IMAGES`` refuses the order when there is one."""
    envs: dict[str, str] = {}
    secrets: dict[str, str] = {}
    """Environment of the steps that is never written to a disk, a journal or a log."""
    timeout_s: float | None = None
    grace_s: float = 10.0
    """How long its programs have after the polite signal before they are forced, where nobody says otherwise: after a
    timeout, or when the engine itself ends it. Steps find it in ``YUNHE_GRACE_S``."""
    log_limit_bytes: int = 64 * 1024 * 1024
    """How much room output has until it is fetched; beyond it the oldest goes. An engine may keep it compressed."""
    separate_stderr: bool = False
    """Tell the two outputs apart in the marks of the log; their order is then only as exact as their times."""
    disk_limit_bytes: int | None = None
    outputs: tuple[str, ...] = ()
    """Patterns that will be fetched after the end; an engine need keep nothing else of the directory until then."""
    confinement: Confinement | None = None
    """How far it is kept apart, where that is not as usual; only for engines that permit it."""
    python: PythonNeed | None = None
    """Which Python environment its steps find; only for engines that permit ``python``."""


class Phase(StrEnum):
    """Where an allocation is, as its engine sees it."""

    PREPARING = "preparing"
    """Files may have come; the launch has not."""
    STARTING = "starting"
    RUNNING = "running"
    PAUSED = "paused"
    EXITED = "exited"
    UNKNOWN = "unknown"
    """Claimed, but whether it ran cannot be said: the retry policy decides."""


class Ending(StrEnum):
    """How an allocation came to its end."""

    DONE = "done"
    """Every step ended by itself; see the exit code."""
    STOPPED = "stopped"
    TIMED_OUT = "timed-out"
    OUT_OF_MEMORY = "out-of-memory"
    DISK_FULL = "disk-full"
    PREEMPTED = "preempted"


class Meters(msgspec.Struct, frozen=True, kw_only=True):
    """What an allocation has used since it began: counters that only grow."""

    wall_ms: int = 0
    cpu_us: int = 0
    """From the kernel's own counter for the whole process tree, wherever it has one."""
    memory_mib_ms: int = 0
    """Resident memory integrated over time; a gap between samples counts at the lower of its two ends."""
    memory_peak_mib: int = 0
    read_bytes: int = 0
    written_bytes: int = 0
    received_bytes: int | None = None
    sent_bytes: int | None = None
    """None: this engine cannot count a task's network bytes (unmetered, not zero)."""
    gap_ms: int = 0
    """How much of the wall time no memory sample covers."""


class Observed(msgspec.Struct, frozen=True, kw_only=True):
    """What an engine knows of one allocation."""

    allocation_id: AllocationId
    phase: Phase
    token: int = 0
    node_id: NodeId | None = None
    step: str = ""
    exit_code: int | None = None
    ending: Ending | None = None
    started_at: float | None = None
    ended_at: float | None = None
    detail: str = ""
    resources: Resources | None = None
    meters: Meters = Meters()
    log_bytes: int = 0


class Observation(msgspec.Struct, frozen=True, kw_only=True):
    """What an engine knows of allocations, and the version to wait beyond.

    A change is another phase, step, token, node, limit, detail or ending; counters and output that grow are none, and
    come with the next change or when everything is asked for.
    """

    version: int
    allocations: tuple[Observed, ...]
    """Those that changed after ``since``, as they are now; every one still known where ``since`` is -1."""
    since: int = -1
    gone: tuple[AllocationId, ...] = ()
    """Those that were known at ``since`` and are not any more; none where everything is told."""
    notices: tuple[str, ...] = ()
    """What the operator should hear of: a quarantined journal tail, a full disk …"""


class LogMark(msgspec.Struct, frozen=True, array_like=True):
    """From byte *offset* on, up to the next mark, output came at this time from this stream."""

    offset: int
    at_ms: int
    stream: str = ""
    """``stdout``, ``stderr``, or empty where they are not told apart."""


class LogChunk(msgspec.Struct, frozen=True, kw_only=True):
    """A piece of an allocation's output; ``offset`` counts from its first byte ever, rotation or not."""

    offset: int
    data: bytes
    marks: tuple[LogMark, ...] = ()
    """Where its parts came from and when, the first at ``offset``; empty: the engine does not say."""


class UsageMinute(msgspec.Struct, frozen=True, kw_only=True):
    """One minute of one allocation, folded from one-second samples."""

    seq: int
    allocation_id: AllocationId
    minute: int
    """Minutes since the epoch."""
    samples: int
    cpu_mean_millis: float
    cpu_max_millis: float
    cpu_sketch: tuple[int, ...]
    """Seconds spent in each of 32 log-spaced bands of cpu use."""
    memory_mean_mib: float
    memory_max_mib: float
    read_bytes: int
    written_bytes: int
    received_bytes: int | None = None
    sent_bytes: int | None = None


class Upload(msgspec.Struct, frozen=True, kw_only=True):
    """An archive that must be in an allocation's directory before its launch."""

    allocation_id: AllocationId
    token: int
    project_id: ProjectId
    path: str
    """Where to unpack it, relative to the allocation's directory."""
    digest: str
    """SHA-256 of the archive, checked before anything is unpacked."""
    size_bytes: int
    resources: Resources = Resources()
    """What the allocation will have: the archive is unpacked within it. Empty: not known."""


class ExecRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A command to run beside an allocation, as its user, in its directory and limits."""

    argv: tuple[str, ...]
    tty: bool = False
    rows: int = 24
    columns: int = 80
