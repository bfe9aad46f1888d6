"""Pods run as real processes through the real scheduler, controllers and API server."""

import base64
import time
from collections.abc import Generator
from pathlib import Path

import httpx
import pytest

from engines.kubernetes.asking import (
    JOBS,
    PODS,
    Object,
    condition,
    container,
    create,
    ended,
    log,
    pod,
    running,
    state,
    wait_for,
    wait_for_log,
    wait_gone,
)
from engines.kubernetes.cluster import Cluster
from engines.kubernetes.kubelet.resize import ORDERED

pytestmark = [
    pytest.mark.engine,
    pytest.mark.drives("kube-apiserver", "kube-scheduler", "kube-controller-manager", "etcd"),
]
DEFAULT = "/api/v1/namespaces/default"


@pytest.fixture
def client(kubernetes_cluster: Cluster) -> Generator[httpx.Client]:
    with kubernetes_cluster.client() as made:
        yield made


def sized(cpu: str, memory: str) -> Object:
    """Return resources that are requested and limited alike."""
    amounts = {"cpu": cpu, "memory": memory}
    return {"requests": amounts, "limits": amounts}


def test_a_job_runs_to_completion(client: httpx.Client, kubernetes_cluster: Cluster) -> None:
    began_s = time.monotonic()
    template = {"spec": {"restartPolicy": "Never", "containers": [container("echo done by $(hostname)")]}}
    create(client, JOBS, {"metadata": {"name": "whole"}, "spec": {"template": template}})
    job = wait_for(client, f"{JOBS}/whole", lambda seen: condition(seen, "Complete").get("status") == "True")
    assert job["status"]["succeeded"] == 1
    print(f"job complete in {time.monotonic() - began_s:.1f} s; MiB {kubernetes_cluster.resident_mib()}")
    (made,) = client.get(PODS, params={"labelSelector": "job-name=whole"}).json()["items"]
    assert log(client, made["metadata"]["name"]) == f"done by {made['metadata']['name']}\n"


def test_a_job_whose_pods_fail_is_tried_again_and_then_fails(client: httpx.Client) -> None:
    template = {"spec": {"restartPolicy": "Never", "containers": [container("exit 5")]}}
    create(
        client, JOBS, {"metadata": {"name": "hopeless"}, "spec": {"backoffLimit": 1, "template": template}}
    )
    job = wait_for(client, f"{JOBS}/hopeless", lambda seen: condition(seen, "Failed").get("status") == "True")
    assert job["status"]["failed"] == 2
    pods = client.get(PODS, params={"labelSelector": "job-name=hopeless"}).json()["items"]
    assert {state(one)["terminated"]["exitCode"] for one in pods} == {5}


def test_the_end_says_how_it_came(client: httpx.Client) -> None:
    create(client, PODS, pod("ends-3", "exit 3"))
    create(client, PODS, pod("not-there", "", command=["/no/such/program"]))
    said = state(ended(client, "ends-3"))["terminated"]
    assert (said["exitCode"], said["reason"]) == (3, "Error")
    said = state(ended(client, "not-there"))["terminated"]
    assert (said["exitCode"], said["reason"]) == (128, "StartError")


def test_the_last_words_of_a_container_are_told_and_are_its_own(client: httpx.Client) -> None:
    create(
        client,
        PODS,
        pod("speaks", "echo -n last > /dev/termination-log; echo -n ' words' >> /dev/termination-log"),
    )
    create(
        client, PODS, pod("elsewhere", "echo -n here > /tmp/note; exit 1", terminationMessagePath="/tmp/note")
    )
    create(client, PODS, pod("silent", "true"))
    told = {name: state(ended(client, name))["terminated"] for name in ("speaks", "elsewhere", "silent")}
    assert (told["speaks"]["message"], told["elsewhere"]["message"]) == ("last words", "here")
    assert "message" not in told["silent"]


def test_a_process_over_its_memory_limit_is_killed_for_it(client: httpx.Client) -> None:
    script = "exec python3 -c 'bytearray(200 << 20)'"
    create(client, PODS, pod("over-memory", script, resources={"limits": {"memory": "32Mi"}}))
    said = state(ended(client, "over-memory"))["terminated"]
    assert (said["exitCode"], said["reason"]) == (137, "OOMKilled")


