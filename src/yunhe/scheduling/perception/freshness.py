"""How old a fact may be: what is older is unknown to decisions."""

from collections.abc import Mapping
from typing import Any

import msgspec

from yunhe.control.pools.model import Fact, FactList, FactSource, KnownFact, Pool, PoolNode
from yunhe.kernel.units import show_duration
from yunhe.scheduling.perception.model import FactBounds

DEFAULT_BOUNDS = FactBounds()


def bound_of(fact: Fact, bounds: FactBounds) -> float:
    """Return how old a fact of a pool may be."""
    return bounds.told_s if fact.source is FactSource.TOLD else bounds.feed_s


def too_old(facts: Mapping[str, Fact], bounds: FactBounds, now: float) -> dict[str, str]:
    """Return the facts that are unknown because of their age, each with the reason."""
    return {
        name: f"{fact.source} {age_against(now - fact.at, bound_of(fact, bounds))}"
        for name, fact in facts.items()
        if now - fact.at > bound_of(fact, bounds)
    }


def age_against(age_s: float, bound_s: float) -> str:
    """Say how old something is and how old it may be."""
    return f"{show_duration(age_s)} ago, and what is older than {show_duration(bound_s)} is unknown"


def list_facts(pool: Pool, bounds: FactBounds, now: float) -> FactList:
    """Return every fact of a pool and its nodes as it stands at *now*."""
    told = [_known("", name, fact, bound_of(fact, bounds), now) for name, fact in pool.facts.items()]
    nodes = [
        _known(
            node.id.partition("/")[2],
            name,
            Fact(value=value, source=source, at=pool.seen_at or 0.0),
            bounds.look_s,
            now,
        )
        for node in pool.nodes
        for source, values in ((FactSource.REPORTED, _reported(node)), (FactSource.MEASURED, _measured(node)))
        for name, value in values.items()
    ]
    return FactList(pool=pool.spec.name, taken_at=now, facts=(*told, *nodes))


def _known(node: str, name: str, fact: Fact, bound_s: float, now: float) -> KnownFact:
    return KnownFact(
        node=node,
        name=name,
        value=fact.value,
        source=fact.source,
        age_s=round(max(0.0, now - fact.at), 3),
        bound_s=bound_s,
        known=now - fact.at <= bound_s,
        problem=fact.problem,
    )


def _reported(node: PoolNode) -> dict[str, Any]:
    about = node.about
    told = {"isa": about.isa, "labels": about.labels, "taints": list(about.taints)}
    system: dict[str, Any] = msgspec.to_builtins(about.system) if about.system else {}
    known = {name: value for name, value in {**told, **system}.items() if value}
    return {"cpu_millis": node.total.cpu_millis, "memory_mib": node.total.memory_mib, **known}


def _measured(node: PoolNode) -> dict[str, Any]:
    through: dict[str, Any] = msgspec.to_builtins(node.live.throughput) if node.live.throughput else {}
    return {
        "cpu_used_millis": node.used.cpu_millis,
        "memory_free_mib": node.total.memory_mib - node.used.memory_mib,
        "disk_free_mib": node.total.disk_mib - node.used.disk_mib,
        **through,
        **{
            f"file_system {one.path}": f"{one.free_mib} of {one.total_mib} MiB free, {one.type or 'unknown'}"
            for one in node.live.file_systems
        },
    }
