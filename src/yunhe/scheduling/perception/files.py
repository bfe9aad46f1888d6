"""Snapshots from files, for simulations and experiments until something live produces each part.

A folder with ``pools.json`` (or ``.yaml``) and any of ``nodes.csv``, ``links.csv``, ``sites.csv``, ``datasets.json``,
``carbon.csv``, ``spot.csv``, ``external.csv``, ``reservations.csv`` and ``typical.csv``. An empty cell is unknown. The
forms are described in the reference, "Snapshot files".
"""

from collections.abc import Iterable
from pathlib import Path
from typing import TypeVar

import msgspec

from yunhe.kernel.errors import FieldProblem, InvalidInputError
from yunhe.kernel.ids import JobId, NodeId, PoolId
from yunhe.kernel.resources import Accelerators, Resources
from yunhe.kernel.validation import read
from yunhe.scheduling.perception.model import (
    DatasetFacts,
    EnergyFacts,
    ExternalScore,
    LinkFacts,
    NodeFacts,
    PoolFacts,
    Reservation,
    SiteFacts,
    SpotFacts,
    TypicalAsk,
)
from yunhe.scheduling.perception.rows import FileRow, read_rows
from yunhe.scheduling.perception.snapshot import Snapshot, SnapshotContext, build_snapshot

T = TypeVar("T")

AMOUNTS = ("cpu_millis", "memory_mib", "disk_mib", "accelerators")
FREE = tuple(f"{name}_free" for name in AMOUNTS)
DEVICE_MEMORY = "accelerator_memory_mib"
NODE = ("node", "pool", *AMOUNTS, DEVICE_MEMORY, *FREE, "isa", "labels", "taints", "groups")
LINK = (
    "source",
    "target",
    "bandwidth_mbps",
    "latency_ms",
    "loss",
    "price_per_gib",
    "reliability",
    "free_mbps",
)


def read_snapshot(folder: Path, *, taken_at: float = 0.0) -> Snapshot:
    """Return the snapshot that the files of *folder* describe; every problem of a file is listed at once."""
    pools = _document(folder, "pools", list[PoolFacts])
    if pools is None:
        raise InvalidInputError(
            f"{folder} has no pools.json or pools.yaml.", remedy="See the reference: Snapshot files."
        )
    names, ids = {pool.name for pool in pools}, {str(pool.id) for pool in pools}
    nodes = read_rows(folder / "nodes.csv", NODE, lambda row: _node(row, ids))
    _refuse_twins("nodes.csv", [str(node.id) for node in nodes])
    _refuse_twins("pools", [str(pool.id) for pool in pools])
    around = SnapshotContext(
        sites=tuple(read_rows(folder / "sites.csv", ("site", "region", "relays"), _site)),
        links=tuple(read_rows(folder / "links.csv", (*LINK, "both_ways"), _link)),
        datasets=tuple(_document(folder, "datasets", list[DatasetFacts]) or ()),
        external=tuple(
            read_rows(
                folder / "external.csv",
                ("name", "pool", "valid_until", "cost", "seconds"),
                lambda row: _external(row, ids),
            )
        ),
        reservations=tuple(
            read_rows(
                folder / "reservations.csv",
                ("job", "pool", "node", *AMOUNTS, DEVICE_MEMORY, "expires_at"),
                lambda row: _reservation(row, ids),
            )
        ),
        typical=tuple(read_rows(folder / "typical.csv", (*AMOUNTS, DEVICE_MEMORY, "share"), _typical)),
    )
    pools = _with_carbon(_with_spot(pools, folder, names), folder, names)
    return build_snapshot(pools, nodes, version=1, taken_at=taken_at, surroundings=around)


def _document(folder: Path, name: str, kind: type[T]) -> T | None:
    for path, decode in (
        (folder / f"{name}.json", msgspec.json.decode),
        (folder / f"{name}.yaml", msgspec.yaml.decode),
    ):
        if path.exists():
            try:
                return read(decode(path.read_bytes()), kind)
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                raise InvalidInputError(f"{path.name} cannot be read: {error}.") from None
            except InvalidInputError as error:
                raise InvalidInputError(
                    f"{path.name} cannot be read.", remedy="Fix the fields named.", fields=error.fields
                ) from None
    return None


def _refuse_twins(where: str, ids: list[str]) -> None:
    seen: set[str] = set()
    twins = sorted({one for one in ids if one in seen or seen.add(one)})
    if twins:
        raise InvalidInputError(
            f"{where} has an ID twice.",
            remedy="Give each its own.",
            fields=tuple(FieldProblem(where, "is there more than once", one) for one in twins),
        )


def _one_of(row: FileRow, column: str, known: set[str]) -> str:
    """Return the pool that a cell names; a stranger would be left aside without a word."""
    name = row.name(column)
    return name if name in known else row.refuse(column, "is no pool of pools.json", name)


