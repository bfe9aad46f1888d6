"""New limits for a running pod, in place; what the node cannot give is taken back and said."""

from collections.abc import Callable

import anyio

from yunhe.infrastructure.kubernetes.api.answers import decode
from yunhe.infrastructure.kubernetes.api.client import STRATEGIC_PATCH, Api
from yunhe.infrastructure.kubernetes.api.shapes import Pod
from yunhe.infrastructure.kubernetes.objects import names
from yunhe.infrastructure.kubernetes.objects.phases import container_of, is_over
from yunhe.infrastructure.kubernetes.objects.pods import amounts, path_of
from yunhe.infrastructure.kubernetes.objects.quantities import parse_quantity
from yunhe.infrastructure.kubernetes.target import ClusterSettings
from yunhe.kernel.errors import ConflictError, InvalidInputError
from yunhe.kernel.resources import Resources

DONE_WITHIN_S = 10.0
LOOK_EVERY_S = 0.1
LIVE = ("cpu", "memory")


async def resize_pod(
    api: Api, pod: Pod, resources: Resources, settings: ClusterSettings, look: Callable[[], Pod | None]
) -> None:
    """Change the limits of *pod* and wait until its node has agreed; undo it where the node does not."""
    before = _asked(pod)
    after = {name: text for name, text in amounts(resources, settings).items() if name in LIVE}
    if set(after) != {name for name in before if name in LIVE}:
        raise InvalidInputError(
            "Kubernetes keeps a pod's class of service: a limit cannot come or go, only change."
        )
    generation = await _patch(api, pod, after)
    refusal: ConflictError | None = _no_answer()
    with anyio.move_on_after(DONE_WITHIN_S):
        refusal = await _answer(after, generation, look)
    if refusal is not None:
        await _patch(api, pod, {name: before[name] for name in LIVE if name in before})
        raise refusal


def _no_answer() -> ConflictError:
    return ConflictError(
        f"The node has not said in {DONE_WITHIN_S:g} s whether it gives the new limits; they are as they were.",
        remedy="Look whether the node's kubelet is well, then try again.",
    )


async def _answer(
    wanted: dict[str, str], generation: int, look: Callable[[], Pod | None]
) -> ConflictError | None:
    """Wait until the node has said something; return why not, or None once the limits are those *wanted*.

    What it said of an earlier *generation* is about limits that were asked for before.
    """
    while True:
        now = look()
        if now is None or is_over(now):
            raise ConflictError("The allocation ended before its node had agreed to new limits.")
        if _in_force(now, wanted):
            return None
        pending = now.status.condition("PodResizePending")
        failing = now.status.condition("PodResizeInProgress")
        trouble = pending or (failing if failing is not None and failing.reason == "Error" else None)
        if trouble is not None and (trouble.observed_generation or generation) >= generation:
            return ConflictError(
                f"The node does not give the new limits ({trouble.reason}): {trouble.message or 'no message'}.",
                remedy="Deferred: try again when others have left the node. Infeasible: move the allocation.",
            )
        await anyio.sleep(LOOK_EVERY_S)


async def _patch(api: Api, pod: Pod, wanted: dict[str, str]) -> int:
    """Ask for limits; return the generation of the pod that has them."""
    container = {"name": names.CONTAINER, "resources": {"requests": wanted, "limits": wanted}}
    body = {"spec": {"containers": [container]}}
    path = path_of("pods", pod.metadata.key, "resize")
    return decode(await api.patch(path, body, content_type=STRATEGIC_PATCH), Pod).metadata.generation


def _asked(pod: Pod) -> dict[str, str]:
    return next((one.resources.limits for one in pod.spec.containers if one.name == names.CONTAINER), {})


def _in_force(pod: Pod, wanted: dict[str, str]) -> bool:
    """Return whether the node says that the limits are those wanted."""
    state = container_of(pod)
    actual = state.resources.limits if state is not None and state.resources is not None else {}
    return all(
        name in actual and parse_quantity(actual[name]) == parse_quantity(text)
        for name, text in wanted.items()
    )
