"""What was used and is owed, as people read it."""

from rich.table import Table

from yunhe.entrypoints.cli.screen import bytes_text, symbol, table
from yunhe.kernel.money import MIB_MS_PER_GIB_HOUR, show_money
from yunhe.trading.trades.model import CostLine, CostReport

CORE_US_PER_HOUR = 3_600_000_000


def costs_table(report: CostReport) -> Table:
    """Return the lines of a cost report and their sum."""
    rows = [_row(line) for line in report.lines]
    if len(rows) > 1:
        sign = symbol(report.currency)
        money = [show_money(report.amount_micros, sign), show_money(report.reserved_micros, sign)]
        rows.append(["total", "", "", "", "", "", *money])
    head = [report.by.upper(), "NAME", "CORE-h", "GiB-h", "IO", "NETWORK", "COST", "IF RESERVED"]
    return table(head, rows, flexible=1)


def _row(line: CostLine) -> list[str]:
    sign = symbol(line.currency)
    name = f"{line.name} ({line.tier})" if line.tier else line.name
    return [
        line.key,
        name or "–",
        f"{line.cpu_us / CORE_US_PER_HOUR:.4f}",
        f"{line.memory_mib_ms / MIB_MS_PER_GIB_HOUR:.4f}",
        bytes_text(line.io_bytes),
        bytes_text(line.network_bytes),
        show_money(line.amount_micros, sign),
        show_money(line.reserved_micros, sign),
    ]