def _amount(row: FileRow, suffix: str = "", otherwise: Resources | None = None) -> Resources:
    """Return amounts; where a cell is empty, what they are *otherwise*."""
    rest = otherwise or Resources()
    memory = row.count(DEVICE_MEMORY) or 0
    devices = rest.accelerators
    if row.text(f"accelerators{suffix}"):
        devices = tuple(
            Accelerators(kind, _milli(row, f"accelerators{suffix}", count), memory)
            for kind, count in row.pairs(f"accelerators{suffix}").items()
        )

    def one(name: str, unless_said: int) -> int:
        said = row.count(f"{name}{suffix}")
        return unless_said if said is None else said

    return Resources(
        one("cpu_millis", rest.cpu_millis),
        one("memory_mib", rest.memory_mib),
        one("disk_mib", rest.disk_mib),
        devices,
    )


def _milli(row: FileRow, column: str, count: str) -> int:
    try:
        milli = round(float(count) * 1000)
    except (ValueError, OverflowError):
        row.refuse(column, "must be kind=number", count)
    return milli if milli >= 0 else row.refuse(column, "must be at least 0", count)


def _node(row: FileRow, pools: set[str]) -> NodeFacts:
    total = _amount(row)
    return NodeFacts(
        id=NodeId(row.name("node")),
        pool_id=PoolId(_one_of(row, "pool", pools)),
        total=total,
        free=_amount(row, "_free", otherwise=total),
        isa=row.text("isa"),
        labels=row.pairs("labels"),
        taints=row.words("taints"),
        groups=row.words("groups"),
    )


def _site(row: FileRow) -> SiteFacts:
    return SiteFacts(row.name("site"), row.text("region"), row.yes("relays"))


def _link(row: FileRow) -> LinkFacts:
    price = row.number("price_per_gib")
    return LinkFacts(
        source=row.name("source"),
        target=row.name("target"),
        bandwidth_mbps=row.number("bandwidth_mbps"),
        latency_ms=row.number("latency_ms"),
        loss=row.number("loss", most=1.0),
        price_micros_per_gib=None if price is None else round(price * 1e6),
        reliability=row.number("reliability", most=1.0),
        free_mbps=row.number("free_mbps"),
        both_ways=row.yes("both_ways"),
    )


def _external(row: FileRow, pools: set[str]) -> ExternalScore:
    return ExternalScore(
        name=row.name("name"),
        pool_id=PoolId(_one_of(row, "pool", pools)),
        valid_until=row.known("valid_until"),
        cost=row.number("cost") or 0.0,
        seconds=row.number("seconds") or 0.0,
    )


def _reservation(row: FileRow, pools: set[str]) -> Reservation:
    return Reservation(
        job_id=JobId(row.name("job")),
        pool_id=PoolId(_one_of(row, "pool", pools)),
        node_id=NodeId(row.text("node")),
        resources=_amount(row),
        expires_at=row.known("expires_at"),
    )


def _typical(row: FileRow) -> TypicalAsk:
    return TypicalAsk(_amount(row), row.known("share"))


def _with_carbon(pools: list[PoolFacts], folder: Path, names: set[str]) -> list[PoolFacts]:
    """Fill in grams per kWh from ``carbon.csv``, hour by hour; the watts stay unknown where nobody gave them."""
    series = _series(
        read_rows(
            folder / "carbon.csv",
            ("pool", "at", "g_per_kwh"),
            lambda row: (_one_of(row, "pool", names), row.known("at"), row.known("g_per_kwh")),
        )
    )
    return [
        msgspec.structs.replace(
            pool,
            energy=msgspec.structs.replace(
                pool.energy or EnergyFacts(),
                carbon_from=series[pool.name][0][0],
                carbon_g_per_kwh=tuple(grams for _, grams in series[pool.name]),
            ),
        )
        if pool.name in series
        else pool
        for pool in pools
    ]


def _with_spot(pools: list[PoolFacts], folder: Path, names: set[str]) -> list[PoolFacts]:
    """Fill in the history of spot prices from ``spot.csv``, as ratios of the listed price."""
    series = _series(
        read_rows(
            folder / "spot.csv",
            ("pool", "date", "ratio"),
            lambda row: (_one_of(row, "pool", names), row.name("date"), row.known("ratio")),
        )
    )
    return [
        msgspec.structs.replace(
            pool,
            spot=SpotFacts(
                price_ratio_history=tuple(ratio for _, ratio in series[pool.name]),
                interruptions_per_hour=None if pool.spot is None else pool.spot.interruptions_per_hour,
            ),
        )
        if pool.name in series
        else pool
        for pool in pools
    ]


def _series(rows: Iterable[tuple[str, T, float]]) -> dict[str, list[tuple[T, float]]]:
    """Return each pool's values in the order of their times."""
    found: dict[str, list[tuple[T, float]]] = {}
    for pool, at, value in rows:
        found.setdefault(pool, []).append((at, value))
    return {pool: sorted(values) for pool, values in found.items()}
