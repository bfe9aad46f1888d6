"""What use costs: pure arithmetic in integers, so that every party computes the same amount."""

from collections.abc import Set as AbstractSet
from itertools import pairwise

from yunhe.kernel.errors import FieldProblem, InvalidInputError
from yunhe.kernel.money import (
    BYTES_PER_GIB,
    CPU_US_PER_HOUR,
    MIB_MS_PER_GIB_HOUR,
    Prices,
    Tier,
    divide_up,
)
from yunhe.trading.trades.model import Quantities

MS_PER_HOUR = 3_600_000
DISCOUNT_PERCENT = {Tier.HIGH: 100, Tier.MEDIUM: 60, Tier.LOW: 30}
"""What a tier pays of the high price, where a pool says nothing else."""

_TIERS_DOWN = (Tier.HIGH, Tier.MEDIUM, Tier.LOW)


def amount_micros(quantities: Quantities, prices: Prices) -> int:
    """Return what *quantities* cost; each term is rounded half up once."""
    amount = divide_up(quantities.cpu_us * prices.cpu_core_hour_micros, CPU_US_PER_HOUR)
    amount += divide_up(quantities.memory_mib_ms * prices.memory_gib_hour_micros, MIB_MS_PER_GIB_HOUR)
    amount += divide_up(quantities.io_bytes * prices.io_gib_micros, BYTES_PER_GIB)
    amount += divide_up((quantities.network_bytes or 0) * prices.network_gib_micros, BYTES_PER_GIB)
    for kind, ms in quantities.accelerator_ms.items():
        amount += divide_up(ms * prices.accelerator_hour_micros.get(kind, 0), MS_PER_HOUR)
    return amount


def tier_prices(high: Prices, given: dict[Tier, Prices] | None = None) -> dict[Tier, Prices]:
    """Return the prices of every tier; those not given follow from *high*. Refuse a book that does not fall with the tier."""
    tiers = {Tier.HIGH: high}
    for tier in (Tier.MEDIUM, Tier.LOW):
        tiers[tier] = (given or {}).get(tier) or _discounted(high, DISCOUNT_PERCENT[tier])
    following = [tier for tier in tiers if tier not in (given or {}) and tier is not Tier.HIGH]
    small = _too_small(high, following[-1]) if following else {}
    problems = [*small.values(), *_not_falling(tiers, small.keys())]
    if problems:
        raise InvalidInputError(
            "Prices must fall with the tier: high > medium > low for every unit.",
            remedy="Fix the prices named, or leave medium and low out to have them follow from high.",
            fields=tuple(problems),
        )
    return tiers


def _discounted(high: Prices, percent: int) -> Prices:
    def cut(micros: int) -> int:
        return micros * percent // 100

    return Prices(
        cpu_core_hour_micros=cut(high.cpu_core_hour_micros),
        memory_gib_hour_micros=cut(high.memory_gib_hour_micros),
        io_gib_micros=cut(high.io_gib_micros),
        network_gib_micros=cut(high.network_gib_micros),
        accelerator_hour_micros={kind: cut(price) for kind, price in high.accelerator_hour_micros.items()},
    )


def units(prices: Prices) -> dict[str, int]:
    """Return every unit price by name."""
    named = {
        "cpu_core_hour_micros": prices.cpu_core_hour_micros,
        "memory_gib_hour_micros": prices.memory_gib_hour_micros,
        "io_gib_micros": prices.io_gib_micros,
        "network_gib_micros": prices.network_gib_micros,
    }
    return named | {f"accelerator_hour_micros.{k}": v for k, v in prices.accelerator_hour_micros.items()}


def _too_small(high: Prices, tier: Tier) -> dict[str, FieldProblem]:
    """Return the prices whose discount rounds to nothing: what is charged at all is not free by rounding."""
    least = -(-100 // DISCOUNT_PERCENT[tier])
    return {
        name: FieldProblem(
            f"{Tier.HIGH}.{name}",
            f"is too small to be discounted for tier {tier}: at least {least} millionths, or 0",
            str(micros),
        )
        for name, micros in units(high).items()
        if 0 < micros < least
    }


def _not_falling(tiers: dict[Tier, Prices], told: AbstractSet[str]) -> list[FieldProblem]:
    """Return where high > medium > low does not hold for a unit that any tier charges, but for units *told* of already."""
    charged = {name for prices in tiers.values() for name, micros in units(prices).items() if micros}
    problems: list[FieldProblem] = []
    for name in sorted(charged - told):
        micros = {tier: units(prices).get(name, 0) for tier, prices in tiers.items()}
        for upper, lower in pairwise(_TIERS_DOWN):
            if micros[lower] >= micros[upper]:
                reason = f"must be below the price of tier {upper} ({micros[upper]})"
                problems.append(FieldProblem(f"{lower}.{name}", reason, str(micros[lower])))
        if micros[Tier.LOW] < 0:  # the least of them: if it is not, none is
            problems.append(FieldProblem(f"low.{name}", "must not be negative", str(micros[Tier.LOW])))
    return problems
