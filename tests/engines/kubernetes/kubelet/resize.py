"""Whether a node has room for the new sizes of a pod that runs there."""

from collections.abc import Iterable
from decimal import Decimal
from typing import NamedTuple

from engines.kubernetes.kubelet.access import Object
from engines.kubernetes.kubelet.quantities import parse

ORDERED = "test-kubelet/resize"
"""An annotation on a Node: with Deferred or Infeasible, its kubelet refuses every resize with that reason."""


class Refused(NamedTuple):
    """Why a resize waits, in the words of the API."""

    reason: str
    message: str


def refusal(node: Object, wanted: Object, others: Iterable[Object]) -> Refused | None:
    """Return why *wanted* (a pod's specification) cannot be had now beside *others*; None if it can."""
    order = node["metadata"].get("annotations", {}).get(ORDERED)
    if order:
        return Refused(order, f"the annotation {ORDERED} says so")
    allocatable = node["status"]["allocatable"]
    taken = [_requests(spec) for spec in others]
    for name, amount in _requests(wanted).items():
        whole = parse(allocatable.get(name, 0))
        if amount > whole:
            return Refused(
                "Infeasible",
                f"Node didn't have enough capacity: {name}, requested: {amount}, capacity: {whole}",
            )
        if amount + sum(pod.get(name, Decimal(0)) for pod in taken) > whole:
            return Refused(
                "Deferred",
                f"Node didn't have enough resource: {name}, requested: {amount}, capacity: {whole}",
            )
    return None


def _requests(spec: Object) -> dict[str, Decimal]:
    total: dict[str, Decimal] = {}
    for container in spec["containers"]:
        for name, amount in container.get("resources", {}).get("requests", {}).items():
            total[name] = total.get(name, Decimal(0)) + parse(amount)
    return total
