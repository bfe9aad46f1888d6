"""What tests of the cluster ask its API server, in few words."""

import json
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import httpx
from websockets.sync.client import ClientConnection, connect
from websockets.typing import Subprotocol

from engines.kubernetes.cluster import ADMIN, TOKENS, Cluster

Object = dict[str, Any]
PODS = "/api/v1/namespaces/default/pods"
JOBS = "/apis/batch/v1/namespaces/default/jobs"
TIMEOUT_S = 60.0


def container(script: str, **more: Any) -> Object:
    """Return a container that runs a shell script."""
    return {"name": "main", "image": "none", "command": ["sh", "-c", script], **more}


def pod(name: str, script: str, spec: Object | None = None, **more: Any) -> Object:
    """Return a pod with one container; *more* belongs to the container."""
    body = {"restartPolicy": "Never", "containers": [container(script, **more)], **(spec or {})}
    return {"metadata": {"name": name}, "spec": body}


def create(client: httpx.Client, path: str, body: Object) -> Object:
    """Create an object."""
    answer = client.post(path, json=body)
    assert answer.status_code == 201, answer.text
    return answer.json()


def wait_for(client: httpx.Client, path: str, holds: Callable[[Object], bool]) -> Object:
    """Read an object until something holds for it."""
    until_s = time.monotonic() + TIMEOUT_S
    while True:
        answer = client.get(path)
        if answer.status_code == 200 and holds(answer.json()):
            return answer.json()
        assert time.monotonic() < until_s, f"{path} is still {answer.text}"
        time.sleep(0.05)


def wait_gone(client: httpx.Client, path: str) -> None:
    """Wait until an object is no more."""
    until_s = time.monotonic() + TIMEOUT_S
    while client.get(path).status_code != 404:
        assert time.monotonic() < until_s, f"{path} is still there"
        time.sleep(0.05)


def phase_is(*phases: str) -> Callable[[Object], bool]:
    """Return the question whether a pod is in one of *phases*."""
    return lambda seen: seen.get("status", {}).get("phase") in phases


def ended(client: httpx.Client, name: str) -> Object:
    """Return a pod once it has ended."""
    return wait_for(client, f"{PODS}/{name}", phase_is("Succeeded", "Failed"))


def running(client: httpx.Client, name: str) -> Object:
    """Return a pod once it is ready."""
    return wait_for(client, f"{PODS}/{name}", lambda seen: condition(seen, "Ready").get("status") == "True")


def condition(seen: Object, kind: str) -> Object:
    """Return a condition of an object; empty if it has none such."""
    conditions: list[Object] = seen.get("status", {}).get("conditions", [])
    return next((one for one in conditions if one["type"] == kind), {})


def state(seen: Object, which: str = "containerStatuses") -> Object:
    """Return how the first container of a pod stands."""
    return seen["status"][which][0]["state"]


def log(client: httpx.Client, name: str, **query: str | int | bool) -> str:
    """Return what a pod has said."""
    answer = client.get(f"{PODS}/{name}/log", params=query)
    assert answer.status_code == 200, answer.text
    return answer.text


def wait_for_log(client: httpx.Client, name: str, text: str) -> str:
    """Return what a pod has said once *text* is in it."""
    until_s = time.monotonic() + TIMEOUT_S
    while text not in (said := log(client, name)):
        assert time.monotonic() < until_s, f"{name} still says {said!r}"
        time.sleep(0.05)
    return said


class Executed(NamedTuple):
    """What came of a command."""

    stdout: bytes
    stderr: bytes
    status: Object

    @property
    def exit_code(self) -> int:
        """Return the exit code that the status tells of."""
        causes = self.status.get("details", {}).get("causes", [])
        return int(causes[0]["message"]) if causes else 0


def execute(
    cluster: Cluster,
    name: str,
    command: Sequence[str],
    *,
    version: int = 5,
    stdin: bytes = b"",
    tty: bool = False,
    into: str = "main",
) -> Executed:
    """Run a command in a container of a pod over websocket, as version 4 or 5 of the protocol."""
    query = httpx.QueryParams(
        [
            *(("command", word) for word in command),
            ("container", into),
            ("stdin", bool(stdin)),
            ("stdout", True),
            ("stderr", not tty),
            ("tty", tty),
        ]
    )
    url = f"{cluster.url.replace('https', 'wss')}{PODS}/{name}/exec?{query}"
    with connect(
        url,
        ssl=cluster.tls(),
        additional_headers={"authorization": f"Bearer {TOKENS[ADMIN]}"},
        subprotocols=[Subprotocol(f"v{version}.channel.k8s.io")],
        proxy=None,
    ) as line:
        if tty:
            line.send(b"\x04" + json.dumps({"Width": 132, "Height": 43}).encode())
        if stdin:
            line.send(b"\x00" + stdin)
        if stdin and version == 5:
            line.send(b"\xff\x00")
        return _collect(line)


def _collect(line: ClientConnection) -> Executed:
    said: dict[int, bytes] = {1: b"", 2: b"", 3: b""}
    for message in line:
        assert isinstance(message, bytes)
        said[message[0]] += message[1:]
    return Executed(said[1], said[2], json.loads(said[3]))
