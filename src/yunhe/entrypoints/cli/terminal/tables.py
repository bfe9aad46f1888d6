"""Tables that fit where they are drawn."""

from collections.abc import Iterator, Sequence

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

GAP = 2
NARROWEST = 12
"""What a column that gives way keeps at least, so that a name is not broken into pieces."""


class FittingTable:
    """Columns give way onto more lines, or are cut with a sign; what then does not fit is left out and named."""

    def __init__(
        self,
        headings: Sequence[str],
        rows: Sequence[Sequence[str | Text]],
        *,
        flexible: Sequence[int],
        cut: Sequence[int] = (),
        expendable: Sequence[int] = (),
    ) -> None:
        self._headings = headings
        self._rows = rows
        self._flexible = {index % len(headings) for index in flexible}
        self._cut = set(cut)
        self._expendable = expendable

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Draw it as wide as there is room for."""
        kept = self._kept(options.max_width)
        drawn = Table(box=None, pad_edge=False, header_style="bold", padding=(0, GAP, 0, 0))
        for index in kept:
            one_line = index in self._cut or index not in self._flexible
            overflow = "ellipsis" if index in self._cut else "fold"
            least = self._least(index) if self._fits(kept, options.max_width) else None
            drawn.add_column(self._headings[index], no_wrap=one_line, overflow=overflow, min_width=least)
        for row in self._rows:
            drawn.add_row(*(row[index] for index in kept))
        yield drawn
        left_out = [heading for index, heading in enumerate(self._headings) if index not in kept]
        if left_out:
            yield Text(f"no room for {', '.join(left_out)}: --output json has everything", style="dim")

    def _kept(self, width: int) -> list[int]:
        """Return the columns there is room for; only the expendable are given up, in their order."""
        kept = list(range(len(self._headings)))
        for index in self._expendable:
            if self._fits(kept, width):
                break
            kept.remove(index)
        return kept

    def _fits(self, columns: list[int], width: int) -> bool:
        return sum(self._least(column) + GAP for column in columns) - GAP <= width

    def _least(self, column: int) -> int:
        widest = max(map(_width, self._cells(column)))
        return min(widest, NARROWEST) if column in self._flexible | self._cut else widest

    def _cells(self, column: int) -> Iterator[str | Text]:
        yield self._headings[column]
        for row in self._rows:
            yield row[column]


def _width(cell: str | Text) -> int:
    lines = (cell.plain if isinstance(cell, Text) else cell).splitlines() or [""]
    return max(map(cell_len, lines))
