"""Does what advice says, word for word: as somebody would who reads it and asks again."""

import re
from collections.abc import Callable, Iterator
from itertools import chain

import msgspec

from support.worlds import NOW
from yunhe.kernel.money import MICROS
from yunhe.kernel.resources import Accelerators
from yunhe.kernel.units import parse_cpu_millis, parse_duration_s, parse_memory_mib
from yunhe.scheduling.decision.model import Alternative, Demand, Policy

change = msgspec.structs.replace
Reading = Callable[[Demand, int, "re.Match[str]"], Demand]


def readings_of(demand: Demand, advice: str) -> Iterator[tuple[Demand, list[str]]]:
    """Yield *demand* as one piece of advice has it, for each alternative it may mean, with the phrases that were read."""
    said = re.sub(r"(: [^:]* (has|have) .*|, together.*)$", "", advice)
    for index in range(len(demand.alternatives)):
        asked, read, at = demand, list[str](), 0
        while at < len(said):
            phrase, match = next((p, m) for p in PHRASES if (m := re.compile(p).match(said, at)))
            asked = PHRASES[phrase](asked, index, match)
            read.append(phrase)
            glue = re.compile(r", | and |$").match(said, match.end())
            assert glue, f"cannot read {said[match.end() :]!r}"
            at = max(glue.end(), match.end())
        yield asked, read


def _alternative(demand: Demand, index: int, **new: object) -> Demand:
    ones = list(demand.alternatives)
    ones[index] = change(ones[index], **new)
    return change(demand, alternatives=tuple(ones))


def _amounts(demand: Demand, index: int, match: "re.Match[str]") -> Demand:
    one = demand.alternatives[index]
    amount, devices, up_to = one.resources, list(one.resources.accelerators), one.up_to
    for part in match[1].removesuffix(" each").split(" and "):
        if part.endswith((" core", " cores")):
            amount = change(amount, cpu_millis=parse_cpu_millis(part.partition(" core")[0]))
        elif part.endswith(" of memory"):
            amount = change(amount, memory_mib=parse_memory_mib(part.removesuffix(" of memory")))
        elif part.endswith(" of disk"):
            amount = change(amount, disk_mib=parse_memory_mib(part.removesuffix(" of disk")))
        else:
            number, kind, memory = re.fullmatch(r"([\d.]+) × (\S+)(?: with (.*))?", part).groups()  # pyright: ignore[reportOptionalMemberAccess]
            at = next((at for at, wanted in enumerate(devices) if wanted.kind == kind), None)
            if at is None:
                return demand  # this piece is not about this alternative
            mib = parse_memory_mib(memory) if memory else devices[at].memory_mib
            devices[at] = Accelerators(kind, round(float(number) * 1000), mib)
            up_to = None if up_to is None else change(up_to, accelerators=())
    return _alternative(demand, index, resources=change(amount, accelerators=tuple(devices)), up_to=up_to)


def _moved(field: str, name: str, **new: object) -> Callable[[Demand], Demand]:
    def apply(demand: Demand) -> Demand:
        key = "dataset" if field == "data" else "site"
        kept = [change(one, **new) if getattr(one, key) == name else one for one in getattr(demand, field)]
        return change(demand, **{field: tuple(kept)})

    return apply


def _regions(demand: Demand, match: "re.Match[str]") -> Demand:
    return change(demand, residency=(*demand.residency, *match[1].split(" and ")))


def _do_without(demand: Demand, match: "re.Match[str]") -> Demand:
    given_up = set(match[1].split(" and "))
    return change(
        demand,
        powers=tuple(power for power in demand.powers if power not in given_up),
        where=tuple(label for label in demand.where if label not in given_up),
    )


def _beside(demand: Demand, match: "re.Match[str]") -> Demand:
    apart = match[1] == "beside"
    kept = (one for one in demand.affinity if one.group != match[2] or one.apart != apart)
    return change(demand, affinity=tuple(kept))


def _micros(text: str) -> int:
    return round(float(text) * MICROS)


def _with(**fields: object) -> Reading:
    return lambda demand, _index, _match: change(demand, **fields)


def _own(demand: Demand) -> Demand:
    kept = tuple(one for one in demand.affinity if not (one.apart and one.group in demand.groups))
    return change(demand, spread=None, affinity=kept)


_AMOUNT = r"[\d.]+ (?:cores?|[MGT]iB of (?:memory|disk)|× \S+(?<!,)(?: with [\d.]+ [MGT]iB)?)"
_TAINT = r"(?:maintenance|gpu=only|spot)"
_WHAT = r"(?:images|resize|disk!?=\w+)"

