"""The table of modules: ten modules, 24 sub-modules, which of them are built, and what each needs."""

from graphlib import TopologicalSorter

import msgspec


class SubModuleEntry(msgspec.Struct, frozen=True):
    """The unit of packaging: one folder, one typed interface."""

    name: str
    folder: str
    built: bool = False
    needs: tuple[str, ...] = ()
    """Other sub-modules whose interface this one calls."""


class ModuleEntry(msgspec.Struct, frozen=True):
    """A group of sub-modules in one layer."""

    name: str
    layer: str
    submodules: tuple[SubModuleEntry, ...]


MODULES: tuple[ModuleEntry, ...] = (
    ModuleEntry(
        "interconnection",
        "trading",
        (
            SubModuleEntry("inbound", "trading/interconnection"),
            SubModuleEntry("outbound", "trading/interconnection"),
        ),
    ),
    ModuleEntry(
        "trade",
        "trading",
        (
            SubModuleEntry("market", "trading/market"),
            SubModuleEntry(
                "applications", "trading/applications", True, ("accounts", "demand", "orchestration")
            ),
            SubModuleEntry("demand", "trading/demand", True),
            SubModuleEntry("matching", "trading/matching"),
        ),
    ),
    ModuleEntry(
        "operations",
        "trading",
        (
            SubModuleEntry("accounts", "trading/accounts", True),
            SubModuleEntry("schedulers", "trading/schedulers"),
            SubModuleEntry("trades", "trading/trades", True, ("perception",)),
            SubModuleEntry("monitoring", "trading/monitoring"),
        ),
    ),
    ModuleEntry(
        "encapsulation",
        "scheduling",
        (
            SubModuleEntry("perception", "scheduling/perception", True, ("plugins",)),
            SubModuleEntry("packaging", "scheduling/packaging"),
        ),
    ),
    ModuleEntry(
        "decision",
        "scheduling",
        (
            SubModuleEntry("orchestration", "scheduling/orchestration", True, ("perception", "plugins")),
            SubModuleEntry("traffic", "scheduling/traffic"),
            SubModuleEntry("data", "scheduling/data"),
        ),
    ),
    ModuleEntry(
        "multicloud",
        "control",
        (
            SubModuleEntry("plugins", "control/plugins", True),  # with control/pools, which scheduling calls
            SubModuleEntry("measurement", "control/measurement"),
            SubModuleEntry("frameworks", "control/frameworks"),
            SubModuleEntry("express", "control/express"),
        ),
    ),
    ModuleEntry("multinetwork", "control", (SubModuleEntry("networks", "control/networks"),)),
    ModuleEntry("identifier", "infrastructure", (SubModuleEntry("identifier", "infrastructure/identifier"),)),
    ModuleEntry("gateway", "infrastructure", (SubModuleEntry("gateway", "infrastructure/gateway"),)),
    ModuleEntry(
        "operator_network",
        "infrastructure",
        (
            SubModuleEntry("elastic", "infrastructure/elastic"),
            SubModuleEntry("transport", "infrastructure/transport"),
        ),
    ),
)

SUBMODULES: dict[str, SubModuleEntry] = {sub.name: sub for module in MODULES for sub in module.submodules}


def start_order() -> tuple[str, ...]:
    """Return the built sub-modules, each after all it needs; stopping goes the other way."""
    graph = {sub.name: sub.needs for sub in SUBMODULES.values() if sub.built}
    return tuple(TopologicalSorter(graph).static_order())
