"""The platform of one process: every sub-module by its interface, as the doors see it."""

from collections.abc import Callable
from dataclasses import dataclass

from yunhe.control.plugins.interface import Plugins
from yunhe.control.pools.interface import Pools
from yunhe.observability.metrics import SampledMetrics
from yunhe.runtime.notary import Notary
from yunhe.runtime.settings import Settings
from yunhe.scheduling.orchestration.interface import Orchestration
from yunhe.scheduling.perception.interface import Perception
from yunhe.trading.accounts.interface import Accounts
from yunhe.trading.applications.interface import Applications
from yunhe.trading.trades.interface import Trades


@dataclass(frozen=True, slots=True, kw_only=True)
class Platform:
    """What a door may call."""

    settings: Settings
    metrics: SampledMetrics
    accounts: Accounts
    applications: Applications
    orchestration: Orchestration
    perception: Perception
    plugins: Plugins
    pools: Pools
    trades: Trades
    notary: Notary
    is_full: Callable[[], bool]
    """Whether the database has no room for new work."""
