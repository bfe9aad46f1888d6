"""The nouns of pools: how they are registered, what is known of them."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Self

import msgspec

from yunhe.infrastructure.contract.engine import ExecSession, ForwardSession
from yunhe.infrastructure.contract.kind import Check
from yunhe.infrastructure.contract.model import (
    Account,
    Catalogue,
    Ending,
    ExecRequest,
    FileSystem,
    GuardReport,
    LaunchOrder,
    LogChunk,
    LogMark,
    Meters,
    NodeSystem,
    Observation,
    Observed,
    Phase,
    Power,
    PythonNeed,
    Step,
    Throughput,
    UsageMinute,
)
from yunhe.kernel.carbon import CarbonSeries
from yunhe.kernel.ids import BlobId, NodeId, PoolId, ProjectId
from yunhe.kernel.money import Prices
from yunhe.kernel.places import Place
from yunhe.kernel.resources import Resources

__all__ = [  # the words of the contract that the layer above speaks too
    "Account",
    "Catalogue",
    "Check",
    "Ending",
    "ExecRequest",
    "ExecSession",
    "Fact",
    "FactChanges",
    "FactList",
    "FactSource",
    "ForwardSession",
    "KnownFact",
    "LaunchOrder",
    "LogChunk",
    "LogMark",
    "Meters",
    "Mount",
    "Observation",
    "Observed",
    "Phase",
    "Pool",
    "PoolNode",
    "PoolSpec",
    "PoolState",
    "Power",
    "PythonNeed",
    "Step",
    "UsageMinute",
]


class FactSource(StrEnum):
    """Where a fact comes from."""

    TOLD = "told"
    """By an operator."""
    REPORTED = "reported"
    """By the engine, the node's agent or a feed."""
    MEASURED = "measured"
    """By us, or by a node's own counters."""


class Fact(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One thing that is known of a pool."""

    value: Any
    source: FactSource
    at: float
    """When it was last told, reported or measured."""
    problem: str = ""
    """Why it could not be brought up to date, if it could not."""


class FactChanges(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What an operator says of a pool; what is not said stays as it is."""

    speed: float | None = None
    """Speed of one core; the reference core has 1.0."""
    watts_idle: float | None = None
    """Power that one node draws when it does nothing."""
    watts_full: float | None = None
    """Power that one node draws with every core busy."""
    pue: float | None = None
    """Power drawn by the whole site for each watt of computing."""
    energy_price_micros_per_kwh: int | None = None
    """Set where the pool passes its power bill on, on top of its prices."""
    carbon: CarbonSeries | None = None
    reliability: float | None = None
    """Probability that an hour passes without a failure."""
    wait_s: float | None = None
    """Expected time from being accepted to running, where there is room."""
    place: Place | None = None
    site: str | None = None
    """Where it meets the network; pools of one site share it."""
    labels: dict[str, str] | None = None
    """Added to the labels that are there."""
    taints: tuple[str, ...] | None = None
    """``key`` or ``key=value``; work must tolerate each. They replace those that are there."""
    unset: tuple[str, ...] = ()
    """Facts to forget: ``speed``, ``carbon`` …, or one label: ``labels.KEY``."""

    @classmethod
    def of(cls, facts: Mapping[str, Fact]) -> Self:
        """Return the values of *facts*, each with its type."""
        return msgspec.convert({name: fact.value for name, fact in facts.items()}, cls)


class KnownFact(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A fact as it stands now, for people and programs to read."""

    node: str = ""
    """The node it is about; empty: the pool."""
    name: str
    value: Any
    source: FactSource
    age_s: float
    bound_s: float
    """From which age on decisions do not know it."""
    known: bool = True
    """Whether decisions know it; False: it is too old."""
    problem: str = ""
    """Why it could not be brought up to date."""


class FactList(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that is known of a pool and its nodes."""

    pool: str
    taken_at: float
    facts: tuple[KnownFact, ...]


class PoolState(StrEnum):
    """Whether a pool answers."""

    CONNECTING = "connecting"
    """Registered; its agent has not shaken hands yet."""
    READY = "ready"
    OFFLINE = "offline"
    """Does not answer; what runs there is believed to go on."""


class PoolSpec(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What an operator says to add a pool."""

    name: str
    kind: str
    """``local``, ``ssh`` or another registered plugin."""
    target: str = ""
    """Where it is, in the words of the kind: for SSH ``user@host`` or an alias of the SSH configuration."""
    options: dict[str, str] = {}
    """What the kind's manifest declares: ``port``, ``identity``, ``root`` …"""
    place: Place | None = None
    prices: Prices | None = None
    only_project: ProjectId | None = None
    facts: FactChanges | None = None
    """What else is known of it; said when it is added, changed with ``pool set``."""


class NodeAbout(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a node is, as its agent or engine reports it; it rarely changes."""

    isa: str = ""
    """Instruction set: ``amd64``, ``arm64``, ``riscv64`` …; empty: not known."""
    labels: dict[str, str] = {}
    taints: tuple[str, ...] = ()
    system: NodeSystem | None = None


class NodeLive(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is measured on a node with every look, beside what it uses."""

    file_systems: tuple[FileSystem, ...] = ()
    throughput: Throughput | None = None


class PoolNode(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A node as last seen."""

    id: NodeId
    pool_id: PoolId
    total: Resources
    used: Resources
    reserved: Resources = Resources()
    """What jobs of the platform hold there, used or not; told where pools are shown."""
    ready: bool = True
    reason: str = ""
    cordoned: bool = False
    """Takes no new work because an operator said so; what runs goes on."""
    seen_at: float
    about: NodeAbout = msgspec.field(default_factory=NodeAbout)
    live: NodeLive = msgspec.field(default_factory=NodeLive)


class Pool(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A registered pool and what is known of it."""

    id: PoolId
    spec: PoolSpec
    state: PoolState
    reason: str = ""
    drained: bool = False
    """Takes no new work because an operator said so, whether it answers or not; what runs goes on."""
    engine: str = ""
    engine_version: str = ""
    powers: tuple[str, ...] = ()
    missing: dict[str, str] = {}
    isolation: str = ""
    limits: str = ""
    network_metered: bool = False
    guards: tuple[GuardReport, ...] = ()
    """What is kept between tasks here, and between a task and its host; what is not has a reason."""
    added_at: float
    seen_at: float | None = None
    nodes: tuple[PoolNode, ...] = ()
    notices: tuple[str, ...] = ()
    account: Account | None = None
    """Who we are to the engine and what it lets us have."""
    catalogue: Catalogue | None = None
    """The regions and sizes it has or can make, with its owner's prices."""
    facts: dict[str, Fact] = {}
    """What operators told of it, and what feeds and measurements say, by name."""

    @property
    def standing(self) -> str:
        """Both what is so and what an operator wants, such as ``offline, drained``."""
        state = "unfit" if self.unfit else self.state
        return f"{state}, drained" if self.drained else state

    @property
    def unfit(self) -> bool:
        """Whether it answers and none of its nodes can take work; ``reason`` says what they lack."""
        return self.state is PoolState.READY and bool(self.nodes) and not any(n.ready for n in self.nodes)


class Mount(msgspec.Struct, frozen=True, kw_only=True):
    """An uploaded archive to unpack in an allocation's directory before it starts."""

    path: str
    blob_id: BlobId
    size_bytes: int
