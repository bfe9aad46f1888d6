"""One try at placing a graph: the hot loop. Compiled by Numba when it is loaded; plain Python gives the same answers.

Components are taken in the order of how much bandwidth ties them to those already placed. Each goes to the node from
which its ties cost least, over links that still have room; then its ties are routed. A link's cost grows as it fills,
so that the last room on it is kept for those who have no other way.
"""

import math
from typing import Any

import numpy as np

from yunhe.scheduling.decision.graphs.model import FloatArray, IntArray

UNREACHED = math.inf


def cheapest_ways(
    start: int, need: float, free: FloatArray, price: FloatArray, wires: tuple[IntArray, IntArray, IntArray]
) -> tuple[FloatArray, IntArray]:
    """Return the cost of the cheapest way from *start* to every node over links with room for *need*, and its last link."""
    first, neighbour, number = wires
    nodes = first.shape[0] - 1
    cost = np.full(nodes, UNREACHED)
    last = np.full(nodes, -1, np.int64)
    done = np.zeros(nodes, np.bool_)
    cost[start] = 0.0
    for _ in range(nodes):
        at = -1
        for node in range(nodes):
            if not done[node] and cost[node] < UNREACHED and (at < 0 or cost[node] < cost[at]):
                at = node
        if at < 0:
            break
        done[at] = True
        for slot in range(first[at], first[at + 1]):
            link = number[slot]
            if free[link] < need:
                continue
            there = neighbour[slot]
            reached = cost[at] + price[link]
            if reached < cost[there]:
                cost[there] = reached
                last[there] = link
    return cost, last


def fill_prices(free: FloatArray, total: FloatArray, steepness: float, price: FloatArray) -> None:
    """Write what one unit of bandwidth costs on each link: 1 when it is empty, more as it fills."""
    for link in range(free.shape[0]):
        used = 1.0 - free[link] / total[link] if total[link] > 0 else 1.0
        price[link] = 1.0 + steepness * used * used


def next_component(placed: IntArray, ties: FloatArray, weight: FloatArray) -> int:
    """Return the component tied most strongly to those placed; the heaviest when none is tied."""
    best, best_tie, best_weight = -1, -1.0, -1.0
    for u in range(placed.shape[0]):
        if placed[u] >= 0:
            continue
        tie = 0.0
        for v in range(placed.shape[0]):
            if placed[v] >= 0:
                tie += ties[u, v]
        if tie > best_tie or (tie == best_tie and weight[u] > best_weight):
            best, best_tie, best_weight = u, tie, weight[u]
    return best


def try_once(  # noqa: PLR0913, PLR0917 - arrays of a compiled kernel; a struct would cost its speed
    need: tuple[FloatArray, FloatArray],
    allowed: Any,
    links: tuple[IntArray, FloatArray],
    room: tuple[FloatArray, FloatArray, FloatArray],
    totals: tuple[FloatArray, FloatArray],
    wires: tuple[IntArray, IntArray, IntArray],
    noise: FloatArray,
    settings: tuple[float, float, float, float],
    out: tuple[IntArray, IntArray, IntArray],
) -> float:
    """Write a placement to *out* (nodes, length of each path, paths) and return its cost; -1 when this try found none."""
    cpu, storage = need
    link_ends, bandwidth = links
    cpu_free, storage_free, free = room[0].copy(), room[1].copy(), room[2].copy()
    cpu_total, link_total = totals
    steepness, openness, spare, distinct = settings
    nodes_out, lengths, paths = out
    count, nodes = cpu.shape[0], cpu_free.shape[0]
    ties = np.zeros((count, count))
    for k in range(bandwidth.shape[0]):
        a, b = link_ends[k, 0], link_ends[k, 1]
        ties[a, b] += bandwidth[k]
        ties[b, a] += bandwidth[k]
    weight = ties.sum(axis=1) + 1e-3 * cpu + noise[:, nodes]
    nodes_out[:] = -1
    price = np.empty(free.shape[0])
    total_cost = 0.0
    for _ in range(count):
        u = next_component(nodes_out, ties, weight)
        fill_prices(free, link_total, steepness, price)
        best = choose_node(
            u, (cpu, storage), allowed, (cpu_free, storage_free, free), cpu_total, wires, price,
            (link_ends, bandwidth), ties, nodes_out, noise, (openness, spare, distinct),
        )  # fmt: skip
        if best < 0:
            return -1.0
        nodes_out[u] = best
        cpu_free[best] -= cpu[u]
        storage_free[best] -= storage[u]
        cost = route_ties(
            u, (link_ends, bandwidth), nodes_out, free, link_total, wires, steepness, (lengths, paths)
        )
        if cost < 0.0:
            return -1.0
        total_cost += cost
    return total_cost


