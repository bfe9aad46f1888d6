"""Small worlds for tests of decisions: facts by name, and strategies that draw whole worlds."""

from collections.abc import Sequence
from random import Random
from typing import Any

import msgspec
from hypothesis import strategies as st

from yunhe.kernel.ids import JobId, NodeId, PoolId, ProjectId
from yunhe.kernel.money import MICROS, Prices, Tier
from yunhe.kernel.places import Level, Place
from yunhe.kernel.resources import Accelerators, Resources
from yunhe.scheduling.decision.model import (
    Affinity,
    Alternative,
    DataNeed,
    Demand,
    Domain,
    Policy,
    Spread,
    Traffic,
)
from yunhe.scheduling.perception.model import (
    DatasetFacts,
    Device,
    EnergyFacts,
    LinkFacts,
    NodeFacts,
    PoolFacts,
    SiteFacts,
    SpotFacts,
)
from yunhe.scheduling.perception.snapshot import Snapshot, SnapshotContext, build_snapshot

PROJECT = ProjectId("proj_a")
NOW = 1_000_000.0


def pool(name: str, **facts: Any) -> PoolFacts:
    """A pool whose ID is its name."""
    return PoolFacts(id=PoolId(name), name=name, **facts)


def node(name: str, pool_name: str, free: Resources, **facts: Any) -> NodeFacts:
    """A node that is as empty as it is large, unless a total is given."""
    total = facts.pop("total", free)
    return NodeFacts(id=NodeId(name), pool_id=PoolId(pool_name), total=total, free=free, **facts)


def cores(number: float, memory_gib: float = 1.0, *accelerators: Accelerators) -> Resources:
    """An amount by its cores and GiB."""
    return Resources(
        cpu_millis=round(number * 1000), memory_mib=round(memory_gib * 1024), accelerators=accelerators
    )


def prices(per_core: float, per_gib: float = 0.0, **accelerators: float) -> dict[Tier, Prices]:
    """A price list by units of the currency per hour, alike for all tiers."""
    listed = Prices(
        cpu_core_hour_micros=round(per_core * MICROS),
        memory_gib_hour_micros=round(per_gib * MICROS),
        accelerator_hour_micros={kind: round(price * MICROS) for kind, price in accelerators.items()},
    )
    return dict.fromkeys(Tier, listed)


def world(
    pools: Sequence[PoolFacts], nodes: Sequence[NodeFacts], version: int = 1, **around: Any
) -> Snapshot:
    """A snapshot taken at ``NOW``."""
    given = {name: tuple(facts) for name, facts in around.items()}
    return build_snapshot(pools, nodes, version=version, taken_at=NOW, surroundings=SnapshotContext(**given))


def demand(resources: Resources = cores(1), **wishes: Any) -> Demand:  # noqa: B008 - a frozen value
    """A demand for one amount, or for ``alternatives``."""
    alternatives = wishes.pop("alternatives", (Alternative(resources, wishes.pop("pools", ())),))
    job = JobId(wishes.pop("job", "job_1"))
    return Demand(job_id=job, project_id=PROJECT, alternatives=alternatives, **wishes)


# --- worlds by the dozen: small enough to check by hand, varied enough to break rules
#
# Drawn from a seed rather than piece by piece: hypothesis needs a tenth of a second for each world otherwise.

REGIONS = ("cn-north", "cn-south", "eu-west")
ISAS = ("amd64", "arm64", "riscv64")
KINDS = ("a100", "ascend910")
SEEDS = st.integers(0, 2**32 - 1)


def _maybe(rng: Random, value: Any) -> Any:
    return value if rng.random() < 0.7 else None


