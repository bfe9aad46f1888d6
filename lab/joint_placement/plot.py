"""Lines over categories, as text for the terminal and as SVG for a page."""

import math
from collections.abc import Sequence
from typing import NamedTuple
from xml.sax.saxutils import escape

COLOURS = ("#0b7285", "#e8590c", "#5f3dc4", "#868e96")
MARKS = "●○△+"
WIDTH, HEIGHT, MARGIN = 760, 380, 60


class Line(NamedTuple):
    """A name and one value per category."""

    name: str
    values: list[float]


def _range(lines: Sequence[Line]) -> tuple[float, float]:
    values = [value for line in lines for value in line.values]
    return math.log10(max(min(values), 1e-9)), math.log10(max(values))


def terminal(lines: Sequence[Line], categories: Sequence[str], title: str, height: int = 14) -> str:
    """Return the lines as characters, on a logarithmic scale; of marks that meet, the first line's is shown."""
    low, high = _range(lines)
    column = max(len(name) for name in categories) + 2
    grid = [[" "] * (column * len(categories)) for _ in range(height)]
    for number in reversed(range(len(lines))):
        for place, value in enumerate(lines[number].values):
            share = (math.log10(max(value, 1e-9)) - low) / max(high - low, 1e-9)
            row = height - 1 - round(share * (height - 1))
            grid[row][place * column + column // 2] = MARKS[number % len(MARKS)]
    shown = [title, ""]
    for row, cells in enumerate(grid):
        value = 10 ** (high - row * (high - low) / (height - 1))
        shown.append(f"{value:>9.2f} │{''.join(cells)}")
    shown.append(" " * 10 + "└" + "─" * (column * len(categories)))
    shown.append(" " * 11 + "".join(name.center(column) for name in categories))
    shown.append("  ".join(f"{MARKS[i % len(MARKS)]} {line.name}" for i, line in enumerate(lines)))
    return "\n".join(shown)


def svg(lines: Sequence[Line], categories: Sequence[str], title: str) -> str:
    """Return the lines as SVG, on a logarithmic scale."""
    low, high = _range(lines)
    low, high = math.floor(low), math.ceil(high)
    inner_w, inner_h = WIDTH - 2 * MARGIN, HEIGHT - 2 * MARGIN

    def x(place: int) -> float:
        return MARGIN + inner_w * place / max(len(categories) - 1, 1)

    def y(value: float) -> float:
        return HEIGHT - MARGIN - inner_h * (math.log10(max(value, 1e-9)) - low) / max(high - low, 1)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        f'<text x="{MARGIN}" y="24" font-size="14">{escape(title)}</text>',
    ]
    for power in range(low, high + 1):
        level = y(10.0**power)
        parts.append(
            f'<line x1="{MARGIN}" x2="{WIDTH - MARGIN}" y1="{level:.1f}" y2="{level:.1f}" stroke="#dee2e6"/>'
            f'<text x="{MARGIN - 8}" y="{level + 4:.1f}" text-anchor="end">{10.0**power:g}</text>'
        )
    for place, name in enumerate(categories):
        parts.append(
            f'<text x="{x(place):.1f}" y="{HEIGHT - MARGIN + 18}" text-anchor="middle">{escape(name)}</text>'
        )
    for number, line in enumerate(lines):
        colour = COLOURS[number % len(COLOURS)]
        points = " ".join(f"{x(place):.1f},{y(value):.1f}" for place, value in enumerate(line.values))
        parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts.append(
            f'<text x="{MARGIN + 150 * number}" y="{HEIGHT - 14}" fill="{colour}">■ {escape(line.name)}</text>'
        )
    return "\n".join([*parts, "</svg>", ""])
