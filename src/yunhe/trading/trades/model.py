"""The nouns of trades: prices by pool and tier, the ledger, and what is owed."""

import msgspec

from yunhe.kernel.ids import AllocationId, JobId, PoolId, ProjectId
from yunhe.kernel.money import Prices, Tier


class PriceList(msgspec.Struct, frozen=True, kw_only=True):
    """What one pool charges per tier, from a moment on."""

    pool_id: PoolId
    version: int
    since: float
    currency: str = "CNY"
    tiers: dict[Tier, Prices]


class Quantities(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Amounts in integers: of use, or of reservation over the same time."""

    cpu_us: int = 0
    memory_mib_ms: int = 0
    io_bytes: int = 0
    network_bytes: int | None = None
    accelerator_ms: dict[str, int] = {}


class Balance(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How far an allocation has been billed: everything up to here is in the ledger."""

    to_ms: int = 0
    used: Quantities = Quantities()


class LedgerEntry(msgspec.Struct, frozen=True, kw_only=True, tag="entry"):
    """One line of the ledger: what an allocation used since the line before it, and what that costs."""

    seq: int
    at: float
    job_id: JobId
    allocation_id: AllocationId
    project_id: ProjectId
    pool_id: PoolId
    tier: Tier
    price_version: int
    """Which of the pool's price lists; 0: nobody has set prices."""
    prices: Prices | msgspec.UnsetType = msgspec.UNSET
    """What that list charges in this tier: with the quantities below, anyone computes the amounts. Old lines have none."""
    currency: str
    began_at: float | msgspec.UnsetType = msgspec.UNSET
    """When the allocation began: which prices were in force depends on it."""
    from_ms: int
    to_ms: int
    """The stretch of the allocation's wall time that this line covers."""
    used: Quantities
    reserved: Quantities
    amount_micros: int
    """What is owed: the use, priced."""
    reserved_micros: int
    """What the reservation would have cost, for comparison."""
    final: bool
    digest: str = ""
    """SHA-256 of everything above, as canonical JSON."""
    previous: str = ""
    hash: str = ""
    """SHA-256 of ``previous`` and ``digest``: a change to any line breaks every line after it."""


class MaskedEntry(msgspec.Struct, frozen=True, kw_only=True, tag="masked"):
    """A line of somebody else: enough to follow the chain, nothing of what it says."""

    seq: int
    digest: str
    previous: str
    hash: str


LedgerLine = LedgerEntry | MaskedEntry


class CostLine(msgspec.Struct, frozen=True, kw_only=True):
    """What one job, project or pool has used and owes."""

    key: str
    name: str = ""
    tier: str = ""
    entries: int
    cpu_us: int
    memory_mib_ms: int
    io_bytes: int
    network_bytes: int | None
    amount_micros: int
    reserved_micros: int
    currency: str


class CostReport(msgspec.Struct, frozen=True, kw_only=True):
    """Costs grouped by job, project or pool, those billed last first."""

    by: str
    lines: tuple[CostLine, ...]
    count: int
    """How many lines there are in all; the amounts are the sums of all of them, whatever part is in this report."""
    amount_micros: int
    reserved_micros: int
    currency: str
    next_cursor: str | None = None
    """Where to go on; None: these are the last."""


class CostQuery(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Which costs, grouped how."""

    by: str = "job"
    """``job``, ``project`` or ``pool``."""
    projects: tuple[ProjectId, ...] | None = None
    job_id: JobId | None = None
    since: float | None = None
    until: float | None = None
    cursor: str | None = None
    limit: int = 100
