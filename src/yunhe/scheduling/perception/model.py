"""The facts a snapshot is built from; what is unknown is None, never zero."""

from enum import StrEnum

import msgspec

from yunhe.kernel.ids import JobId, NodeId, PoolId, ProjectId
from yunhe.kernel.money import Prices, Tier
from yunhe.kernel.places import Place
from yunhe.kernel.resources import Resources


class EnergyFacts(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What running work costs in power, and how clean that power is, hour by hour."""

    watts_per_core: float | None = None
    """What a busy core adds to what its node draws."""
    watts_idle: float | None = None
    """What one node draws when it does nothing."""
    pue: float = 1.0
    """Power drawn by the whole site for each watt of computing."""
    price_micros_per_kwh: int | None = None
    """Set where the pool passes its power bill on, on top of its prices."""
    carbon_from: float = 0.0
    """When the first entry of ``carbon_g_per_kwh`` begins, in seconds since the epoch."""
    carbon_g_per_kwh: tuple[float, ...] = ()
    """One entry per hour; beyond the last, the series repeats. Empty: unknown."""


class SpotFacts(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Capacity that may be taken back, and what it has cost lately."""

    price_ratio_history: tuple[float, ...]
    """Spot price ÷ listed price, one entry per day, oldest first."""
    interruptions_per_hour: float | None = None


class FreeSize(msgspec.Struct, frozen=True, omit_defaults=True):
    """One bar of the histogram of free sizes of a pool that hides its nodes."""

    free: Resources
    count: int
    isa: str = ""


class PoolFacts(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is known of one pool; what is unknown is None, never zero."""

    id: PoolId
    name: str
    kind: str = ""
    """Of its engine: ``host``, …; empty: unknown."""
    place: Place | None = None
    prices: dict[Tier, Prices] | None = None
    only_project: ProjectId | None = None
    """Set where the pool cannot keep projects apart and so serves just one."""
    accepts: bool = True
    """False while the pool drains or does not answer."""
    why_not: str = ""
    speed: float | None = None
    """Measured speed of one core or accelerator; the reference machine has 1.0."""
    reliability: float | None = None
    """Probability that an hour passes here without a failure."""
    wait_s: float | None = None
    """Expected time from being accepted to running, where there is room."""
    energy: EnergyFacts | None = None
    spot: SpotFacts | None = None
    labels: dict[str, str] = {}
    taints: tuple[str, ...] = ()
    """Work must tolerate each of these to come here: ``key`` or ``key=value``."""
    powers: tuple[str, ...] = ()
    """What its engine can do beyond the basics: ``images``, ``resize`` …"""
    missing: dict[str, str] = {}
    """Powers it does not have, each with its engine's reason; one that is in neither is not known of."""
    shapes: tuple[FreeSize, ...] = ()
    """Set where the pool hides its nodes and shows a histogram of free sizes instead."""
    site: str = ""
    """Where it meets the network; empty: a site of its own, of the pool's name."""
    relays: bool = False
    """Whether traffic of others may pass through its site."""
    too_old: dict[str, str] = {}
    """Facts that are unknown because they are too old, each with its age."""


class Device(msgspec.Struct, frozen=True, omit_defaults=True):
    """One accelerator of a node, as far as it is free."""

    kind: str
    free_milli: int
    memory_free_mib: int = 0


class NodeFacts(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is known of one node: what it has and what is not promised to anybody yet."""

    id: NodeId
    pool_id: PoolId
    total: Resources
    free: Resources
    devices: tuple[Device, ...] = ()
    """Each accelerator by itself; empty: assumed packed as tightly as ``free`` allows."""
    isa: str = ""
    """Instruction set: ``amd64``, ``arm64``, ``riscv64``. Empty: unknown."""
    labels: dict[str, str] = {}
    taints: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    """Groups of which members run here, each as often as it has members; what affinity and spread are judged by."""


class SiteFacts(msgspec.Struct, frozen=True, omit_defaults=True):
    """A point of the network that is no pool: an exchange, a router, where users are."""

    name: str
    region: str = ""
    relays: bool = True


class LinkFacts(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A measured path between two sites. Parallel links are allowed: a fast line and a cheap one."""

    source: str
    target: str
    bandwidth_mbps: float | None = None
    latency_ms: float | None = None
    loss: float | None = None
    price_micros_per_gib: int | None = None
    reliability: float | None = None
    free_mbps: float | None = None
    """What is not promised yet; None: all of it."""
    both_ways: bool = True
    """Traffic of either direction shares the bandwidth; False: from source to target only."""


class DatasetFacts(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A dataset: how large, where its replicas are, where it may legally go."""

    name: str
    size_mib: int
    replicas: tuple[str, ...]
    """Names of pools or sites that hold a whole copy."""
    stay_in: tuple[str, ...] = ()
    """Regions that neither the data nor any route may leave; empty: anywhere."""


class ExternalScore(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What somebody outside has to say of a pool, in money and seconds, until it expires."""

    name: str
    pool_id: PoolId
    valid_until: float
    cost: float = 0.0
    """In units of the currency, per placement."""
    seconds: float = 0.0


class Reservation(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Room promised by a decision that its pool does not show as taken yet."""

    job_id: JobId
    pool_id: PoolId
    node_id: NodeId
    """Empty where the pool hides its nodes: any node of it that has the room."""
    resources: Resources
    expires_at: float
    devices: tuple[int, ...] = ()


class TypicalAsk(msgspec.Struct, frozen=True, omit_defaults=True):
    """One size that work here usually has, and how often; what packing prepares for."""

    resources: Resources
    share: float


class FactBounds(msgspec.Struct, frozen=True, kw_only=True):
    """The age from which on decisions do not know a fact any more."""

    look_s: float = 60.0
    """For what engines and agents report and measure; pools are looked at every 1.5 s."""
    feed_s: float = 3600.0
    """For what feeds report; they are read four times as often."""
    told_s: float = 365 * 86400.0
    """For what operators told."""


class VertexKind(StrEnum):
    """What a vertex of the graph of resources is."""

    CLUSTER = "cluster"
    """A pool, of whatever engine."""
    NODE = "node"
    RESOURCE = "resource"


class Vertex(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A cluster, a node or one resource of a node: what it always is, and how it is now."""

    id: str
    kind: VertexKind
    name: str
    state: str = ""
    """Of a cluster or node: ``ready``, ``ready, drained``, ``cordoned``, ``offline`` …"""
    reason: str = ""
    attributes: dict[str, str] = {}
    """What does not change from look to look: engine, version, region, powers …"""
    unit: str = ""
    """Of the amounts: ``millicores``, ``MiB``, ``thousandths``."""
    total: int | None = None
    used: int | None = None
    """Measured now, ours and others'."""
    seen_at: float | None = None


class Edge(msgspec.Struct, frozen=True):
    """That one vertex has another."""

    source: str
    target: str


class ResourceGraph(msgspec.Struct, frozen=True, kw_only=True):
    """How clusters, nodes and resources belong together: a forest, each cluster a root."""

    taken_at: float
    vertices: tuple[Vertex, ...]
    edges: tuple[Edge, ...]
