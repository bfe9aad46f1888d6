"""Logs and commands travel through the API server to the process and back."""

import datetime as dt
import time
from collections.abc import Generator

import httpx
import pytest

from engines.kubernetes.asking import (
    PODS,
    Object,
    container,
    create,
    ended,
    execute,
    log,
    pod,
    running,
    wait_for,
    wait_gone,
)
from engines.kubernetes.cluster import Cluster

pytestmark = [pytest.mark.engine, pytest.mark.drives("kube-apiserver", "kube-scheduler", "etcd")]


@pytest.fixture
def client(kubernetes_cluster: Cluster) -> Generator[httpx.Client]:
    with kubernetes_cluster.client() as made:
        yield made


@pytest.fixture(scope="module")
def sleeper(kubernetes_cluster: Cluster) -> str:
    with kubernetes_cluster.client() as client:
        create(client, PODS, pod("sleeper", "exec sleep 600", env=[{"name": "WORD", "value": "in the pod"}]))
        running(client, "sleeper")
    return "sleeper"


def test_each_container_of_a_pod_has_its_own_end_log_and_commands_and_shares_the_volumes(
    client: httpx.Client, kubernetes_cluster: Cluster
) -> None:
    mounts = [{"name": "kept", "mountPath": "/kept"}]
    stays = container("echo stays; exec sleep 600", volumeMounts=[mounts[0] | {"readOnly": True}])
    both = pod("pair", "echo goes; echo left > /kept/a; exit 4", volumeMounts=mounts)
    both["spec"]["containers"].append(stays | {"name": "second"})
    both["spec"]["volumes"] = [{"name": "kept", "emptyDir": {}}]
    create(client, PODS, both)
    seen = wait_for(client, f"{PODS}/pair", lambda seen: "terminated" in states(seen).get("main", {}))
    assert states(seen)["main"]["terminated"]["exitCode"] == 4
    assert seen["status"]["phase"] == "Running"
    seen = wait_for(client, f"{PODS}/pair", lambda seen: "running" in states(seen).get("second", {}))
    assert log(client, "pair", container="main") == "goes\n"
    assert log(client, "pair", container="second") == "stays\n"
    inside = execute(kubernetes_cluster, "pair", ["cat", "/kept/a"], into="second")
    assert (inside.stdout, inside.exit_code) == (b"left\n", 0)
    assert execute(kubernetes_cluster, "pair", ["touch", "/kept/b"], into="second").exit_code == 1
    assert execute(kubernetes_cluster, "pair", ["true"], into="main").status["status"] == "Failure"
    client.delete(f"{PODS}/pair", params={"gracePeriodSeconds": 1}).raise_for_status()
    wait_gone(client, f"{PODS}/pair")


def test_a_pod_says_why_its_node_ended_it_only_when_all_of_it_has_ended(client: httpx.Client) -> None:
    deaf = container("trap '' TERM; sleep 600") | {"name": "deaf"}
    late = pod(
        "both-late", "exec sleep 600", {"activeDeadlineSeconds": 6, "terminationGracePeriodSeconds": 5}
    )
    late["spec"]["containers"][0]["command"] = ["sh", "-c", "trap 'exit 7' TERM; while :; do sleep 0.1; done"]
    late["spec"]["containers"].append(deaf)
    create(client, PODS, late)
    seen = wait_for(client, f"{PODS}/both-late", lambda seen: "terminated" in states(seen).get("main", {}))
    assert (seen["status"]["phase"], seen["status"].get("reason")) == ("Running", None)
    seen = ended(client, "both-late")
    assert (seen["status"]["phase"], seen["status"]["reason"]) == ("Failed", "DeadlineExceeded")
    assert states(seen)["main"]["terminated"]["exitCode"] == 7


def states(seen: Object) -> dict[str, Object]:
    """Return how each container of a pod stands, by name."""
    return {one["name"]: one["state"] for one in seen["status"].get("containerStatuses", ())}


def test_a_log_is_kept_to_the_byte_and_can_be_read_in_part(client: httpx.Client) -> None:
    create(client, PODS, pod("talks", "seq 1 100; printf 'no newline'"))
    ended(client, "talks")
    whole = "".join(f"{number}\n" for number in range(1, 101)) + "no newline"
    assert log(client, "talks") == whole
    assert log(client, "talks", tailLines=2) == "100\nno newline"
    assert log(client, "talks", limitBytes=5) == whole[:5]
    assert log(client, "talks", timestamps=True).splitlines()[0].endswith("Z 1")
    later = (dt.datetime.now(dt.UTC) + dt.timedelta(minutes=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
    assert not log(client, "talks", sinceTime=later)


def test_a_log_is_followed_until_the_container_ends(client: httpx.Client) -> None:
    create(client, PODS, pod("counts", "for n in 1 2 3 4 5 6; do echo $n; sleep 0.5; done"))
    running(client, "counts")
    seen: list[tuple[str, float]] = []
    with client.stream("GET", f"{PODS}/counts/log", params={"follow": "true"}) as answer:
        seen.extend((line, time.monotonic()) for line in answer.iter_lines())
    assert [line for line, _ in seen] == ["1", "2", "3", "4", "5", "6"]
    assert seen[-1][1] - seen[0][1] > 0.3, "the lines came as they were said"


@pytest.mark.parametrize("version", [4, 5])
def test_a_command_has_both_outputs_and_its_exit_code(
    kubernetes_cluster: Cluster, sleeper: str, version: int
) -> None:
    done = execute(
        kubernetes_cluster, sleeper, ["sh", "-c", "echo $WORD; echo bad >&2; exit 7"], version=version
    )
    assert (done.stdout, done.stderr, done.exit_code) == (b"in the pod\n", b"bad\n", 7)
    done = execute(kubernetes_cluster, sleeper, ["true"], version=version)
    assert done.status["status"] == "Success"


def test_a_command_runs_beside_the_containers_own(kubernetes_cluster: Cluster, sleeper: str) -> None:
    done = execute(kubernetes_cluster, sleeper, ["cat", "/proc/1/cmdline"])
    assert done.stdout == b"sleep\x00600\x00"


def test_input_reaches_a_command_and_its_end_too(kubernetes_cluster: Cluster, sleeper: str) -> None:
    text = b"line\n" * 50_000
    done = execute(kubernetes_cluster, sleeper, ["wc", "-c"], stdin=text)
    assert int(done.stdout) == len(text)


def test_a_terminal_is_one_and_has_the_size_asked_for(kubernetes_cluster: Cluster, sleeper: str) -> None:
    done = execute(
        kubernetes_cluster,
        sleeper,
        ["sh", "-c", "until stty size | grep 132; do sleep 0.1; done; tty"],
        tty=True,
    )
    assert b"/dev/pts/" in done.stdout
    assert b"43 132" in done.stdout


def test_a_command_that_does_not_exist_is_an_error_and_no_exit_code(
    kubernetes_cluster: Cluster, sleeper: str
) -> None:
    done = execute(kubernetes_cluster, sleeper, ["no-such-command"])
    assert done.status["status"] == "Failure"
    assert "no-such-command" in done.status["message"]
