"""What an operator says of a pool on the command line: speed, power, carbon, place, labels."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from yunhe.control.pools.model import FactChanges
from yunhe.kernel.carbon import CarbonSeries, parse_carbon
from yunhe.kernel.errors import FieldProblem, InvalidInputError
from yunhe.kernel.money import MICROS
from yunhe.kernel.places import parse_place
from yunhe.kernel.units import parse_duration_s

T = TypeVar("T")


def _finite(value: float | None) -> float | None:
    """Refuse what JSON cannot carry: it would be lost on the way without a word."""
    if value is not None and not math.isfinite(value):
        raise typer.BadParameter("must be a finite number")
    return value


PlaceOption = Annotated[str, typer.Option(help="cn-north, cn-north/edge or cn-north/edge@39.9,116.4.")]
SpeedOption = Annotated[
    float | None, typer.Option(callback=_finite, help="Speed of one core; the reference core has 1.0.")
]
WattsOption = Annotated[
    str, typer.Option(metavar="IDLE..FULL", help="What one node draws when idle and when every core is busy.")
]
PueOption = Annotated[
    float | None, typer.Option(callback=_finite, help="Watts of the whole site for each watt of computing.")
]
EnergyPriceOption = Annotated[
    float | None,
    typer.Option(
        callback=_finite, help="What a kWh costs on top of the prices, where the pool bills its power."
    ),
]
CarbonOption = Annotated[
    str, typer.Option(help="g CO₂/kWh: a number, a CSV file hour,g_per_kwh, or an http(s) feed of one.")
]
ReliabilityOption = Annotated[
    float | None, typer.Option(callback=_finite, help="Probability of an hour without a failure.")
]
WaitOption = Annotated[str, typer.Option(help="From accepted to running, where there is room: 30s, 5min.")]
SiteOption = Annotated[str, typer.Option(help="Where it meets the network; pools of one site share it.")]
LabelOption = Annotated[list[str] | None, typer.Option(metavar="KEY=VALUE", help="A label; more than once.")]
TaintOption = Annotated[
    list[str] | None,
    typer.Option(metavar="KEY[=VALUE]", help="What work must tolerate to come here; more than once."),
]
UnsetOption = Annotated[
    list[str] | None, typer.Option(metavar="FACT", help="Forget a fact: speed, carbon, labels.KEY …")
]


def changes_of(  # noqa: PLR0913 - each is an option
    *,
    place: str,
    speed: float | None,
    watts: str,
    pue: float | None,
    energy_price: float | None,
    carbon: str,
    reliability: float | None,
    wait: str,
    site: str,
    label: list[str] | None,
    taint: list[str] | None,
    unset: list[str] | None = None,
) -> FactChanges:
    """Return what the options say; every one that cannot be read is named."""
    problems: list[FieldProblem] = []

    def read(option: str, text: str, parse: Callable[[str], T]) -> T | None:
        try:
            return parse(text) if text else None
        except (ValueError, OSError) as error:
            problems.append(FieldProblem(option, str(error), text))
            return None

    idle, full = read("--watts", watts, _watts) or (None, None)
    changes = FactChanges(
        place=read("--place", place, parse_place),
        speed=speed,
        watts_idle=idle,
        watts_full=full,
        pue=pue,
        energy_price_micros_per_kwh=None if energy_price is None else round(energy_price * MICROS),
        carbon=read("--carbon", carbon, _carbon),
        reliability=reliability,
        wait_s=read("--wait", wait, parse_duration_s),
        site=site or None,
        labels=dict(filter(None, (read("--label", one, _label) for one in label))) if label else None,
        taints=tuple(taint) if taint else None,
        unset=tuple(unset or ()),
    )
    if problems:
        raise InvalidInputError("Nothing was changed.", remedy="Fix what is listed.", fields=tuple(problems))
    return changes


def _watts(text: str) -> tuple[float | None, float]:
    idle, dots, full = text.partition("..")
    try:
        watts = (float(idle), float(full)) if dots else (None, float(idle))
    except ValueError:
        watts = (None, math.nan)
    if not all(math.isfinite(one) for one in watts if one is not None):
        raise ValueError("must be IDLE..FULL, such as 60..250, or the watts at full load alone")
    return watts


def _carbon(text: str) -> CarbonSeries:
    if text.startswith(("http://", "https://")):
        return CarbonSeries(feed=text)
    path = Path(text)
    try:
        float(text)
    except ValueError:
        if not path.is_file():
            raise ValueError("is neither a number, a file nor an http(s) address") from None
        return parse_carbon(path.read_text())
    return parse_carbon(text)


def _label(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not (key and equals):
        raise ValueError("must be KEY=VALUE")
    return key, value