def choose_node(  # noqa: PLR0913, PLR0917 - as above
    u: int,
    need: tuple[FloatArray, FloatArray],
    allowed: Any,
    room: tuple[FloatArray, FloatArray, FloatArray],
    cpu_total: FloatArray,
    wires: tuple[IntArray, IntArray, IntArray],
    price: FloatArray,
    links: tuple[IntArray, FloatArray],
    ties: FloatArray,
    placed: IntArray,
    noise: FloatArray,
    settings: tuple[float, float, float],
) -> int:
    """Return the node where component *u* costs least; -1 when none can take it."""
    cpu_free, storage_free, free = room
    openness, spare, distinct = settings
    first, _neighbour, number = wires
    nodes = cpu_free.shape[0]
    score = np.zeros(nodes)
    for node in range(nodes):
        if not allowed[u, node] or cpu_free[node] < need[0][u] or storage_free[node] < need[1][u]:
            score[node] = UNREACHED
    loose = 0.0
    for v in range(placed.shape[0]):
        if placed[v] < 0:
            loose += ties[u, v]
        elif distinct > 0:
            score[placed[v]] = UNREACHED
    link_ends, bandwidth = links
    for k in range(bandwidth.shape[0]):
        other = link_ends[k, 1] if link_ends[k, 0] == u else link_ends[k, 0] if link_ends[k, 1] == u else -1
        if other < 0 or placed[other] < 0:
            continue
        cost, _last = cheapest_ways(int(placed[other]), bandwidth[k], free, price, wires)
        for node in range(nodes):
            score[node] += bandwidth[k] * cost[node]
    best, best_score = -1, UNREACHED
    for node in range(nodes):
        if score[node] == UNREACHED:
            continue
        around = 0.0
        for slot in range(first[node], first[node + 1]):
            around += free[number[slot]]
        if around < loose:
            continue
        crowded = (need[0][u] + cpu_total[node] - cpu_free[node]) / max(cpu_total[node], 1e-9)
        total = (score[node] + openness * loose / (1.0 + around / (loose + 1e-9)) + spare * crowded) * noise[
            u, node
        ]
        if total < best_score:
            best, best_score = node, total
    return best


def route_ties(  # noqa: PLR0913, PLR0917 - as above
    u: int,
    links: tuple[IntArray, FloatArray],
    placed: IntArray,
    free: FloatArray,
    link_total: FloatArray,
    wires: tuple[IntArray, IntArray, IntArray],
    steepness: float,
    out: tuple[IntArray, IntArray],
) -> float:
    """Route every tie between *u* and those placed, the widest first, taking its bandwidth; -1 when one has no way."""
    link_ends, bandwidth = links
    lengths, paths = out
    first, neighbour, number = wires
    price = np.empty(free.shape[0])
    total = 0.0
    routed = np.zeros(bandwidth.shape[0], np.bool_)
    while True:
        widest = -1
        for k in range(bandwidth.shape[0]):
            touches = link_ends[k, 0] == u or link_ends[k, 1] == u
            ready = placed[link_ends[k, 0]] >= 0 and placed[link_ends[k, 1]] >= 0
            if touches and ready and not routed[k] and (widest < 0 or bandwidth[k] > bandwidth[widest]):
                widest = k
        if widest < 0:
            return total
        routed[widest] = True
        begin, end = int(placed[link_ends[widest, 0]]), int(placed[link_ends[widest, 1]])
        fill_prices(free, link_total, steepness, price)
        cost, last = cheapest_ways(begin, bandwidth[widest], free, price, wires)
        if cost[end] == UNREACHED:
            return -1.0
        length, at = 0, end
        while at != begin:
            link = last[at]
            paths[widest, length] = link
            free[link] -= bandwidth[widest]
            total += bandwidth[widest] * price[link]
            length += 1
            for slot in range(first[at], first[at + 1]):
                if number[slot] == link:
                    at = neighbour[slot]
                    break
        lengths[widest] = length
        # Written from the far end: turned round so that a path reads from its link's source.
        for i in range(length // 2):
            paths[widest, i], paths[widest, length - 1 - i] = paths[widest, length - 1 - i], paths[widest, i]