PHRASES: dict[str, Reading] = {
    r"allow pool (\S+)": lambda d, i, m: _alternative(d, i, pools=(*d.alternatives[i].pools, m[1])),
    rf"tolerate ({_TAINT}(?:, {_TAINT})*)": lambda d, i, m: change(
        d, tolerations=(*d.tolerations, *m[1].split(", "))
    ),
    r"allow any level": _with(levels=()),
    r"allow level (\w+)": lambda d, i, m: change(d, levels=(*d.levels, m[1])),
    r"do without dataset (\w+)": lambda d, i, m: change(
        d, data=tuple(one for one in d.data if one.dataset != m[1])
    ),
    r"do without traffic with (\w+)": lambda d, i, m: change(
        d, traffic=tuple(one for one in d.traffic if one.site != m[1])
    ),
    rf"do without ({_WHAT}(?: and {_WHAT})*)": lambda d, i, m: _do_without(d, m),
    r"allow any region": _with(residency=()),
    r"allow regions? ((?:cn|eu)-\w+(?: and (?:cn|eu)-\w+)*)": lambda d, i, m: _regions(d, m),
    r"allow it (beside|away from) (\w+)": lambda d, i, m: _beside(d, m),
    r"allow more of (\w+) together": _with(spread=None),
    r"allow any architecture": _with(isa=()),
    r"allow any latency to (\w+)": lambda d, i, m: _moved("traffic", m[1], max_latency_ms=None)(d),
    r"allow (\d+) ms to (\w+)": lambda d, i, m: _moved("traffic", m[2], max_latency_ms=float(m[1]))(d),
    r"allow (amd64|arm64|riscv64)": lambda d, i, m: change(d, isa=(*d.isa, m[1])),
    r"no budget/h": _with(budget_per_hour_micros=None),
    r"no budget": _with(budget_micros=None),
    r"a budget of ¥([\d.]+)/h": lambda d, i, m: change(d, budget_per_hour_micros=_micros(m[1])),
    r"a budget of ¥([\d.]+)": lambda d, i, m: change(d, budget_micros=_micros(m[1])),
    r"a deadline (.+?) from now": lambda d, i, m: change(d, deadline_at=NOW + parse_duration_s(m[1])),
    r"no reliability asked for": _with(reliability_min=None),
    r"a reliability of ([\d.]+) %": lambda d, i, m: change(d, reliability_min=float(m[1]) / 100),
    r"any latency": _with(max_latency_ms=None),
    r"use policy balanced": _with(policy=Policy.BALANCED),
    r"a latency of (\d+) ms": lambda d, i, m: change(d, max_latency_ms=float(m[1])),
    r"let its members run beside each other": lambda d, i, m: _own(d),
    r"let its members run in several pools": _with(one_pool=False),
    r"ask for (\d+) members?": lambda d, i, m: change(d, members=int(m[1]), members_min=None),
    r"ask for ([\d.]+) Mbit/s with (\w+)": lambda d, i, m: _moved("traffic", m[2], mbps=float(m[1]))(d),
    r"reserve no bandwidth for (\w+)": lambda d, i, m: _moved("data", m[1], rate_mbps=None)(d),
    r"bring (\w+) with ([\d.]+) Mbit/s": lambda d, i, m: _moved("data", m[1], rate_mbps=float(m[2]))(d),
    rf"ask for ({_AMOUNT}(?: and {_AMOUNT})*(?: each)?)": _amounts,
}


def bare(demand: Demand) -> Demand:
    """As little as can be asked for without asking for something else, and nothing demanded of where it is."""

    def least(one: Alternative) -> Alternative:
        amount = one.resources
        devices = [Accelerators(w.kind, min(1, w.milli), min(1, w.memory_mib)) for w in amount.accelerators]
        return Alternative(
            change(
                amount,
                cpu_millis=min(1, amount.cpu_millis),
                memory_mib=min(1, amount.memory_mib),
                disk_mib=min(1, amount.disk_mib),
                accelerators=tuple(devices),
            )
        )

    return Demand(
        job_id=demand.job_id,
        project_id=demand.project_id,
        alternatives=tuple(map(least, demand.alternatives)),
        tolerations=("*",),
    )


def phrases_of(demand: Demand, advice: str) -> set[str]:
    """Which phrases a whole sentence of advice has."""
    parts = advice.split(", or ")
    return set(chain.from_iterable(read for part in parts for _, read in readings_of(demand, part)))
