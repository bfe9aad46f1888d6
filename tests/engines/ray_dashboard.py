"""A Ray dashboard in memory: the parts of its HTTP API that we use, answering as the recorded one does."""

import fnmatch
import json
from pathlib import Path
from typing import Any

import httpx

from yunhe.infrastructure.ray.client import RayClient
from yunhe.infrastructure.ray.target import RayTarget

RECORDED: dict[str, Any] = json.loads((Path(__file__).parent / "ray_recorded.json").read_text())
HEAD = RECORDED["nodes"]["data"]["result"]["result"][0]["node_id"]
NOW_MS = 1_794_782_500_000


class Dashboard:
    """Jobs, packages and files, and every request that came."""

    def __init__(self) -> None:
        self.jobs: dict[str, dict[str, Any]] = {}
        self.packages: dict[str, bytes] = {}
        self.files: dict[str, bytes] = {}
        self.deaf: set[str] = set()
        """Files on a node that does not answer."""
        self.submissions: list[dict[str, Any]] = []
        self.stops: list[str] = []
        self.version: dict[str, Any] = dict(RECORDED["version"])
        self.status = 200
        self.reachable = True
        self.stumbles = False
        """Over empty files, as older dashboards do."""
        self.overtaken_by: dict[str, Any] | None = None
        """What somebody else submits just before the next submission."""

    def client(self, _target: RayTarget | None = None) -> RayClient:
        """Return a client whose requests all come here, whatever it is asked to reach."""
        return RayClient(RayTarget(url="http://head:8265"), httpx.MockTransport(self.answer))

    def answer(self, request: httpx.Request) -> httpx.Response:
        """Answer as Ray does."""
        if not self.reachable:
            raise httpx.ConnectError("All connection attempts failed")
        if self.status != 200:
            return httpx.Response(self.status, text="Unauthorized")
        path = request.url.path
        match path.split("/")[1:]:
            case ["api", "version"]:
                return httpx.Response(200, json=self.version)
            case ["api", "jobs", ""]:
                return self._submit(request) if request.method == "POST" else self._list()
            case ["api", "jobs", name]:
                return httpx.Response(200 if self.jobs.pop(name, None) else 404)
            case ["api", "jobs", name, "stop"]:
                self.stops.append(name)
                return httpx.Response(200, json={"stopped": True})
            case ["api", "packages", "gcs", name]:
                return self._package(request, name)
            case ["api", "v0", "nodes"]:
                return httpx.Response(200, json=RECORDED["nodes"])
            case ["nodes"]:
                return httpx.Response(200, json=RECORDED["summary"])
            case ["api", "v0", "logs"]:
                return self._names(request.url.params["glob"])
            case ["api", "v0", "logs", "file"]:
                return self._file(request.url.params["filename"])
            case _:
                return httpx.Response(404, text="404: Not Found")

    def set_job(self, name: str, **fields: Any) -> None:
        """Let Ray think something else of a job."""
        self.jobs[name].update(fields)

    def _list(self) -> httpx.Response:
        return httpx.Response(200, json=list(self.jobs.values()))

    def _submit(self, request: httpx.Request) -> httpx.Response:
        body = json.loads(request.content)
        self.submissions.append(body)
        if self.overtaken_by is not None:
            self._take(self.overtaken_by)
            self.overtaken_by = None
        name = body["submission_id"]
        if name in self.jobs:
            words = (
                f"Traceback …\nValueError: Job with submission_id {name} already exists. Please use another."
            )
            return httpx.Response(500, text=words)
        self._take(body)
        return httpx.Response(200, json={"job_id": name, "submission_id": name})

    def _take(self, body: dict[str, Any]) -> None:
        name = body["submission_id"]
        mark = "CPU" in body.get("entrypoint_resources", {})
        self.jobs[name] = {
            "type": "SUBMISSION",
            "submission_id": name,
            "status": "FAILED" if mark else "PENDING",
            "error_type": "JOB_SUPERVISOR_ACTOR_START_FAILURE" if mark else None,
            "start_time": NOW_MS + len(self.jobs),
            "end_time": NOW_MS + len(self.jobs) if mark else None,
            "metadata": body["metadata"],
            "driver_node_id": None,
        }

    def _package(self, request: httpx.Request, name: str) -> httpx.Response:
        if request.method == "PUT":
            self.packages[name] = request.content
            return httpx.Response(200)
        return httpx.Response(200 if name in self.packages else 404)

    def _names(self, pattern: str) -> httpx.Response:
        names = [name for name in self.files if fnmatch.fnmatch(name, pattern)]
        return httpx.Response(200, json={"result": True, "data": {"result": {"internal": names}}})

    def _file(self, name: str) -> httpx.Response:
        if name in self.deaf:
            return httpx.Response(500, text="failed to connect to all addresses")
        if name not in self.files:
            return httpx.Response(500, text=f"A file is not found at: /logs/{name}")
        if self.stumbles and not self.files[name]:
            return httpx.Response(500, text="")
        return httpx.Response(200, content=self.files[name])
