"""The nouns of plugins: how they are registered, what is known of them."""

from enum import StrEnum
from typing import Annotated, Any

import msgspec

from yunhe.infrastructure.contract.kind import Check
from yunhe.infrastructure.contract.manifest import FieldMapping, PluginLimits
from yunhe.infrastructure.contract.model import Power
from yunhe.kernel.validation import SECRET

__all__ = [  # with a word of the contract that the doors speak too
    "AllowedFolder",
    "Check",
    "Heartbeat",
    "InstanceState",
    "Plugin",
    "PluginInstance",
    "PluginProcess",
    "PluginState",
    "Registration",
]


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


class AllowedFolder(msgspec.Struct, frozen=True, kw_only=True):
    """A folder of the server's machine that plugins may be started from."""

    directory: str
    allowed_at: float
    allowed_by: str


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
    uid: int | None = None
    """The user it runs as; without one it runs as the server's own user, who is not root and can choose no other."""


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
    admin_options: tuple[str, ...] = ()
    """Those of them that only an administrator may set: they run programs, or read files of the server."""
    powers: tuple[Power, ...] = ()
    missing: dict[Power, str] = {}
    limits: PluginLimits
    fields: tuple[FieldMapping, ...] = ()
    instances: tuple[PluginInstance, ...] = ()
    processes: tuple[PluginProcess, ...] = ()
    pools: tuple[str, ...] = ()
    """Names of the pools of this kind."""