def random_pool(rng: Random, name: str) -> PoolFacts:
    """A pool of which some things are unknown."""
    place = Place(
        rng.choice(REGIONS),
        rng.choice((10.0, 30.0, 50.0)),
        rng.choice((0.0, 60.0, 120.0)),
        rng.choice(list(Level)),
    )
    energy = EnergyFacts(
        watts_per_core=rng.choice((2.0, 5.0, 12.0)),
        pue=rng.choice((1.0, 1.5)),
        price_micros_per_kwh=rng.choice((None, 0, 500_000)),
        carbon_g_per_kwh=tuple(rng.choice((20.0, 300.0, 700.0)) for _ in range(rng.randrange(4))),
    )
    listed = prices(rng.choice((0.0, 0.03, 0.05, 0.2)), rng.choice((0.0, 0.01)), a100=2.0, ascend910=1.0)
    return pool(
        name,
        place=_maybe(rng, place),
        prices=_maybe(rng, listed),
        speed=_maybe(rng, rng.choice((0.5, 1.0, 2.0))),
        reliability=_maybe(rng, rng.choice((0.9, 0.99, 1.0))),
        wait_s=_maybe(rng, rng.choice((0.0, 30.0, 600.0))),
        energy=_maybe(rng, energy),
        relays=rng.random() < 0.4,
        accepts=rng.random() < 0.9,
        taints=rng.choice(((), (), (), (), ("maintenance",), ("gpu=only",))),
        powers=rng.choice((("images", "resize"), ("images",), ("resize",), ())),
        spot=rng.choice(
            (
                None,
                SpotFacts(price_ratio_history=(0.2, 0.4), interruptions_per_hour=0.1),
                SpotFacts(price_ratio_history=(0.5,)),
            )
        ),
    )


def random_node(rng: Random, name: str, pool_name: str) -> NodeFacts:
    """A node that is partly taken, with or without accelerators."""
    kinds = rng.choice((KINDS[:1], KINDS[1:], KINDS, KINDS))
    devices = tuple(
        Device(rng.choice(kinds), free, 16 * free)
        for free in [rng.choice((0, 300, 500, 1000, 1000)) for _ in range(rng.choice((0, 0, 1, 2, 4)))]
    )
    listed = sorted({device.kind for device in devices})
    free = Resources(
        cpu_millis=rng.randrange(13) * 500,
        memory_mib=rng.randrange(13) * 512,
        disk_mib=rng.randrange(5) * 1000,
        accelerators=tuple(
            Accelerators(kind, sum(d.free_milli for d in devices if d.kind == kind), 16_000)
            for kind in listed
        ),
    )
    total = Resources(
        cpu_millis=8000,
        memory_mib=8192,
        disk_mib=8000,
        accelerators=tuple(
            Accelerators(kind, 1000 * sum(d.kind == kind for d in devices), 16_000) for kind in listed
        ),
    )
    return node(
        name,
        pool_name,
        free,
        total=total,
        devices=devices,
        isa=rng.choice(("", *ISAS)),
        labels=rng.choice(({}, {"disk": "ssd"}, {"disk": "hdd"})),
        taints=rng.choice(((), (), (), ("spot",))),
        groups=rng.choice(((), ("web", "web"), ("db",))),
    )


def random_world(rng: Random) -> Snapshot:
    """A few pools with a few nodes each, with links and a dataset between them."""
    names = [f"pool-{letter}" for letter in "abcd"[: rng.choice((1, 2, 3, 4, 4, 4))]]
    pools = [random_pool(rng, name) for name in names]
    nodes = [
        random_node(rng, f"{name}-{number}", name) for name in names for number in range(rng.randrange(5))
    ]
    ends = [*names, "office"]
    links = [
        LinkFacts(
            source=a,
            target=b,
            bandwidth_mbps=_maybe(rng, rng.choice((100.0, 1000.0))),
            latency_ms=_maybe(rng, rng.choice((5.0, 80.0))),
            price_micros_per_gib=_maybe(rng, rng.choice((0, 50_000))),
            free_mbps=rng.choice((None, None, None, 0.0, 1.0, 100.0)),
        )
        for a in ends
        for b in ends
        if a < b and rng.random() < 0.8
    ]
    datasets = [
        DatasetFacts(
            name=name,
            size_mib=size_mib,
            replicas=(rng.choice(ends),),
            stay_in=rng.choice(((), (), ("cn",), ("cn-north",))),
        )
        for name, size_mib in (("corpus", 100_000), ("model", 5_000))
    ]
    office = SiteFacts("office", rng.choice(REGIONS), relays=rng.random() < 0.5)
    return world(pools, nodes, sites=[office], links=links, datasets=datasets)


def random_amount(rng: Random, most_kinds: int = 1) -> Resources:
    """An amount that some nodes have and some do not."""
    accelerators: tuple[Accelerators, ...] = ()
    if rng.random() < 0.3:
        accelerators = tuple(
            Accelerators(kind, rng.choice((300, 500, 500, 1000, 2000)), rng.choice((0, 0, 4000, 12_000)))
            for kind in rng.sample((*KINDS, "a100|ascend910", "*"), rng.randint(1, most_kinds))
        )
    return Resources(
        cpu_millis=rng.randrange(6) * 500,
        memory_mib=rng.randrange(6) * 512,
        disk_mib=rng.choice((0, 0, 0, 1000)),
        accelerators=accelerators,
    )


