"""The table of modules: ten modules, 24 sub-modules, which of them are built, and what each needs."""

from graphlib import TopologicalSorter

import msgspec


class SubModule(msgspec.Struct, frozen=True):
    """The unit of packaging: one folder, one typed interface."""

    name: str
    folder: str
    built: bool = False
    needs: tuple[str, ...] = ()
    """Other sub-modules whose interface this one calls."""


class Module(msgspec.Struct, frozen=True):
    """A group of sub-modules in one layer."""

    name: str
    layer: str
    submodules: tuple[SubModule, ...]


MODULES: tuple[Module, ...] = (
    Module(
        "interconnection",
        "trading",
        (
            SubModule("inbound", "trading/interconnection"),
            SubModule("outbound", "trading/interconnection"),
        ),
    ),
    Module(
        "trade",
        "trading",
        (
            SubModule("market", "trading/market"),
            SubModule("applications", "trading/applications", True, ("accounts", "demand", "orchestration")),
            SubModule("demand", "trading/demand", True),
            SubModule("matching", "trading/matching"),
        ),
    ),
    Module(
        "operations",
        "trading",
        (
            SubModule("accounts", "trading/accounts", True),
            SubModule("schedulers", "trading/schedulers"),
            SubModule("trades", "trading/trades", True, ("perception",)),
            SubModule("monitoring", "trading/monitoring"),
        ),
    ),
    Module(
        "encapsulation",
        "scheduling",
        (
            SubModule("perception", "scheduling/perception", True, ("plugins",)),
            SubModule("packaging", "scheduling/packaging"),
        ),
    ),
    Module(
        "decision",
        "scheduling",
        (
            SubModule("orchestration", "scheduling/orchestration", True, ("perception", "plugins")),
            SubModule("traffic", "scheduling/traffic"),
            SubModule("data", "scheduling/data"),
        ),
    ),
    Module(
        "multicloud",
        "control",
        (
            SubModule("plugins", "control/plugins", True),
            SubModule("measurement", "control/measurement"),
            SubModule("frameworks", "control/frameworks"),
            SubModule("express", "control/express"),
        ),
    ),
    Module("multinetwork", "control", (SubModule("networks", "control/networks"),)),
    Module("identifier", "infrastructure", (SubModule("identifier", "infrastructure/identifier"),)),
    Module("gateway", "infrastructure", (SubModule("gateway", "infrastructure/gateway"),)),
    Module(
        "operator_network",
        "infrastructure",
        (
            SubModule("elastic", "infrastructure/elastic"),
            SubModule("transport", "infrastructure/transport"),
        ),
    ),
)

SUBMODULES: dict[str, SubModule] = {sub.name: sub for module in MODULES for sub in module.submodules}


def start_order() -> tuple[str, ...]:
    """Return the built sub-modules, each after all it needs; stopping goes the other way."""
    graph = {sub.name: sub.needs for sub in SUBMODULES.values() if sub.built}
    return tuple(TopologicalSorter(graph).static_order())
