"""What others may ask of trades."""

from collections.abc import AsyncIterator
from typing import Protocol

from yunhe.kernel.ids import PoolId, ProjectId
from yunhe.kernel.money import Prices, Tier
from yunhe.trading.trades.model import CostQuery, CostReport, LedgerLine, PriceList


class Trades(Protocol):
    """Owns the price book and the ledger."""

    async def check_prices(self, high: Prices) -> None:
        """Refuse prices that could not be published, before anything is done that should have them."""
        ...

    async def publish_prices(
        self, pool_id: PoolId, high: Prices, tiers: dict[Tier, Prices] | None = None
    ) -> PriceList:
        """Set what a pool charges from now on; medium and low follow from *high* unless given. High > medium > low holds per unit."""
        ...

    async def price_list(self, pool_id: PoolId) -> PriceList | None:
        """Return what a pool charges now; None: nobody has said."""
        ...

    async def costs(self, query: CostQuery) -> CostReport:
        """Return what was used and is owed."""
        ...

    def export(self, projects: tuple[ProjectId, ...] | None = None) -> AsyncIterator[LedgerLine]:
        """Yield the ledger from its first line; lines of other projects than *projects* are masked, their hashes intact."""
        ...
