"""The nouns of pools and plugins: how they are registered, what is known of them."""

from enum import StrEnum
from typing import Annotated, Any

import msgspec

from yunhe.infrastructure.contract.engine import ExecSession
from yunhe.infrastructure.contract.kind import Check
from yunhe.infrastructure.contract.manifest import FieldMapping, PluginLimits
from yunhe.infrastructure.contract.model import (
    Account,
    Catalogue,
    Ending,
    ExecRequest,
    LaunchOrder,
    LogChunk,
    Meters,
    Observation,
    Observed,
    Phase,
    Power,
    Step,
    UsageMinute,
)
from yunhe.kernel.ids import BlobId, NodeId, PoolId, ProjectId
from yunhe.kernel.money import Prices
from yunhe.kernel.places import Place
from yunhe.kernel.resources import Resources
from yunhe.kernel.validation import SECRET

__all__ = [  # the words of the contract that the layer above speaks too
    "Account",
    "Catalogue",
    "Check",
    "Ending",
    "ExecRequest",
    "ExecSession",
    "Heartbeat",
    "InstanceState",
    "LaunchOrder",
    "LogChunk",
    "Meters",
    "Mount",
    "Observation",
    "Observed",
    "Phase",
    "Plugin",
    "PluginInstance",
    "PluginProcess",
    "PluginState",
    "Pool",
    "PoolNode",
    "PoolSpec",
    "PoolState",
    "Power",
    "Registration",
    "Step",
    "UsageMinute",
]


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


class PoolNode(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A node as last seen."""

    id: NodeId
    pool_id: PoolId
    total: Resources
    used: Resources
    ready: bool = True
    reason: str = ""
    cordoned: bool = False
    """Takes no new work because an operator said so; what runs goes on."""
    seen_at: float


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
    added_at: float
    seen_at: float | None = None
    nodes: tuple[PoolNode, ...] = ()
    notices: tuple[str, ...] = ()
    account: Account | None = None
    """Who we are to the engine and what it lets us have."""
    catalogue: Catalogue | None = None
    """The regions and sizes it has or can make, with its owner's prices."""

    @property
    def standing(self) -> str:
        """Both what is so and what an operator wants, such as ``offline, drained``."""
        return f"{self.state}, drained" if self.drained else self.state


class Mount(msgspec.Struct, frozen=True, kw_only=True):
    """An uploaded archive to unpack in an allocation's directory before it starts."""

    path: str
    blob_id: BlobId
    size_bytes: int


class PluginState(StrEnum):
    """Whether pools of a plugin's kind can be reached."""

    ACTIVE = "active"
    STARTING = "starting"
    """The platform starts its process; it has not registered yet."""
    OFFLINE = "offline"


class InstanceState(StrEnum):
    """What a plugin's process is to the platform."""

    ACTIVE = "active"
    """The one that is called."""
    SUPERSEDED = "superseded"
    """Another of its plugin is newer: it is to finish what it began and leave."""
    OFFLINE = "offline"


class Registration(msgspec.Struct, frozen=True, kw_only=True):
    """What a plugin's process says of itself, first to register and then with every heartbeat."""

    manifest: dict[str, Any]
    """Its ``plugin.toml``; read as a whole only once its contract version is known to be one of ours."""
    address: str
    """``host:port`` where it serves the contract."""
    certificate: str
    """PEM; the platform trusts this one alone."""
    token: Annotated[str, SECRET]
    """What the platform shows when it calls; never comes out again."""


class Heartbeat(msgspec.Struct, frozen=True, omit_defaults=True):
    """The answer to a registration: come again within ``heartbeat_s``."""

    heartbeat_s: float
    state: InstanceState
    registered: bool = False
    """Whether this call was the first of the instance, or changed what is known of it."""


class PluginInstance(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One process of a plugin."""

    id: str
    version: str
    state: InstanceState
    address: str
    registered_at: float
    heartbeat_at: float


class PluginProcess(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A process that the platform itself started for a plugin."""

    instance: str
    version: str
    directory: str
    host: str
    pid: int | None = None
    restarts: int = 0
    leaving: bool = False
    reason: str = ""
    """Why it ended last."""


class Plugin(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A kind of engine that pools can be of: part of the platform, or processes of their own."""

    name: str
    version: str
    vendor: str
    summary: str
    state: PluginState
    reason: str = ""
    contract: int
    in_process: bool = False
    target: str = ""
    """What the word after the kind means in ``yunhe pool add``; empty: there is none."""
    options: dict[str, str] = {}
    powers: tuple[Power, ...] = ()
    missing: dict[Power, str] = {}
    limits: PluginLimits
    fields: tuple[FieldMapping, ...] = ()
    instances: tuple[PluginInstance, ...] = ()
    processes: tuple[PluginProcess, ...] = ()
    pools: tuple[str, ...] = ()
    """Names of the pools of this kind."""