def random_demand(rng: Random, *, single: bool = False) -> Demand:
    """A demand with a mixture of constraints; *single*: of one member."""
    members = 1 if single else rng.choice((1, 1, 1, 2, 3, 4))

    def rarely(value: Any, otherwise: Any = None) -> Any:
        return value if rng.random() < 0.1 else otherwise

    spread = Spread(rng.choice((Domain.NODE, Domain.NODE, Domain.POOL, Domain.REGION)), rng.randint(1, 2))
    wanted = demand(
        alternatives=tuple(
            random_alternative(rng, single=members == 1) for _ in range(rng.choice((1, 1, 2)))
        ),
        ordered=rng.random() < 0.5,
        policy=rng.choice([*Policy, *[Policy.BALANCED] * 6]),  # others refuse who does not say enough
        near=_maybe(rng, Place("cn-north", 30.0, 60.0)),
        members=members,
        members_min=_maybe(rng, 1) if members > 1 else None,
        one_pool=rng.random() < 0.6,
        spread=_maybe(rng, spread) if members > 1 else None,
        run_s=_maybe(rng, rng.choice((60.0, 7200.0))),
        interruptible=rng.random() < 0.2,
        deadline_at=rarely(NOW + rng.choice((600, 10_000))),
        budget_micros=rarely(rng.choice((100_000, 3_000_000))),
        budget_per_hour_micros=rarely(rng.choice((50_000, 5_000_000))),
        reliability_min=rarely(rng.choice((0.5, 0.95))),
        max_latency_ms=rarely(rng.choice((20.0, 90.0))),
        residency=rng.choice(((), (), (), (), ("cn",), ("cn", "eu"))),
        levels=rarely((Level.EDGE, Level.CENTRAL), ()),
        isa=rarely(rng.choice((("amd64",), ("arm64", "riscv64"))), ()),
        tolerations=rng.choice(((), ("maintenance",), ("gpu", "spot"), ("*",))),
        where=rarely(rng.choice((("disk=ssd",), ("disk!=hdd",))), ()),
        powers=rarely(rng.choice((("images",), ("images", "resize"))), ()),
        affinity=rarely(
            (Affinity(rng.choice(("web", "db")), rng.choice(list(Domain)), apart=rng.random() < 0.5),), ()
        ),
        groups=rarely(("batch",), ()),
        data=random_data(rng),
        traffic=rng.choice(((), (), (random_traffic(rng),))),
    )
    if members > 1 or rng.random() > 0.1:
        return wanted
    return msgspec.structs.replace(wanted, groups=(rng.choice(("web", "db")),), spread=spread)


def random_alternative(rng: Random, *, single: bool) -> Alternative:
    """An amount or a range; only one member alone asks for several kinds of accelerator."""
    least = random_amount(rng, most_kinds=2 if single else 1)
    if not single or rng.random() < 0.8:
        return Alternative(least)
    most = Resources(least.cpu_millis + 2000, least.memory_mib + 1024, least.disk_mib, least.accelerators)
    return Alternative(least, up_to=most)


def random_data(rng: Random) -> tuple[DataNeed, ...]:
    """No data, a dataset, or two; some reserve bandwidth."""
    names = rng.choice(((), (), ("corpus",), ("corpus", "model")))
    return tuple(DataNeed(dataset=name, rate_mbps=rng.choice((None, 30.0, 60.0))) for name in names)


def random_traffic(rng: Random) -> Traffic:
    """A flow from the office that some links cannot carry beside a transfer."""
    return Traffic(
        site="office", mbps=rng.choice((5.0, 50.0)), max_latency_ms=_maybe(rng, rng.choice((10.0, 100.0)))
    )


def worlds() -> st.SearchStrategy[Snapshot]:
    """Worlds of a few pools."""
    return SEEDS.map(lambda seed: random_world(Random(seed)))


def demands(*, single: bool = False) -> st.SearchStrategy[Demand]:
    """Demands of every kind that is no app."""
    return SEEDS.map(lambda seed: random_demand(Random(seed), single=single))
