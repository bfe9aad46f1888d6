"""From a meter reading to a line of the ledger: pure."""

import msgspec

from yunhe.kernel.resources import Resources
from yunhe.scheduling.orchestration.events import AllocationMetered, Meters
from yunhe.trading.trades.model import Balance, LedgerEntry, PriceList, Quantities
from yunhe.trading.trades.price import amount_micros

DEFAULT_CURRENCY = "CNY"


def bill(
    reading: AllocationMetered, balance: Balance, prices: PriceList | None, at: float
) -> tuple[LedgerEntry, Balance]:
    """Return the unsealed line for what was used since *balance*, and the balance after it."""
    used = _used(reading.meters, reading.resources)
    to_ms = max(balance.to_ms, reading.meters.wall_ms)
    newly_used = _minus(used, balance.used)
    newly_reserved = _reserved(reading.resources, to_ms - balance.to_ms)
    tier = prices.tiers[reading.tier] if prices else None
    entry = LedgerEntry(
        seq=0,
        at=at,
        job_id=reading.job_id,
        allocation_id=reading.allocation_id,
        project_id=reading.project_id,
        pool_id=reading.pool_id,
        tier=reading.tier,
        price_version=prices.version if prices else 0,
        currency=prices.currency if prices else DEFAULT_CURRENCY,
        from_ms=balance.to_ms,
        to_ms=to_ms,
        used=newly_used,
        reserved=newly_reserved,
        amount_micros=amount_micros(newly_used, tier) if tier else 0,
        reserved_micros=amount_micros(newly_reserved, tier) if tier else 0,
        final=reading.final,
    )
    return entry, Balance(to_ms=to_ms, used=_at_least(used, balance.used))


def _used(meters: Meters, resources: Resources) -> Quantities:
    network = (
        None
        if meters.received_bytes is None or meters.sent_bytes is None
        else meters.received_bytes + meters.sent_bytes
    )
    return Quantities(
        cpu_us=meters.cpu_us,
        memory_mib_ms=meters.memory_mib_ms,
        io_bytes=meters.read_bytes + meters.written_bytes,
        network_bytes=network,
        # An accelerator is held whole for the whole time, used or not: nobody else can have it.
        accelerator_ms={a.kind: meters.wall_ms * a.milli // 1000 for a in resources.accelerators},
    )


def _reserved(resources: Resources, ms: int) -> Quantities:
    return Quantities(
        cpu_us=resources.cpu_millis * ms,
        memory_mib_ms=resources.memory_mib * ms,
        accelerator_ms={a.kind: ms * a.milli // 1000 for a in resources.accelerators},
    )


def _minus(now: Quantities, before: Quantities) -> Quantities:
    """Return what was added; a counter that went back (a lost journal) adds nothing."""
    network = None if now.network_bytes is None else max(0, now.network_bytes - (before.network_bytes or 0))
    return Quantities(
        cpu_us=max(0, now.cpu_us - before.cpu_us),
        memory_mib_ms=max(0, now.memory_mib_ms - before.memory_mib_ms),
        io_bytes=max(0, now.io_bytes - before.io_bytes),
        network_bytes=network,
        accelerator_ms={
            k: max(0, v - before.accelerator_ms.get(k, 0)) for k, v in now.accelerator_ms.items()
        },
    )


def _at_least(now: Quantities, before: Quantities) -> Quantities:
    added = _minus(now, before)
    return msgspec.structs.replace(
        now,
        cpu_us=before.cpu_us + added.cpu_us,
        memory_mib_ms=before.memory_mib_ms + added.memory_mib_ms,
        io_bytes=before.io_bytes + added.io_bytes,
        network_bytes=None
        if now.network_bytes is None
        else (before.network_bytes or 0) + (added.network_bytes or 0),
        accelerator_ms={**before.accelerator_ms, **now.accelerator_ms},
    )
