"""Snapshots from files, for simulations and experiments until something live produces each part.

A folder with ``pools.json`` (or ``.yaml``), ``nodes.csv``, and any of ``links.csv``, ``sites.csv``, ``datasets.json``,
``carbon.csv`` and ``spot.csv``. An empty cell is unknown. The forms are described in the reference, "Snapshot files".
"""

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from yunhe.kernel.errors import FieldProblem, InvalidInputError
from yunhe.kernel.ids import NodeId, PoolId
from yunhe.kernel.resources import Accelerators, Resources
from yunhe.scheduling.perception.model import (
    DatasetFacts,
    EnergyFacts,
    LinkFacts,
    NodeFacts,
    PoolFacts,
    SiteFacts,
    SpotFacts,
)
from yunhe.scheduling.perception.snapshot import Snapshot, Surroundings, build_snapshot

T = TypeVar("T")


def read_snapshot(folder: Path, *, taken_at: float = 0.0) -> Snapshot:
    """Return the snapshot that the files of *folder* describe; every problem of a file is listed at once."""
    pools = _document(folder, "pools", list[PoolFacts])
    if pools is None:
        raise InvalidInputError(
            f"{folder} has no pools.json or pools.yaml.", remedy="See the reference: Snapshot files."
        )
    pools = _with_carbon(_with_spot(pools, folder), folder)
    around = Surroundings(
        sites=tuple(_table(folder / "sites.csv", _site)),
        links=tuple(_table(folder / "links.csv", _link)),
        datasets=tuple(_document(folder, "datasets", list[DatasetFacts]) or ()),
    )
    nodes = _table(folder / "nodes.csv", _node)
    return build_snapshot(pools, nodes, version=1, taken_at=taken_at, surroundings=around)


def _document(folder: Path, name: str, kind: type[T]) -> T | None:
    for path, decode in (
        (folder / f"{name}.json", msgspec.json.decode),
        (folder / f"{name}.yaml", msgspec.yaml.decode),
    ):
        if path.exists():
            try:
                return decode(path.read_bytes(), type=kind)
            except msgspec.DecodeError as error:
                raise InvalidInputError(f"{path.name} cannot be read: {error}.") from None
    return None


def _table(path: Path, read: Callable[[dict[str, str]], T]) -> list[T]:
    """Return what *read* makes of each row; a missing file has none."""
    if not path.exists():
        return []
    found: list[T] = []
    problems: list[FieldProblem] = []
    with path.open(newline="") as file:
        for number, row in enumerate(csv.DictReader(file), start=2):
            try:
                found.append(read(row))
            except KeyError as error:
                problems.append(FieldProblem(f"{path.name}:{number}", f"has no column {error.args[0]}"))
            except ValueError as error:
                problems.append(FieldProblem(f"{path.name}:{number}", str(error)))
    if problems:
        raise InvalidInputError(
            f"{path.name} has rows that cannot be read.",
            remedy="Mend the rows named; an unknown value is an empty cell.",
            fields=tuple(problems),
        )
    return found


def _number(row: dict[str, str], name: str) -> float | None:
    """Return a number of at least zero, or None for an empty or missing cell."""
    text = (row.get(name) or "").strip()
    if not text:
        return None
    value = float(text)
    if not 0 <= value < float("inf"):
        raise ValueError(f"{name} is {text}, not a number of at least zero")
    return value


def _count(row: dict[str, str], name: str) -> int:
    return round(_number(row, name) or 0)


def _pairs(text: str) -> dict[str, str]:
    """Read ``key=value;key=value``."""
    return dict(part.split("=", 1) for part in text.split(";") if part)


def _amount(row: dict[str, str], suffix: str) -> Resources:
    devices = _pairs(row.get(f"accelerators{suffix}") or "")
    memory = _count(row, "accelerator_memory_mib")
    return Resources(
        _count(row, f"cpu_millis{suffix}"),
        _count(row, f"memory_mib{suffix}"),
        _count(row, f"disk_mib{suffix}"),
        tuple(Accelerators(kind, round(float(count) * 1000), memory) for kind, count in devices.items()),
    )


def _node(row: dict[str, str]) -> NodeFacts:
    total = _amount(row, "")
    has_free = any(row.get(name) for name in ("cpu_millis_free", "memory_mib_free", "accelerators_free"))
    return NodeFacts(
        id=NodeId(row["node"]),
        pool_id=PoolId(row["pool"]),
        total=total,
        free=_amount(row, "_free") if has_free else total,
        isa=row.get("isa") or "",
        labels=_pairs(row.get("labels") or ""),
        taints=tuple(part for part in (row.get("taints") or "").split(";") if part),
        groups=tuple(part for part in (row.get("groups") or "").split(";") if part),
    )


def _site(row: dict[str, str]) -> SiteFacts:
    return SiteFacts(row["site"], row.get("region") or "", (row.get("relays") or "yes") == "yes")


def _link(row: dict[str, str]) -> LinkFacts:
    price = _number(row, "price_per_gib")
    values: dict[str, Any] = {
        name: _number(row, name)
        for name in ("bandwidth_mbps", "latency_ms", "loss", "reliability", "free_mbps")
    }
    return LinkFacts(
        source=row["source"],
        target=row["target"],
        price_micros_per_gib=None if price is None else round(price * 1e6),
        both_ways=(row.get("both_ways") or "yes") == "yes",
        **values,
    )


def _with_carbon(pools: list[PoolFacts], folder: Path) -> list[PoolFacts]:
    """Fill in grams per kWh from ``carbon.csv`` (pool, at, g_per_kwh; hour by hour)."""
    series: dict[str, list[tuple[float, float]]] = {}
    for pool, at, grams in _table(
        folder / "carbon.csv", lambda row: (row["pool"], float(row["at"]), float(row["g_per_kwh"]))
    ):
        series.setdefault(pool, []).append((at, grams))
    filled: list[PoolFacts] = []
    for pool in pools:
        hours = sorted(series.get(pool.name, ()))
        energy = pool.energy or (EnergyFacts(watts_per_core=0.0) if hours else None)
        if hours and energy is not None:
            energy = msgspec.structs.replace(
                energy, carbon_from=hours[0][0], carbon_g_per_kwh=tuple(grams for _, grams in hours)
            )
        filled.append(msgspec.structs.replace(pool, energy=energy))
    return filled


def _with_spot(pools: list[PoolFacts], folder: Path) -> list[PoolFacts]:
    """Fill in the history of spot prices from ``spot.csv`` (pool, date, ratio of the listed price)."""
    series: dict[str, list[tuple[str, float]]] = {}
    for pool, date, ratio in _table(
        folder / "spot.csv", lambda row: (row["pool"], row["date"], float(row["ratio"]))
    ):
        series.setdefault(pool, []).append((date, ratio))
    return [
        msgspec.structs.replace(
            pool,
            spot=SpotFacts(
                price_ratio_history=tuple(ratio for _, ratio in sorted(series[pool.name])),
                interruptions_per_hour=None if pool.spot is None else pool.spot.interruptions_per_hour,
            ),
        )
        if pool.name in series
        else pool
        for pool in pools
    ]
