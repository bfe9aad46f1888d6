"""A plot of the frontier in plain characters: nines upwards, spending to the right."""

import math
from collections.abc import Sequence

WIDTH = 64
HEIGHT = 14


def plot_frontier(points: Sequence[tuple[float, float]], axis: str, target: float | None) -> str:
    """Return lines that show (x, unavailability) on a logarithmic scale; a line of dots marks the target."""
    nines = [-math.log10(max(unavailability, 1e-16)) for _, unavailability in points]
    goal = None if target is None else -math.log10(1 - target)
    shown = [*nines, *([goal] if goal is not None else [])]
    bottom, top = min(shown), max(shown)
    if top - bottom < 0.2:
        bottom, top = bottom - 0.1, top + 0.1
    left, right = points[0][0], max(points[-1][0], points[0][0] + 1)
    rows = [[" "] * WIDTH for _ in range(HEIGHT)]
    if goal is not None:
        rows[_row(goal, bottom, top)] = ["·"] * WIDTH
    for (x, _), y in zip(points, nines, strict=True):
        rows[_row(y, bottom, top)][round((x - left) / (right - left) * (WIDTH - 1))] = "●"
    lines = [f"{_label(number, bottom, top):>13} ┤{''.join(row)}" for number, row in enumerate(rows)]
    ends = f"{left:,.0f}".ljust(WIDTH - len(f"{right:,.0f}")) + f"{right:,.0f}"
    note = f"{axis} →" + ("" if target is None else "     · target")
    return "\n".join([*lines, f"{'':13} └{'─' * WIDTH}", f"{'':15}{ends}", f"{'':15}{note}"])


def _row(y: float, bottom: float, top: float) -> int:
    return HEIGHT - 1 - round((y - bottom) / (top - bottom) * (HEIGHT - 1))


def _label(row: int, bottom: float, top: float) -> str:
    if row % 3 != (HEIGHT - 1) % 3:
        return ""
    missing = 10 ** -(bottom + (HEIGHT - 1 - row) / (HEIGHT - 1) * (top - bottom))
    decimals = max(2, 1 - math.floor(math.log10(100 * missing)))
    return f"{100 * (1 - missing):.{decimals}f} %"