def test_a_container_that_fails_is_started_again_in_its_pod(client: httpx.Client) -> None:
    volumes = {"volumes": [{"name": "kept", "emptyDir": {}}], "restartPolicy": "OnFailure"}
    script = "echo try; test -e /kept/mark && exit 0; touch /kept/mark; exit 1"
    mounts = [{"name": "kept", "mountPath": "/kept"}]
    create(client, PODS, pod("second-try", script, volumes, volumeMounts=mounts))
    seen = ended(client, "second-try")
    assert seen["status"]["phase"] == "Succeeded"
    assert seen["status"]["containerStatuses"][0]["restartCount"] == 1
    assert seen["status"]["containerStatuses"][0]["lastState"]["terminated"]["exitCode"] == 1


def test_configuration_and_secrets_arrive_as_environment_and_files(client: httpx.Client) -> None:
    create(client, f"{DEFAULT}/configmaps", {"metadata": {"name": "words"}, "data": {"GREETING": "hello"}})
    secret = {"metadata": {"name": "hidden"}, "data": {"key": base64.b64encode(b"sesame").decode()}}
    create(client, f"{DEFAULT}/secrets", secret)
    spec = {
        "volumes": [
            {"name": "words", "configMap": {"name": "words"}},
            {"name": "hidden", "secret": {"secretName": "hidden", "defaultMode": 0o400}},
        ]
    }
    more = {
        "env": [
            {"name": "SECRET", "valueFrom": {"secretKeyRef": {"name": "hidden", "key": "key"}}},
            {"name": "ME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            {"name": "BOTH", "value": "$(GREETING) $(ME)"},
        ],
        "envFrom": [{"configMapRef": {"name": "words"}}],
        "volumeMounts": [
            {"name": "words", "mountPath": "/etc/words"},
            {"name": "hidden", "mountPath": "/hidden", "readOnly": True},
        ],
        "workingDir": "/hidden",
    }
    script = "echo $BOTH $SECRET; cat /etc/words/GREETING; echo; cat key; echo; echo no > key || echo refused"
    create(client, PODS, pod("configured", script, spec, **more))
    assert ended(client, "configured")["status"]["phase"] == "Succeeded"
    assert log(client, "configured").splitlines()[:3] == ["hello configured sesame", "hello", "sesame"]
    assert "refused" in log(client, "configured")


def test_pieces_of_binary_data_are_laid_out_where_a_projected_volume_says(client: httpx.Client) -> None:
    for number, data in enumerate([bytes(range(256)), b"\x1f\x8b"]):
        body = {"metadata": {"name": f"piece-{number}"}, "immutable": True}
        body["binaryData"] = {"piece": base64.b64encode(data).decode()}
        create(client, f"{DEFAULT}/configmaps", body)
    sources = [
        {"configMap": {"name": f"piece-{number}", "items": [{"key": "piece", "path": f"1/{number:04d}"}]}}
        for number in (1, 0)
    ]
    volume = {"name": "files", "projected": {"defaultMode": 0o444, "sources": sources}}
    mounts = [{"name": "files", "mountPath": "/files", "readOnly": True}]
    create(
        client, PODS, pod("pieces", "cat /files/1/* | base64 -w0", {"volumes": [volume]}, volumeMounts=mounts)
    )
    assert ended(client, "pieces")["status"]["phase"] == "Succeeded"
    assert base64.b64decode(log(client, "pieces")) == bytes(range(256)) + b"\x1f\x8b"


def test_a_pod_has_a_token_of_its_service_account(client: httpx.Client) -> None:
    create(client, PODS, pod("who-am-i", "cat /var/run/secrets/kubernetes.io/serviceaccount/token"))
    ended(client, "who-am-i")
    review = {"spec": {"token": log(client, "who-am-i")}}
    told = create(client, "/apis/authentication.k8s.io/v1/tokenreviews", review)["status"]
    assert told["user"]["username"] == "system:serviceaccount:default:default"


def test_initialization_comes_first_and_its_failure_is_the_pods(client: httpx.Client) -> None:
    kept = {"volumes": [{"name": "kept", "emptyDir": {}}]}
    mounts = [{"name": "kept", "mountPath": "/kept"}]
    first = container("echo ready > /kept/word", volumeMounts=mounts) | {"name": "first"}
    create(
        client,
        PODS,
        pod("prepared", "cat /kept/word", kept | {"initContainers": [first]}, volumeMounts=mounts),
    )
    broken = container("exit 9") | {"name": "first"}
    create(client, PODS, pod("unprepared", "echo never", {"initContainers": [broken]}))
    assert ended(client, "prepared")["status"]["phase"] == "Succeeded"
    assert log(client, "prepared") == "ready\n"
    seen = ended(client, "unprepared")
    assert seen["status"]["phase"] == "Failed"
    assert state(seen, "initContainerStatuses")["terminated"]["exitCode"] == 9
    assert "waiting" in state(seen)


def test_what_a_pod_writes_stays_off_the_host(client: httpx.Client) -> None:
    mark = "/written-by-a-pod"
    create(client, PODS, pod("writer", f"echo mine > {mark}; cat {mark}"))
    assert ended(client, "writer")["status"]["phase"] == "Succeeded"
    assert log(client, "writer") == "mine\n"
    assert not Path(mark).exists()


def test_a_deadline_ends_a_pod(client: httpx.Client) -> None:
    create(
        client,
        PODS,
        pod("late", "exec sleep 100", {"activeDeadlineSeconds": 2, "terminationGracePeriodSeconds": 1}),
    )
    seen = ended(client, "late")
    assert (seen["status"]["phase"], seen["status"]["reason"]) == ("Failed", "DeadlineExceeded")


def test_deletion_asks_first_and_kills_after_the_grace_period(client: httpx.Client, tmp_path: Path) -> None:
    spec = {"volumes": [{"name": "host", "hostPath": {"path": str(tmp_path)}}]}
    mounts = [{"name": "host", "mountPath": "/host"}]
    polite = "trap 'echo asked > /host/polite; exit 0' TERM; while :; do sleep 0.1; done"
    deaf = "trap '' TERM; while :; do date +%s.%N >> /host/deaf; sleep 0.1; done"
    create(client, PODS, pod("polite", polite, spec, volumeMounts=mounts))
    create(client, PODS, pod("deaf", deaf, spec, volumeMounts=mounts))
    running(client, "polite")
    running(client, "deaf")
    asked_s = time.time()
    for name in ("polite", "deaf"):
        assert client.delete(f"{PODS}/{name}", params={"gracePeriodSeconds": 2}).status_code == 200
    wait_gone(client, f"{PODS}/polite")
    assert (tmp_path / "polite").read_text() == "asked\n"
    wait_gone(client, f"{PODS}/deaf")
    assert 1.5 < float((tmp_path / "deaf").read_text().splitlines()[-1]) - asked_s < 15


def test_a_device_that_no_node_has_left_keeps_a_pod_waiting(client: httpx.Client) -> None:
    def wants(count: int) -> Object:
        return {"resources": {"limits": {"example.com/device": str(count)}}}

    create(client, PODS, pod("two-devices", "exec sleep 100", **wants(2)))
    assert running(client, "two-devices")["spec"]["nodeName"] == "node-2"
    create(client, PODS, pod("one-more", "true", **wants(1)))
    seen = wait_for(client, f"{PODS}/one-more", lambda seen: "message" in condition(seen, "PodScheduled"))
    assert "Insufficient example.com/device" in condition(seen, "PodScheduled")["message"]
    client.delete(f"{PODS}/two-devices", params={"gracePeriodSeconds": 0}).raise_for_status()
    assert ended(client, "one-more")["status"]["phase"] == "Succeeded"


def test_sizes_change_while_the_process_goes_on(client: httpx.Client) -> None:
    script = (
        "v1=/sys/fs/cgroup/memory$(grep :memory: /proc/self/cgroup | cut -d: -f3)/memory.limit_in_bytes;"
        "v2=/sys/fs/cgroup$(grep ^0:: /proc/self/cgroup | cut -d: -f3)/memory.max;"
        "while :; do cat $v1 2>/dev/null || cat $v2; sleep 0.2; done"
    )
    create(client, PODS, pod("grows", script, resources=sized("100m", "64Mi")))
    running(client, "grows")
    wait_for_log(client, "grows", f"{64 << 20}\n")
    body = {"spec": {"containers": [{"name": "main", "resources": sized("200m", "96Mi")}]}}
    resized(client, "grows", body)
    seen = wait_for(
        client,
        f"{PODS}/grows",
        lambda seen: (
            seen["status"]["containerStatuses"][0]["resources"]["limits"] == {"cpu": "200m", "memory": "96Mi"}
        ),
    )
    assert seen["status"]["containerStatuses"][0]["restartCount"] == 0
    assert seen["status"]["containerStatuses"][0]["allocatedResources"]["memory"] == "96Mi"
    assert wait_for_log(client, "grows", f"{96 << 20}\n").startswith(f"{64 << 20}\n"), "its log goes on"


def test_a_resize_without_room_says_whether_waiting_helps(client: httpx.Client) -> None:
    create(
        client, PODS, pod("stuck", "exec sleep 100", {"nodeName": "node-1"}, resources=sized("100m", "64Mi"))
    )
    create(
        client, PODS, pod("beside", "exec sleep 100", {"nodeName": "node-1"}, resources=sized("2", "64Mi"))
    )
    running(client, "stuck")
    running(client, "beside")

    def pending(reason: str) -> None:
        wait_for(
            client, f"{PODS}/stuck", lambda seen: condition(seen, "PodResizePending").get("reason") == reason
        )

    resized(client, "stuck", {"spec": {"containers": [{"name": "main", "resources": sized("100", "64Mi")}]}})
    pending("Infeasible")
    resized(client, "stuck", {"spec": {"containers": [{"name": "main", "resources": sized("3", "64Mi")}]}})
    pending("Deferred")
    client.delete(f"{PODS}/beside", params={"gracePeriodSeconds": 0}).raise_for_status()
    seen = wait_for(client, f"{PODS}/stuck", lambda seen: not condition(seen, "PodResizePending"))
    assert seen["status"]["containerStatuses"][0]["resources"]["limits"]["cpu"] == "3"


def test_a_node_can_be_told_to_refuse_every_resize(client: httpx.Client) -> None:
    def order(reason: str | None) -> None:
        note = {"metadata": {"annotations": {ORDERED: reason}}}
        headers = {"content-type": "application/merge-patch+json"}
        client.patch("/api/v1/nodes/node-1", json=note, headers=headers).raise_for_status()

    create(
        client, PODS, pod("told", "exec sleep 100", {"nodeName": "node-1"}, resources=sized("100m", "64Mi"))
    )
    running(client, "told")
    order("Infeasible")
    resized(client, "told", {"spec": {"containers": [{"name": "main", "resources": sized("200m", "64Mi")}]}})
    wait_for(
        client, f"{PODS}/told", lambda seen: condition(seen, "PodResizePending").get("reason") == "Infeasible"
    )
    order(None)
    resized(client, "told", {"spec": {"containers": [{"name": "main", "resources": sized("300m", "64Mi")}]}})
    seen = wait_for(client, f"{PODS}/told", lambda seen: not condition(seen, "PodResizePending"))
    assert seen["status"]["containerStatuses"][0]["resources"]["limits"]["cpu"] == "300m"


def resized(client: httpx.Client, name: str, body: Object) -> None:
    """Ask for new sizes."""
    headers = {"content-type": "application/strategic-merge-patch+json"}
    answer = client.patch(f"{PODS}/{name}/resize", json=body, headers=headers)
    assert answer.status_code == 200, answer.text


def test_usage_is_what_the_kernel_counted(client: httpx.Client) -> None:
    create(client, PODS, pod("burns", "while :; do :; done", resources={"limits": {"cpu": "200m"}}))
    node = running(client, "burns")["spec"]["nodeName"]

    def cpu_s() -> float:
        pods = client.get(f"/api/v1/nodes/{node}/proxy/stats/summary").json()["pods"]
        (one,) = (one for one in pods if one["podRef"]["name"] == "burns")
        return one["cpu"]["usageCoreNanoSeconds"] / 1e9

    before, began_s = cpu_s(), time.monotonic()
    time.sleep(2)
    rate = (cpu_s() - before) / (time.monotonic() - began_s)
    assert 0.02 < rate < 0.3, "a fifth of a core, or less on a machine that is busy"
    text = client.get(f"/api/v1/nodes/{node}/proxy/metrics/resource").text
    assert 'container_cpu_usage_seconds_total{container="main",namespace="default",pod="burns"}' in text
    client.delete(f"{PODS}/burns", params={"gracePeriodSeconds": 0})
