"""What was used and is owed, as people read it."""

from collections.abc import Mapping
from types import MappingProxyType

from yunhe.entrypoints.cli.terminal.screen import bytes_text, symbol, table
from yunhe.entrypoints.cli.terminal.tables import FittingTable
from yunhe.kernel.money import CPU_US_PER_HOUR, MIB_MS_PER_GIB_HOUR, show_money
from yunhe.trading.trades.model import CostLine, CostReport

NO_NAMES: Mapping[str, str] = MappingProxyType({})


def costs_table(report: CostReport, names: Mapping[str, str] = NO_NAMES) -> FittingTable:
    """Return the lines of a cost report and the sum of all there are; *names* tells what a key is called."""
    rows = [_row(line, names) for line in report.lines]
    if report.count > 1:
        sign = symbol(report.currency)
        money = [show_money(report.amount_micros, sign), show_money(report.reserved_micros, sign)]
        total = "total" if report.count == len(rows) else f"total of {report.count}"
        rows.append([total, "", "", "", "", "", *money])
    head = [report.by.upper(), "TIER", "CORE-h", "GiB-h", "IO", "NETWORK", "COST", "IF RESERVED"]
    return table(head, rows, flexible=(0,), expendable=(4, 5, 1, 3, 2, 7))


def _row(line: CostLine, names: Mapping[str, str]) -> list[str]:
    sign = symbol(line.currency)
    return [
        names.get(line.key) or line.name or line.key,
        line.tier or "–",
        f"{line.cpu_us / CPU_US_PER_HOUR:.4f}",
        f"{line.memory_mib_ms / MIB_MS_PER_GIB_HOUR:.4f}",
        bytes_text(line.io_bytes),
        bytes_text(line.network_bytes),
        show_money(line.amount_micros, sign),
        show_money(line.reserved_micros, sign),
    ]
