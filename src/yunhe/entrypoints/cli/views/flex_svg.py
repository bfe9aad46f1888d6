"""Small drawings for the report: plain SVG text, no library, no script."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 640, 320
LEFT, RIGHT, TOP, BOTTOM = 58, 16, 14, 46
COOL, HOT = (232, 240, 248), (190, 40, 30)
_LABEL_WIDTH, _LABEL_HEIGHT = 60, 13


@dataclass(frozen=True, slots=True)
class PlotMark:
    """A point with a label and what the pointer shows over it."""

    x: float
    y: float
    label: str
    tip: str


@dataclass(frozen=True, slots=True)
class PointGroup:
    """Points of one kind: its name, its CSS class, and whether a line joins them."""

    name: str
    style: str
    marks: tuple[PlotMark, ...]
    joined: bool = False
    labels_left: bool = False


@dataclass(frozen=True, slots=True)
class Axis:
    """One axis: its title, its range and how a tick is written."""

    title: str
    low: float
    high: float
    show: Callable[[float], str]
    ticks: tuple[float, ...] = ()
    log: bool = False

    def at(self, value: float) -> float:
        """Return where *value* lies, 0 to 1."""
        if self.log:
            floor = max(value, self.low)
            return math.log(floor / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)


def nice_ticks(low: float, high: float, wanted: int = 5) -> tuple[float, ...]:
    """Return round numbers that divide the range into about *wanted* parts."""
    rough = (high - low) / max(1, wanted)
    power = 10 ** math.floor(math.log10(rough)) if rough > 0 else 1.0
    step = next(power * factor for factor in (1, 2, 2.5, 5, 10) if power * factor >= rough)
    first = math.ceil(low / step)
    return tuple(step * k for k in range(first, int(high / step + 1e-9) + 1))


def scatter(groups: Sequence[PointGroup], x: Axis, y: Axis, behind: str = "") -> str:
    """Return points in a frame with a legend; *behind* is drawn first."""
    parts = [_frame(x, y), behind]
    labelled: list[tuple[float, float]] = []
    for group in groups:
        spots = [(_x(x, mark.x), _y(y, mark.y)) for mark in group.marks]
        if group.joined and len(spots) > 1:
            path = " ".join(f"{a:.1f},{b:.1f}" for a, b in spots)
            parts.append(f'<polyline class="{group.style} line" points="{path}"/>')
        for (a, b), mark in zip(spots, group.marks, strict=True):
            parts.append(
                f'<circle class="{group.style}" cx="{a:.1f}" cy="{b:.1f}" r="5"><title>{escape(mark.tip)}</title></circle>'
            )
            if mark.label:
                x_at, anchor = (a - 9, "end") if group.labels_left else (a + 8, "start")
                y_at = _clear_of(labelled, x_at, b - 5)
                parts.append(
                    f'<text class="label" x="{x_at:.1f}" y="{y_at:.1f}" text-anchor="{anchor}">'
                    f"{escape(mark.label)}</text>"
                )
    parts.append(_legend([(group.name, group.style) for group in groups]))
    return _svg(parts)


def _clear_of(labelled: list[tuple[float, float]], x: float, y: float) -> float:
    """Return how high a label at *x* must go so that it covers none of those there are, and note it."""
    while any(
        abs(x - other_x) < _LABEL_WIDTH and abs(y - other_y) < _LABEL_HEIGHT for other_x, other_y in labelled
    ):
        y -= _LABEL_HEIGHT
    labelled.append((x, y))
    return y


def columns(
    series: Sequence[tuple[str, str, Sequence[float]]], labels: Sequence[str], x_title: str, y: Axis
) -> str:
    """Return columns side by side: each series is a name, a CSS class and one value for each label."""
    x = Axis(x_title, 0, len(labels), str)
    parts = [_frame(x, y, ticks=False)]
    slot = (WIDTH - LEFT - RIGHT) / len(labels)
    wide = slot * 0.8 / len(series)
    for index, label in enumerate(labels):
        middle = LEFT + (index + 0.5) * slot
        parts.append(
            f'<text class="tick" x="{middle:.1f}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle">{escape(label)}</text>'
        )
        for order, (name, style, values) in enumerate(series):
            top = _y(y, values[index])
            left = LEFT + index * slot + slot * 0.1 + order * wide
            tip = escape(f"{name}: {y.show(values[index])} of instances at {label}")
            parts.append(
                f'<rect class="{style}" x="{left:.1f}" y="{top:.1f}" width="{wide - 1:.1f}" '
                f'height="{HEIGHT - BOTTOM - top:.1f}"><title>{tip}</title></rect>'
            )
    parts.append(_legend([(name, style) for name, style, _ in series]))
    return _svg(parts)


def heat_map(rows: Sequence[Sequence[float]], hours: float) -> str:
    """Return a row for each host and a cell for each stretch of time: pale is idle, red is over capacity."""
    count = max(1, len(rows))
    tall = max(6.0, min(18.0, 420 / count))
    height = round(TOP + tall * count + 40)
    wide = (WIDTH - LEFT - RIGHT) / max(1, len(rows[0]) if rows else 1)
    parts: list[str] = []
    for number, row in enumerate(rows):
        y = TOP + number * tall
        if number % max(1, count // 12) == 0:
            parts.append(
                f'<text class="tick" x="{LEFT - 6}" y="{y + tall * 0.75:.1f}" text-anchor="end">host {number + 1}</text>'
            )
        for column, share in enumerate(row):
            hour = column * hours / len(row)
            tip = f"host {number + 1}, hour {hour:.1f}: {100 * share:.0f} % of its cores at most"
            parts.append(
                f'<rect x="{LEFT + column * wide:.1f}" y="{y:.1f}" width="{wide + 0.3:.1f}" height="{tall - 1:.1f}" '
                f'fill="{heat_colour(share)}"><title>{tip}</title></rect>'
            )
    for tick in nice_ticks(0, hours, 6):
        x = LEFT + tick / hours * (WIDTH - LEFT - RIGHT)
        parts.append(
            f'<text class="tick" x="{x:.1f}" y="{TOP + tall * count + 14:.1f}" text-anchor="middle">{tick:g} h</text>'
        )
    parts.append(
        f'<text class="title" x="{(LEFT + WIDTH) / 2:.0f}" y="{TOP + tall * count + 32:.1f}" text-anchor="middle">'
        "hours after the placement was made</text>"
    )
    return f'<svg viewBox="0 0 {WIDTH} {height}" role="img">{"".join(parts)}</svg>'


def heat_colour(share: float) -> str:
    """Return pale blue for idle to deep blue for full, red above capacity."""
    if share > 1:
        return f"rgb{HOT}"
    full = (38, 84, 140)
    mixed = tuple(
        round(cool + (deep - cool) * max(0.0, share)) for cool, deep in zip(COOL, full, strict=True)
    )
    return f"rgb({mixed[0]},{mixed[1]},{mixed[2]})"


def bars(items: Sequence[tuple[str, float, str]]) -> str:
    """Return horizontal bars: a name, a length and what is written at its end."""
    most = max((length for _, length, _ in items), default=1.0) or 1.0
    left, tall = 170, 22
    parts: list[str] = []
    for row, (name, length, text) in enumerate(items):
        y = 6 + row * tall
        wide = (WIDTH - left - 110) * length / most
        shown = name if len(name) <= 24 else name[:23] + "…"
        parts.append(
            f'<text class="tick" x="{left - 8}" y="{y + 14}" text-anchor="end"><title>{escape(name)}</title>{escape(shown)}</text>'
        )
        parts.append(
            f'<rect class="flexible" x="{left}" y="{y + 2}" width="{max(1, wide):.1f}" height="{tall - 6}"/>'
        )
        parts.append(f'<text class="label" x="{left + wide + 6:.1f}" y="{y + 14}">{escape(text)}</text>')
    return f'<svg viewBox="0 0 {WIDTH} {12 + tall * len(items)}" role="img">{"".join(parts)}</svg>'


def band(x: Axis, y: Axis, low: float, high: float) -> str:
    """Return the wedge in which y is between *low* and *high* times x, and the line where both are equal."""
    steps = [x.low * (x.high / x.low) ** (k / 40) for k in range(41)]
    upper = [(_x(x, at), _y(y, min(max(high * at, y.low), y.high))) for at in steps]
    lower = [(_x(x, at), _y(y, min(max(low * at, y.low), y.high))) for at in reversed(steps)]
    shape = " ".join(f"{a:.1f},{b:.1f}" for a, b in [*upper, *lower])
    line = " ".join(f"{_x(x, at):.1f},{_y(y, min(max(at, y.low), y.high)):.1f}" for at in steps)
    return f'<polygon class="band" points="{shape}"/><polyline class="equal" points="{line}"/>'


def _x(axis: Axis, value: float) -> float:
    return LEFT + axis.at(value) * (WIDTH - LEFT - RIGHT)


def _y(axis: Axis, value: float) -> float:
    return HEIGHT - BOTTOM - axis.at(value) * (HEIGHT - TOP - BOTTOM)


def _frame(x: Axis, y: Axis, *, ticks: bool = True) -> str:
    parts: list[str] = []
    for value in y.ticks or nice_ticks(y.low, y.high):
        at = _y(y, value)
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{at:.1f}" y2="{at:.1f}"/>')
        parts.append(
            f'<text class="tick" x="{LEFT - 6}" y="{at + 4:.1f}" text-anchor="end">{escape(y.show(value))}</text>'
        )
    for value in (x.ticks or nice_ticks(x.low, x.high, 7)) if ticks else ():
        at = _x(x, value)
        parts.append(
            f'<text class="tick" x="{at:.1f}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle">{escape(x.show(value))}</text>'
        )
    middle = (LEFT + WIDTH - RIGHT) / 2
    parts.append(
        f'<line class="axis" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{HEIGHT - BOTTOM}" y2="{HEIGHT - BOTTOM}"/>'
    )
    parts.append(
        f'<text class="title" x="{middle:.0f}" y="{HEIGHT - 8}" text-anchor="middle">{escape(x.title)}</text>'
    )
    turn = f"rotate(-90 14 {(TOP + HEIGHT - BOTTOM) / 2:.0f})"
    parts.append(
        f'<text class="title" x="14" y="{(TOP + HEIGHT - BOTTOM) / 2:.0f}" text-anchor="middle" transform="{turn}">'
        f"{escape(y.title)}</text>"
    )
    return "".join(parts)


def _legend(entries: Sequence[tuple[str, str]]) -> str:
    parts: list[str] = []
    x = float(WIDTH - RIGHT)
    for name, style in reversed(entries):
        x -= 7.2 * len(name) + 26
        parts.append(f'<circle class="{style}" cx="{x:.1f}" cy="{TOP + 2}" r="5"/>')
        parts.append(f'<text class="label" x="{x + 9:.1f}" y="{TOP + 6}">{escape(name)}</text>')
    return "".join(parts)


def _svg(parts: Sequence[str]) -> str:
    return f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img">{"".join(parts)}</svg>'
