"""The value of a placement: α_V·φ_B(η_V) + α_E·φ_B(η_E) + α_p·φ_E(P, w), with its open symbols defined here.

η_V and η_E are how much of each node's compute and of each link's bandwidth is in use once the placement stands.
φ_B(η) = 1 − max(η): balance, 1 when nothing is used and 0 when something is used up. P is the power of the nodes that are
on (w = 1: something runs there) and φ_E = 1 − P / P_all, where P_all is the power of every node on and busy: 1 when all is
off. Each of the three lies in [0, 1], so the weights mean what they say.
"""

import msgspec
import numpy as np

from yunhe.scheduling.decision.graphs.model import Embedded, FloatArray, Graph, SubstrateNetwork


class Weights(msgspec.Struct, frozen=True, kw_only=True):
    """How much balance of nodes, balance of links and energy count."""

    nodes: float = 1.0
    links: float = 1.0
    energy: float = 1.0


IDLE_SHARE = 0.5
"""Power of a node that is on and idle, as a share of its power when busy."""


def value(
    graph: Graph, network: SubstrateNetwork, embedding: Embedded, weights: Weights | None = None
) -> float:
    """Return the value of a placement on *network* as it is free now."""
    weights = weights or Weights()
    then = network.after(embedding, graph)
    nodes = _use(then.cpu_total, then.cpu_free)
    links = _use(then.bandwidth_total, then.bandwidth_free)
    return (
        weights.nodes * balance(nodes)
        + weights.links * balance(links)
        + weights.energy * energy_saved(then, nodes)
    )


def balance(use: FloatArray) -> float:
    """Return φ_B."""
    return 1.0 - float(use.max(initial=0.0))


def energy_saved(network: SubstrateNetwork, use: FloatArray) -> float:
    """Return φ_E; a node's power grows with its size."""
    on = use > 0
    power = float((network.cpu_total * (IDLE_SHARE * on + (1 - IDLE_SHARE) * use)).sum())
    return 1.0 - power / float(network.cpu_total.sum())


def _use(total: FloatArray, free: FloatArray) -> FloatArray:
    return np.divide(total - free, total, out=np.zeros_like(total), where=total > 0)
