"""The nouns of a decision: what is demanded, and the answer with its reasons."""

from enum import StrEnum

import msgspec

from yunhe.kernel.ids import JobId, NodeId, PoolId, ProjectId
from yunhe.kernel.money import Tier
from yunhe.kernel.places import Level, Place
from yunhe.kernel.resources import Resources


class Policy(StrEnum):
    """A named objective that decisions follow."""

    CHEAPEST = "cheapest"
    NEAREST = "nearest"
    FASTEST = "fastest"
    GREENEST = "greenest"
    LOWEST_LATENCY = "lowest-latency"
    BALANCED = "balanced"


class Domain(StrEnum):
    """What members are kept together in or apart over."""

    NODE = "node"
    POOL = "pool"
    REGION = "region"


class TransferMode(StrEnum):
    """How data is brought: as soon as possible, for as little as possible, or as the policy weighs it."""

    AUTO = "auto"
    FAST = "fast"
    CHEAP = "cheap"


class Alternative(msgspec.Struct, frozen=True, omit_defaults=True):
    """One way to satisfy a demand: an amount, and the pools it may come from (empty: any)."""

    resources: Resources
    pools: tuple[str, ...] = ()
    infra: str = ""
    """Only pools of a kind, or with this cloud's label, and in a region: ``aws/us-east-1``, ``ssh/NAME``; empty: any."""
    where: tuple[str, ...] = ()
    """Labels beside those of the demand."""
    interruptible: bool = False
    """May run on capacity that can be taken back, whether or not the others may."""
    tolerations: tuple[str, ...] = ()
    """Taints that are tolerated beside those of the demand."""
    up_to: Resources | None = None
    """The upper end of a range: taken as far as the chosen node has it free."""


class Spread(msgspec.Struct, frozen=True, omit_defaults=True):
    """At most so many members in any one domain; of a demand with one member, so many of each of its groups."""

    over: Domain = Domain.NODE
    at_most: int = 1


class Affinity(msgspec.Struct, frozen=True, omit_defaults=True):
    """Be where a member of a group runs, or (``apart``) where none does."""

    group: str
    over: Domain = Domain.NODE
    apart: bool = False


