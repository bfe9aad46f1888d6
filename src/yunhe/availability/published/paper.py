"""The paper's instance and what it printed, as data.

Yan Z. et al., "High available intelligent computing interconnected and migration platform architecture
for Internet of computing power", Journal on Communications, 2025, doi 10.11959/j.issn.1000-436x.2025153.
"""

import itertools

MODULES: dict[str, tuple[str, ...]] = {
    "interconnection": ("inbound", "outbound"),
    "trade": ("market", "applications", "demand", "matching"),
    "operations": ("accounts", "schedulers", "trades", "monitoring"),
    "encapsulation": ("perception", "packaging"),
    "decision": ("orchestration", "traffic", "data"),
    "multicloud": ("plugins", "measurement", "frameworks", "express"),
    "multinetwork": ("networks",),
    "identifier": ("identifier",),
    "gateway": ("gateway",),
    "operator_network": ("elastic", "transport"),
}
"""Section 2.3: 10 modules with their 24 sub-modules, in the order of the text."""

AVAILABILITIES = ("0.9", "0.95", "0.99", "0.995", "0.999")
REQUIREMENTS = ("0.99", "0.999", "0.9995", "0.9999", "0.99999")
INSTANCES = 3
"""Section 5.1: two backups by default (two sites, three centres), so three instances."""

TABLE_1: dict[str, tuple[str, ...]] = {
    "none": ("84.50837", "97.50455", "99.97636", "99.99699", "99.99998"),
    "0.99": ("97.62740", "99.02747", "99.97636", "99.99699", "99.99998"),
    "0.999": ("97.62740", "99.70043", "99.97636", "99.99699", "99.99998"),
    "0.9995": ("97.62740", "99.70043", "99.97636", "99.99699", "99.99998"),
    "0.9999": ("97.62740", "99.70043", "99.99058", "99.99699", "99.99998"),
    "0.99999": ("97.62740", "99.70043", "99.99760", "99.99903", "99.99998"),
    "full": ("97.62740", "99.70043", "99.99760", "99.99970", "99.99999"),
    "FCA": ("79.28817", "96.15107", "99.95829", "99.99459", "99.99996"),
}
"""Availability of the platform in percent as printed: rows by method or requirement, columns by a."""

FIGURE_8 = (("one service, no backup", (4,), 1, "0.6561"), ("4 services", (1,) * 4, 2, "0.96"),
            ("2 services", (2, 2), 2, "0.93"), ("1 service", (4,), 2, "0.88"))  # fmt: skip
"""The trade module at a = 0.9: sizes of its services, instances of each, availability as printed."""

FIGURE_10_REQUIREMENT = "0.999"
"""Not stated in the paper; the only value of its grid for which all it says of Figure 10 holds."""


def dependency_links() -> tuple[tuple[str, str], ...]:
    """Return the links between sub-modules that the paper's text states, the input of FCA.

    Figure 3 is a picture and its matrix is not printed. The rule used: within a module the sub-modules
    are in series in the order listed (section 3.1); across modules a sentence of section 2.3 counts where
    it says what is exchanged with whom, a module standing for all its sub-modules and a function for the
    sub-module that has it. What is said of whole layers, and the foreign interface between control and
    infrastructure, links no two sub-modules of the platform.
    """
    m = MODULES
    stated = (
        # 2.3.1 interconnection connects to trade and operations: queries, accounts, settlement
        (m["interconnection"], m["trade"]),
        (m["interconnection"], ("accounts", "trades")),
        # 2.3.1 trade sends account and trade data to operations, which manages both
        (m["trade"], ("accounts", "trades")),
        # 2.3.1 demand gives scheduling its standard input; scheduler management runs its algorithms
        (("demand",), ("orchestration",)),
        (("schedulers",), ("orchestration",)),
        # 2.3.2 encapsulation sends state and task to decision
        (m["encapsulation"], m["decision"]),
        # 2.3.3 measurement supports decision and trade
        (("measurement",), m["decision"]),
        (("measurement",), m["trade"]),
        # 2.3.3 express executes the orders of data co-scheduling
        (("express",), ("data",)),
    )
    within = (pair for submodules in m.values() for pair in itertools.pairwise(submodules))
    across = (pair for left, right in stated for pair in itertools.product(left, right))
    return (*within, *across)
