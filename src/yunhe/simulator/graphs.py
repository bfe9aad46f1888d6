"""A stream of component graphs played on its network: each is placed whole when it comes, and leaves when its time is over."""

import time
from collections.abc import Callable

import msgspec
import numpy as np

from yunhe.scheduling.decision.graphs.constraints import violations
from yunhe.scheduling.decision.graphs.model import Embedded, Graph, GraphDecision
from yunhe.scheduling.decision.graphs.place import Search, Wiring, place_graph
from yunhe.simulator.streams import StreamEvent, WorkloadStream

TELL_EVERY = 20

Listener = Callable[[int, StreamEvent, GraphDecision], None]
"""Told of each arrival: its number among the events, the event, and what came of it."""


class StreamReport(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a stream."""

    stream: str
    tries: int
    requests: int
    accepted: int
    revenue_share: float
    """Of all that was asked for, weighed by how long it stays."""
    revenue_to_cost: float
    """What was asked for ÷ what it took: every further link of a path costs its bandwidth again."""
    ms_p50: float
    ms_p99: float

    @property
    def accepted_share(self) -> float:
        """Return how many of the requests were placed."""
        return self.accepted / self.requests


def search_of(tries: int) -> Search:
    """Return how hard to look; one try is the plain greedy, without a second look at what fails."""
    return Search(tries=tries, more_tries=0 if tries == 1 else Search().more_tries)


def replay(
    stream: WorkloadStream,
    *,
    tries: int = Search().tries,
    seed: int = 0,
    listener: Listener | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> StreamReport:
    """Place every request in the order of its events; the same arguments give the same placements."""
    network, wiring, search = stream.network, Wiring(stream.network), search_of(tries)
    place_graph(next(iter(stream.graphs.values())), network, search=search, wiring=wiring)  # compiled untimed
    held: dict[int, Embedded] = {}
    milliseconds: list[float] = []
    accepted = 0
    revenue = offered = cost = 0.0
    for number, event in enumerate(stream.events):
        graph, lasts = stream.graphs[event.request], stream.lifetimes[event.request]
        if not event.arrives:
            if event.request in held:
                network = network.after(held.pop(event.request), graph, sign=1.0)
            continue
        offered += worth_of(graph) * lasts
        began = time.perf_counter()
        answer = place_graph(graph, network, seed=seed + event.request, search=search, wiring=wiring)
        milliseconds.append((time.perf_counter() - began) * 1000)
        if isinstance(answer, Embedded):
            problems = violations(graph, network, answer)
            if problems:
                raise AssertionError(f"request {event.request} breaks {problems}")
            network = network.after(answer, graph)
            held[event.request] = answer
            accepted += 1
            revenue += worth_of(graph) * lasts
            used = sum(k.bandwidth * len(p) for k, p in zip(graph.links, answer.paths, strict=True))
            cost += (sum(c.cpu for c in graph.components) + used) * lasts
        if listener is not None:
            listener(number, event, answer)
        if progress is not None and len(milliseconds) % TELL_EVERY == 0:
            progress(len(milliseconds), len(stream.graphs))
    p50, p99 = np.percentile(milliseconds, [50, 99])
    return StreamReport(
        stream=stream.name,
        tries=tries,
        requests=len(milliseconds),
        accepted=accepted,
        revenue_share=revenue / offered if offered else 0.0,
        revenue_to_cost=revenue / cost if cost else 0.0,
        ms_p50=float(p50),
        ms_p99=float(p99),
    )


def worth_of(graph: Graph) -> float:
    """Return all that a graph asks for, cores and bandwidth together."""
    return sum(c.cpu for c in graph.components) + sum(k.bandwidth for k in graph.links)