class DataNeed(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A dataset the work reads; what the demand says of it fills in what the snapshot does not know."""

    dataset: str
    size_mib: int | None = None
    replicas: tuple[str, ...] = ()
    mode: TransferMode = TransferMode.AUTO
    rate_mbps: float | None = None
    """Bandwidth to reserve for the transfer; None: whatever is left on the route, unreserved."""


class Traffic(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A steady flow between a site (where the users are) and the work."""

    site: str
    mbps: float
    max_latency_ms: float | None = None


class Demand(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A task made precise: what must hold wherever it runs, and what is preferred."""

    job_id: JobId
    project_id: ProjectId
    alternatives: tuple[Alternative, ...]
    ordered: bool = False
    """Whether an earlier alternative beats any later one (``ordered``) or the score decides (``any_of``)."""
    tier: Tier = Tier.HIGH
    policy: Policy = Policy.BALANCED
    weights: dict[str, float] = {}
    """Weight of each score term under ``balanced``; terms not named weigh as by default."""
    near: Place | None = None
    nodes: tuple[NodeId, ...] = ()
    """Only these, as a plan chose them; empty: any."""
    avoid_pools: tuple[PoolId, ...] = ()
    """Pools on which this job just failed for reasons of the pool."""
    priority: int = 0
    """Higher goes first."""

    members: int = 1
    """Equal parts that are placed all at once or not at all."""
    members_min: int | None = None
    """Fewer will do, down to this; None: all of them."""
    one_pool: bool = True
    """Whether the members must share a pool."""
    spread: Spread | None = None

    run_s: float | None = None
    """How long it runs on the reference machine; None: unknown, an hour is assumed where a total is needed."""
    interruptible: bool = False
    """May run on capacity that can be taken back, at its price."""
    deadline_at: float | None = None
    not_before: float | None = None
    """It is held until then, in seconds since the epoch; None: it may start at once."""
    budget_micros: int | None = None
    budget_per_hour_micros: int | None = None
    reliability_min: float | None = None
    """Probability of running to the end without a failure (of an hour, where ``run_s`` is unknown)."""
    max_latency_ms: float | None = None
    """Between ``near`` and the pool."""

    residency: tuple[str, ...] = ()
    """Regions that neither the work nor its data may leave; ``cn`` covers ``cn-north``. Empty: anywhere."""
    levels: tuple[Level, ...] = ()
    isa: tuple[str, ...] = ()
    tolerations: tuple[str, ...] = ()
    where: tuple[str, ...] = ()
    """Labels that pool or node must carry: ``disk=ssd``; ``zone!=b`` forbids one."""
    powers: tuple[str, ...] = ()
    """What the pool's engine must be able to do beyond the basics: ``images`` …"""
    affinity: tuple[Affinity, ...] = ()
    groups: tuple[str, ...] = ()
    """Groups this work belongs to; what the affinity of others is judged by."""

    data: tuple[DataNeed, ...] = ()
    traffic: tuple[Traffic, ...] = ()


def spreads_of(demand: Demand) -> tuple[Spread, ...]:
    """Return how members are kept apart: as asked, and by an affinity that keeps their own group apart."""
    apart = [Spread(one.over, 1) for one in demand.affinity if one.apart and one.group in demand.groups]
    return tuple(apart) if demand.spread is None else (demand.spread, *apart)


def demand_for(demand: Demand, alternative: Alternative) -> Demand:
    """Return *demand* as it holds for one of its alternatives: with the labels and tolerations of its own."""
    if not (alternative.where or alternative.interruptible or alternative.tolerations):
        return demand
    return msgspec.structs.replace(
        demand,
        where=(*demand.where, *alternative.where),
        tolerations=(*demand.tolerations, *alternative.tolerations),
        interruptible=demand.interruptible or alternative.interruptible,
    )


def group_spread(demand: Demand) -> Spread | None:
    """Return how many members of its groups a demand with one member allows in a domain; None: any number."""
    return demand.spread if demand.members == 1 and demand.groups else None


class ScoreTerm(StrEnum):
    """What a placement is scored by, in the order of the rows of the table of terms."""

    COST_PER_HOUR = "cost_per_hour"
    DATA_COST = "data_cost"
    ENERGY_COST = "energy_cost"
    EXTERNAL_COST = "external_cost"
    WAIT_S = "wait_s"
    DATA_S = "data_s"
    RUN_S = "run_s"
    EXTERNAL_S = "external_s"
    CARBON_G = "carbon_g"
    LATENCY_MS = "latency_ms"
    DISTANCE_KM = "distance_km"
    RISK = "risk"


class Rule(StrEnum):
    """The rules that refuse a pool or a node."""

    ACCEPTING = "accepting"  # the pool takes new work
    NAMED = "named"  # the pool is among those asked for
    FRESH = "fresh"  # the job did not just fail there
    SERVING = "serving"  # the pool serves the project
    RESIDENT = "resident"  # it lies where the data must stay
    LEVEL = "level"  # it is at a level asked for
    TOLERATED = "tolerated"  # its taints are tolerated
    ABLE = "able"  # its engine has the powers needed
    TOGETHER = "together"  # it agrees with what runs there
    ARCHITECTURE = "architecture"  # the instruction set fits
    LABELLED = "labelled"  # the labels fit
    AFFORDABLE = "affordable"  # the budget allows it
    TIMELY = "timely"  # the deadline allows it
    RELIABLE = "reliable"  # it is reliable enough
    REACHABLE = "reachable"  # its users are near enough
    KNOWN = "known"  # what the policy is named after is known of it
    LINKED = "linked"  # the network has a path with enough left
    ROOMY = "roomy"  # there is room


class Rejection(msgspec.Struct, frozen=True, omit_defaults=True):
    """Why a pool cannot take a demand: the rule that said no, and what it saw."""

    pool_id: PoolId
    pool_name: str
    rule: str
    detail: str
    miss: float = 0.0
    """How far from fitting, where that can be said: of the refusals of one rule, the least is the nearest miss."""


class Candidate(msgspec.Struct, frozen=True, omit_defaults=True):
    """A pool that could take the demand; a term that is unknown is None, never zero."""

    pool_id: PoolId
    pool_name: str
    node_id: NodeId
    alternative: int
    score: float
    """In units of the currency under ``balanced``; else the term that the policy is named after."""
    terms: dict[str, float | None]
    estimated: tuple[str, ...] = ()
    """Terms that rest on an assumption rather than on a measurement or a price list."""
    too_old: dict[str, str] = {}
    """Facts of the pool that were not weighed because they are too old, each with its age."""


class Assignment(msgspec.Struct, frozen=True, omit_defaults=True):
    """One part of a placement: this much, there."""

    pool_id: PoolId
    node_id: NodeId
    resources: Resources
    devices: tuple[int, ...] = ()
    """Which of the node's accelerators, counted from 0."""


class Route(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The way a flow takes through the network, and what it reserves there."""

    purpose: str
    """The site the traffic comes from."""
    sites: tuple[str, ...]
    mbps: float = 0.0
    latency_ms: float | None = None
    links: tuple[int, ...] = ()
    """Rows of the links it runs over; none where both ends share a site."""


class Transfer(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A dataset brought to the work: from which replica, over which way, how."""

    dataset: str
    sites: tuple[str, ...]
    """From the replica to the pool; a single one where the data is there already."""
    mode: TransferMode = TransferMode.AUTO
    seconds: float | None = None
    cost: float | None = None
    rate_mbps: float | None = None
    """Reserved on each link; None: best effort."""
    links: tuple[int, ...] = ()


class Placed(msgspec.Struct, frozen=True, tag="placed", kw_only=True):
    """The demand goes here."""

    assignments: tuple[Assignment, ...]
    score: float
    terms: dict[str, float | None]
    candidates: tuple[Candidate, ...]
    """Every pool that could have taken it, best first; the first was chosen. In a batch: the chosen one alone."""
    rejected: tuple[Rejection, ...]
    snapshot_version: int
    transfers: tuple[Transfer, ...] = ()
    routes: tuple[Route, ...] = ()
    omitted: tuple[str, ...] = ()
    """Terms that count under its policy, were asked for, and that no candidate knows: they decided nothing."""


class Waiting(msgspec.Struct, frozen=True, tag="waiting", kw_only=True):
    """Nowhere can take the demand now; each pool says why."""

    rejected: tuple[Rejection, ...]
    smallest_change: str
    """What would let it run, in one sentence; empty when nothing known would."""
    snapshot_version: int

    @property
    def nearest_first(self) -> tuple[Rejection, ...]:
        """The refusals, the nearest miss first: by how much room lacks, or a limit is missed; other rules; who was not asked."""
        limits = (Rule.AFFORDABLE, Rule.TIMELY, Rule.RELIABLE, Rule.REACHABLE)
        order: dict[str, int] = {Rule.ROOMY: 0, **dict.fromkeys(limits, 1), Rule.NAMED: 3}
        return tuple(sorted(self.rejected, key=lambda no: (order.get(no.rule, 2), no.miss)))


Decision = Placed | Waiting


class Part(msgspec.Struct, frozen=True):
    """One component of an app, and what must hold wherever it goes."""

    name: str
    demand: Demand


class Tie(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What flows between two components, from one to the other."""

    source: str
    target: str
    mbps: float = 0.0
    max_latency_ms: float | None = None
    same_node: bool = False


class GraphObjective(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What a placement of a graph is to be good at: how much each of three parts of its value counts."""

    nodes: float = 0.0
    """Balance of nodes: that no node becomes full."""
    links: float = 0.0
    """Balance of links between sites: that no link becomes full."""
    energy: float = 0.0
    """That nodes stay off, and those that are on draw little."""


class GraphValue(msgspec.Struct, frozen=True, kw_only=True):
    """What a placement of a graph is worth: each part from 0 to 1, and their weighted sum."""

    nodes: float
    links: float
    energy: float
    total: float


class GraphDemand(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """An app: components that are placed all together or not at all, and what flows between them."""

    parts: tuple[Part, ...]
    ties: tuple[Tie, ...] = ()
    objective: GraphObjective | None = None
    """None: as little bandwidth between sites as possible."""


class PartPlace(msgspec.Struct, frozen=True, kw_only=True):
    """Where a component goes."""

    name: str
    pool_id: PoolId
    pool_name: str
    node_id: NodeId
    resources: Resources


class TieRoute(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What a tie uses: the sites it passes, one where both ends share it, none where they share a node."""

    source: str
    target: str
    mbps: float = 0.0
    sites: tuple[str, ...] = ()
    latency_ms: float | None = None
    """Along the links between sites; None: unknown."""


class GraphPlaced(msgspec.Struct, frozen=True, tag="graph-placed", kw_only=True):
    """Where every component goes, and what every tie uses."""

    parts: tuple[PartPlace, ...]
    ties: tuple[TieRoute, ...]
    value: GraphValue | None = None
    """By the graph's objective, where it has one."""
    snapshot_version: int


class GraphWaiting(msgspec.Struct, frozen=True, tag="graph-waiting", kw_only=True, omit_defaults=True):
    """What stands in the way: of one component alone, with every pool's reasons, or of all together."""

    constraint: str
    detail: str
    part: str = ""
    rejected: tuple[Rejection, ...] = ()
    smallest_change: str = ""
    snapshot_version: int


Plan = Placed | Waiting | GraphPlaced | GraphWaiting
"""What a plan may come to: a decision, or one about a graph."""


class NodeAnswers(msgspec.Struct, frozen=True, kw_only=True):
    """What every node says to a job's demand now, and what one of them says."""

    snapshot_version: int
    taken_at: float
    refused: dict[str, dict[str, int]]
    """Pool → rule → how many nodes it refuses; a pool that is empty here could take it on any node."""
    node: str = ""
    """The one that was asked about: ``pool/node``."""
    refusal: Rejection | None = None
    """Why that one does not take it; None: it could, or none was asked about."""
