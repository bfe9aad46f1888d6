"""The value of a placement: α_V·φ_B(η_V) + α_E·φ_B(η_E) + α_p·φ_E(P, w), with its open symbols defined here.

η_V and η_E are how much of each node's compute and of each link's bandwidth is in use once the placement stands.
φ_B(η) = 1 − max(η): balance, 1 when nothing is used and 0 when something is used up. P is the power of the nodes that are
on (w = 1: something runs there) and φ_E = 1 − P / P_all, where P_all is the power of every node on and busy: 1 when all is
off. Each of the three lies in [0, 1], so the weights mean what they say.
"""

import numpy as np

from yunhe.scheduling.decision.graphs.model import Embedded, FloatArray, Graph, SubstrateNetwork
from yunhe.scheduling.decision.model import GraphObjective, GraphValue

IDLE_SHARE = 0.5
"""Power of a node that is on and idle, as a share of its power when busy, where neither is known."""


def value(
    graph: Graph, network: SubstrateNetwork, embedding: Embedded, objective: GraphObjective
) -> GraphValue:
    """Return what a placement on *network* as it is free now is worth."""
    then = network.after(embedding, graph)
    use = _use(then.cpu_total, then.cpu_free)
    nodes = balance(use)
    links = balance(_use(then.bandwidth_total, then.bandwidth_free))
    energy = energy_saved(then, use)
    total = objective.nodes * nodes + objective.links * links + objective.energy * energy
    return GraphValue(nodes=nodes, links=links, energy=energy, total=total)


def balance(use: FloatArray) -> float:
    """Return φ_B."""
    return 1.0 - float(use.max(initial=0.0))


def energy_saved(network: SubstrateNetwork, use: FloatArray) -> float:
    """Return φ_E; where watts are not known of every node, a node's power grows with its size. Where none draws any, 1."""
    idle, full = network.watts or (IDLE_SHARE * network.cpu_total, network.cpu_total)
    power = float((idle * (use > 0) + (full - idle) * use).sum())
    most = float(full.sum())
    return 1.0 - power / most if most > 0 else 1.0


def _use(total: FloatArray, free: FloatArray) -> FloatArray:
    return np.divide(total - free, total, out=np.zeros_like(total), where=total > 0)
