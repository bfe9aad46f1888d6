"""From a meter reading to lines of the ledger: pure.

A reading says what was used since the one before it, up to a minute ago or a whole outage. It is billed at the prices
of that time, not of the time of billing: where they changed in between, the reading is split in proportion to time.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise

import msgspec

from yunhe.kernel.ids import made_at_s
from yunhe.kernel.money import Prices
from yunhe.kernel.resources import Resources
from yunhe.scheduling.orchestration.jobs.events import AllocationMetered, Meters
from yunhe.trading.trades.model import Balance, LedgerEntry, PriceList, Quantities
from yunhe.trading.trades.price import amount_micros

DEFAULT_CURRENCY = "CNY"


class Stretch(msgspec.Struct, frozen=True):
    """Part of an allocation's wall time during which one price list was in force; None: nobody had set prices."""

    from_ms: int
    to_ms: int
    prices: PriceList | None


def began_at(reading: AllocationMetered, at: float) -> float:
    """Return when an allocation began, by its pool's clock as far as ours bears it out.

    It cannot have begun before it was placed, nor so late that what was read *at* a moment lies beyond it.
    """
    latest = at - reading.meters.wall_ms / 1000
    told = latest if reading.started_at is None else min(reading.started_at, latest)
    return max(told, made_at_s(reading.allocation_id))


def bill(
    reading: AllocationMetered, balance: Balance, book: Sequence[PriceList], at: float
) -> tuple[list[LedgerEntry], Balance]:
    """Return the unsealed lines for what was used since *balance*, one for each price, and the balance after them.

    *book* has the lists of the pool that were in force since then, oldest first.
    """
    used = _used(reading.meters, reading.resources)
    to_ms = max(balance.to_ms, reading.meters.wall_ms)
    newly_used = _minus(used, balance.used)
    began = began_at(reading, at)
    billed, entries = Quantities(), list[LedgerEntry]()
    for stretch in _stretches(balance.to_ms, to_ms, book, began):
        so_far = _share(newly_used, stretch.to_ms - balance.to_ms, to_ms - balance.to_ms)
        entries.append(_entry(reading, stretch, _minus(so_far, billed), began, at))
        billed = so_far
    entries[-1] = msgspec.structs.replace(entries[-1], final=reading.final)
    return entries, Balance(to_ms=to_ms, used=_at_least(used, balance.used))


def _stretches(from_ms: int, to_ms: int, book: Sequence[PriceList], began: float) -> Iterator[Stretch]:
    """Yield the time between two moments cut where the price changed; at least one, though no time has passed."""
    starts = [(round((prices.since - began) * 1000), prices) for prices in book]
    before = [prices for start_ms, prices in starts if start_ms <= from_ms]
    within = [(start_ms, prices) for start_ms, prices in starts if from_ms < start_ms < to_ms]
    cuts = [(from_ms, before[-1] if before else None), *within, (to_ms, None)]
    for (start_ms, prices), (end_ms, _) in pairwise(cuts):
        if end_ms > start_ms or from_ms == to_ms:  # of two lists published at once the later holds
            yield Stretch(start_ms, end_ms, prices)


def _entry(
    reading: AllocationMetered, stretch: Stretch, used: Quantities, began: float, at: float
) -> LedgerEntry:
    book = stretch.prices
    prices = book.tiers[reading.tier] if book else Prices()
    reserved = _reserved(reading.resources, stretch.to_ms - stretch.from_ms)
    return LedgerEntry(
        seq=0,
        at=at,
        job_id=reading.job_id,
        allocation_id=reading.allocation_id,
        project_id=reading.project_id,
        pool_id=reading.pool_id,
        tier=reading.tier,
        price_version=book.version if book else 0,
        prices=prices,
        currency=book.currency if book else DEFAULT_CURRENCY,
        began_at=began,
        from_ms=stretch.from_ms,
        to_ms=stretch.to_ms,
        used=used,
        reserved=reserved,
        amount_micros=amount_micros(used, prices),
        reserved_micros=amount_micros(reserved, prices),
        final=False,
    )


def _share(whole: Quantities, part_ms: int, whole_ms: int) -> Quantities:
    """Return what falls to the first *part_ms* of *whole_ms*, in whole units."""
    if part_ms == whole_ms:
        return whole

    def cut(amount: int) -> int:
        return amount * part_ms // whole_ms

    return Quantities(
        cpu_us=cut(whole.cpu_us),
        memory_mib_ms=cut(whole.memory_mib_ms),
        io_bytes=cut(whole.io_bytes),
        network_bytes=None if whole.network_bytes is None else cut(whole.network_bytes),
        accelerator_ms={kind: cut(ms) for kind, ms in whole.accelerator_ms.items()},
    )


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
