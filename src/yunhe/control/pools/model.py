"""The nouns of pools: how they are registered, what is known of them."""

from enum import StrEnum

import msgspec

from yunhe.infrastructure.contract.engine import ExecSession
from yunhe.infrastructure.contract.kind import Check
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

__all__ = [  # the words of the contract that the layer above speaks too
    "Account",
    "Catalogue",
    "Check",
    "Ending",
    "ExecRequest",
    "ExecSession",
    "LaunchOrder",
    "LogChunk",
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
