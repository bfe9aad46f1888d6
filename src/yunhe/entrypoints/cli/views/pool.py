"""All that is known of one pool, as people read it."""

from rich.console import Group, RenderableType
from rich.text import Text

from yunhe.control.pools.model import Account, Catalogue, FactList, Pool
from yunhe.entrypoints.cli.terminal.screen import amount, table
from yunhe.entrypoints.cli.views.facts import facts_table
from yunhe.entrypoints.cli.views.plan import where
from yunhe.entrypoints.cli.views.pools import prices_table, reserved, standing, total, used
from yunhe.kernel.money import show_money
from yunhe.trading.trades.model import PriceList

SHOWN_NODES = 3
NO_PRICES = "prices: nobody has said what this pool charges."


def pool_page(pool: Pool, prices: PriceList | None, facts: FactList) -> RenderableType:
    """Return who we are to a pool, what it has, lets us have and asks for it, and what it can do and why not."""
    parts: list[RenderableType] = [*_head(pool)]
    parts += _account(pool.account) if pool.account is not None else []
    parts += _catalogue(pool.catalogue) if pool.catalogue is not None else []
    parts += [Text(), prices_table(prices) if prices is not None else Text(NO_PRICES)]
    parts += [Text(), facts_table(facts, nodes=SHOWN_NODES)]
    powers = [[power, "yes", ""] for power in pool.powers]
    powers += [[power, "no", why] for power, why in sorted(pool.missing.items())]
    parts += [Text(), table(["POWER", "", "WHY NOT"], powers)]
    if pool.guards:
        guards = [[guard.name, "kept" if guard.kept else "missing", guard.reason] for guard in pool.guards]
        parts += [Text(), table(["GUARD", "", "WHY NOT"], guards)]
    return Group(*parts)


def _head(pool: Pool) -> list[Text]:
    name = Text.assemble((pool.spec.name, "bold"), f"  {pool.spec.kind} {pool.spec.target}".rstrip(), "  ")
    lines = [name.append_text(standing(pool))]
    if pool.reason:
        lines.append(Text(pool.reason, style="red"))
    lines += [Text(notice, style="yellow") for notice in pool.notices]
    told = {
        "engine": f"{pool.engine} {pool.engine_version}".strip(),
        "where": where(pool),
        "has": f"{amount(total(pool))} on {len(pool.nodes)} node{'s' * (len(pool.nodes) != 1)}",
        "reserved": f"{amount(reserved(pool))} held by jobs, used or not; the rest is free",
        "used now": f"{amount(used(pool))} as measured, by jobs and by others",
        "limits": pool.limits,
        "projects": f"{pool.spec.only_project} alone" if pool.spec.only_project else pool.isolation,
    }
    return lines + [Text(f"{word}: {text}") for word, text in told.items() if text]


def _account(account: Account) -> list[RenderableType]:
    parts: list[RenderableType] = [Text(f"account: {account.identity}")]
    if account.quotas:
        rows = [
            [quota.name, f"{quota.limit:g}", "–" if quota.used is None else f"{quota.used:g}"]
            for quota in account.quotas
        ]
        parts += [Text(), table(["QUOTA", "LIMIT", "USED"], rows)]
    return parts


def _catalogue(catalogue: Catalogue) -> list[RenderableType]:
    if not catalogue.specs:
        return []
    rows = [
        [
            spec.name,
            spec.region or "–",
            amount(spec.resources),
            "any" if spec.count is None else str(spec.count),
            "unknown" if spec.price_micros_per_hour is None else show_money(spec.price_micros_per_hour),
        ]
        for spec in catalogue.specs
    ]
    return [Text(), table(["SIZE", "REGION", "EACH HAS", "COUNT", "LIST PRICE/h"], rows, flexible=(0, 1))]
