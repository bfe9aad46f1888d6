"""The task spec: what a user writes in YAML. Names are SkyPilot's where the meaning is the same."""

import msgspec

from yunhe.kernel.money import Tier
from yunhe.kernel.places import Level
from yunhe.scheduling.decision.model import Domain, GraphObjective, Policy, ScoreTerm, Spread

SCORE_TERMS = tuple(ScoreTerm)
"""What ``weights`` may weigh: the terms decisions are scored by."""


class ResourceSpec(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """What a task needs, as people write it: ``cpus: 4+``, ``memory: 16GB``, ``accelerators: A100:2``."""

    cpus: str | float | None = None
    memory: str | float | None = None
    disk_size: str | float | None = None
    accelerators: str | dict[str, float] | None = None
    pool: str | None = None
    """Only this pool."""
    infra: str | None = None
    """Only pools of this kind, in this region, nodes in this zone: ``aws/us-east-1``, ``k8s``, ``*``."""
    where: tuple[str, ...] = ()
    """Labels that the pool or the node must have, beside the task's own."""
    use_spot: bool | None = None
    """SkyPilot's word for ``interruptible``."""
    any_of: tuple["ResourceSpec", ...] = ()
    """Alternatives; the policy chooses."""
    ordered: tuple["ResourceSpec", ...] = ()
    """Alternatives; the first that can be had is taken."""


class ServiceSpec(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Equal servers, each on a node of its own."""

    replicas: int = 1


class AffinitySpec(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """A group of jobs to be beside or apart from, and how near that is."""

    group: str
    over: Domain = Domain.NODE


class ComponentSpec(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """One part of an app; what it does not say it needs is as the task's own ``resources`` say."""

    name: str
    resources: ResourceSpec = ResourceSpec()


class LinkSpec(
    msgspec.Struct,
    frozen=True,
    omit_defaults=True,
    forbid_unknown_fields=True,
    rename={"source": "from", "target": "to"},
):
    """What flows between two components."""

    source: str
    target: str
    bandwidth: str | float | None = None
    latency: str | None = None
    """The longest that what flows may be under way."""
    same_node: bool = False


class PythonSpec(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True, kw_only=True):
    """The Python environment of a task."""

    version: str = ""
    """``3.12``; empty: whatever Python 3 the node has."""
    requirements: str | tuple[str, ...] = ()
    """A file of the job's directory, or the lines of one."""


class Task(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True, kw_only=True):
    """What to run, what it needs, what it may read and what it leaves."""

    name: str = ""
    resources: ResourceSpec = ResourceSpec()
    image: str = ""
    """A container image to run in; ``docker:NAME`` and ``NAME`` are the same."""
    network: str = ""
    """``none`` or ``host``; else one of its own, with a way out."""
    egress: tuple[str, ...] = ()
    """Blocks of addresses to which alone it may connect; empty: no list."""
    privileged: bool = False
    """Without the filter of system calls, with the host's devices."""
    runtime: str = ""
    """``sandboxed``: behind a kernel of its own."""
    workdir: str | None = None
    """A local directory; sent along and made the working directory."""
    envs: dict[str, str] = {}
    secrets: tuple[str, ...] = ()
    """Names of the project's secrets to find in the environment."""
    file_mounts: dict[str, str] = {}
    """Where in the job's directory → which local file or directory."""
    outputs: tuple[str, ...] = ()
    """Paths or patterns in the job's directory, kept after it ends."""
    python: PythonSpec | None = None
    """The Python environment that setup and run find."""
    setup: str = ""
    run: str
    retries: int = 0
    priority: int = 0
    """Higher goes first among the jobs that wait."""
    timeout: str | float | None = None
    grace: str | float | None = None
    """How long its programs have to save their work when it is ended, before they are forced."""
    log_limit: str | float | None = None
    """How much room its output has on the pool until the platform has fetched it."""
    separate_stderr: bool = False
    """Tell standard output and standard error apart in the log."""
    ports: tuple[int, ...] = ()
    """On which its programs listen, for ``yunhe forward``."""
    near: str | None = None
    """A place: ``cn-north``, ``cn-north@39.9,116.4`` or ``@39.9,116.4``."""
    level: Level | None = None
    """Only pools at this level: end, edge or central."""
    tier: Tier = Tier.HIGH
    policy: Policy = Policy.BALANCED
    weights: dict[str, float] = {}
    residency: tuple[str, ...] = ()
    where: tuple[str, ...] = ()
    tolerations: tuple[str, ...] = ()
    architecture: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    affinity: tuple[AffinitySpec, ...] = ()
    anti_affinity: tuple[AffinitySpec, ...] = ()
    spread: Spread | None = None
    duration: str | float | None = None
    deadline: str | float | None = None
    start_after: str | float | None = None
    budget_per_hour: float | None = None
    reliability: float | None = None
    interruptible: bool = False
    max_latency: str | None = None
    num_nodes: int = 1
    """Members that are placed together or not at all, each on a node of its own."""
    service: ServiceSpec | None = None
    components: tuple[ComponentSpec, ...] = ()
    links: tuple[LinkSpec, ...] = ()
    objective: GraphObjective | None = None
    """What the placement of the components is to be good at; none: as little bandwidth between sites as possible."""
    planned_only: dict[str, str] = {}
    """Fields of the file that were read and cannot be run yet → why, and what to do instead."""
