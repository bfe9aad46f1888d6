"""A resize is done when the node says so, and otherwise said to have failed, with the limits put back."""

from typing import Any

import msgspec
import pytest

from unit.infrastructure.kubernetes.fake_api import FakeApi, fake_api
from yunhe.infrastructure.kubernetes import resizing
from yunhe.infrastructure.kubernetes.api.client import Api
from yunhe.infrastructure.kubernetes.api.kubeconfig import Access
from yunhe.infrastructure.kubernetes.api.shapes import Pod
from yunhe.infrastructure.kubernetes.objects import names
from yunhe.infrastructure.kubernetes.resizing import resize_pod
from yunhe.infrastructure.kubernetes.target import ClusterSettings
from yunhe.kernel.errors import ConflictError
from yunhe.kernel.resources import Resources

BEFORE = {"cpu": "100m", "memory": "64Mi"}
WANTED = Resources(cpu_millis=200, memory_mib=128)
RESIZE = "/api/v1/namespaces/x/pods/a/resize"

pytestmark = pytest.mark.anyio


def pod(in_force: dict[str, str], *, phase: str = "Running", **condition: str | int) -> Pod:
    body: dict[str, Any] = {
        "metadata": {"name": "a", "namespace": "x"},
        "spec": {"containers": [{"name": names.CONTAINER, "resources": {"limits": BEFORE}}]},
        "status": {
            "phase": phase,
            "conditions": [{"status": "True"} | condition] if condition else [],
            "containerStatuses": [{"name": names.CONTAINER, "resources": {"limits": in_force}}],
        },
    }
    return msgspec.convert(body, Pod)


async def resized(server: FakeApi, seen: Pod | None) -> list[dict[str, str]]:
    """Resize while the node says what *seen* says; return the limits that were asked for, one after the other."""
    async with Api(Access(name="fake", server=server.url)) as api:
        await resize_pod(api, pod(BEFORE), WANTED, ClusterSettings(), lambda: seen)
    return asked(server)


def asked(server: FakeApi) -> list[dict[str, str]]:
    return [
        body["spec"]["containers"][0]["resources"]["limits"]
        for _, _, path, body in server.history
        if path == RESIZE
    ]


async def test_limits_that_are_in_force_are_done() -> None:
    async with fake_api() as server:
        assert len(await resized(server, pod({"cpu": "0.2", "memory": "128Mi"}))) == 1


@pytest.mark.parametrize(
    ("seen", "words"),
    [
        pytest.param(pod(BEFORE), "has not said", id="a node that says nothing"),
        pytest.param(
            pod(BEFORE, type="PodResizePending", reason="Deferred", message="full"), "Deferred.*full"
        ),
        pytest.param(pod(BEFORE, type="PodResizePending", reason="Infeasible"), "Infeasible"),
        pytest.param(
            pod(BEFORE, type="PodResizeInProgress", reason="Error", message="cgroup"), "Error.*cgroup"
        ),
    ],
)
async def test_limits_that_the_node_does_not_give_are_put_back_and_said(
    seen: Pod, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resizing, "DONE_WITHIN_S", 0.3)
    async with fake_api() as server:
        with pytest.raises(ConflictError, match=words):
            await resized(server, seen)
        assert asked(server)[-1] == BEFORE
        assert len(asked(server)) == 2


async def test_what_the_node_said_of_limits_asked_for_before_is_no_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(resizing, "DONE_WITHIN_S", 0.3)
    async with fake_api() as server:
        server.put(RESIZE, {"metadata": {"generation": 5}})
        for generation, words in ((4, "has not said"), (5, "Deferred")):
            with pytest.raises(ConflictError, match=words):
                await resized(
                    server,
                    pod(BEFORE, type="PodResizePending", reason="Deferred", observedGeneration=generation),
                )


@pytest.mark.parametrize("seen", [None, pod(BEFORE, phase="Succeeded")])
async def test_a_pod_that_ends_meanwhile_has_no_new_limits(seen: Pod | None) -> None:
    async with fake_api() as server:
        with pytest.raises(ConflictError, match="ended"):
            await resized(server, seen)
