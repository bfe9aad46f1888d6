"""Every route of the OpenAPI document: its caller is authorized once, and a task in it is parsed once."""

import gzip
import hashlib
import sys
from collections import Counter
from collections.abc import Generator
from functools import wraps
from typing import Any, NamedTuple

import anyio
import httpx
import msgspec
import pytest

from integration.entrypoints.api.conftest import People
from integration.entrypoints.api.serving import Served
from yunhe.control.pools.model import ExecRequest
from yunhe.entrypoints.cli.session.task_files import Overrides, tasks_from
from yunhe.entrypoints.client import AsyncClient, Client
from yunhe.kernel.errors import ForbiddenError, NotFoundError
from yunhe.kernel.ids import ProjectId
from yunhe.scheduling.orchestration.jobs.model import Job
from yunhe.scheduling.orchestration.jobs.states import JobState
from yunhe.trading.accounts.model import Role
from yunhe.trading.accounts.service import AccountService
from yunhe.trading.applications.model import SavedPlan, Submission
from yunhe.trading.demand import parse
from yunhe.trading.demand.model import Task

DIGEST = hashlib.sha256(b"").hexdigest()
MEMBER = gzip.compress(b"")
CHUNK = hashlib.sha256(b"").digest() + len(MEMBER).to_bytes(4, "big") + MEMBER
TASK = {"name": "task", "run": "true\n"}
SUBMISSION = {"project_id": "blue", "task": TASK}

WITHOUT_KEY = {"GET /health", "GET /ready", "GET /modules", "GET /v1/schema/task"}
"""Say nothing of anybody's; no key, no authorization."""
FOR_EVERY_KEY = {
    "GET /v1/me",
    "GET /v1/keys",
    "POST /v1/keys",
    "DELETE /v1/keys/{key_id}",
    "POST /v1/keys/{key_id}/rotate",
    "GET /v1/audit/head",
    "GET /v1/ledger/head",
    "GET /v1/pools",
    "GET /v1/pools/{pool}",
    "GET /v1/pools/{pool}/prices",
    "GET /v1/pools/{pool}/facts",
    "GET /v1/graph",
    "GET /v1/plugins",
    "GET /v1/plugins/{name}",
}
"""One's own keys, and what the platform offers to all."""
BY_PROJECT = {"GET /v1/jobs", "GET /v1/projects", "GET /v1/cost", "GET /v1/ledger"}
"""Show what is of the projects that the caller may see."""
PARSED = {
    "POST /v1/plan": 1,
    "POST /v1/plan/pareto": 1,
    "POST /v1/plan/together": 2,
    "POST /v1/plan/save": 2,
    "POST /v1/plan/run": 1,
    "POST /v1/plan/render": 1,
    "POST /v1/jobs": 1,
    "POST /v1/jobs/batch": 2,
}
"""How many tasks the request below carries."""


class Sent(NamedTuple):
    """A request that an admin may make, and what it is answered with."""

    operation: str
    path: str = ""
    json: Any = None
    content: bytes | None = None
    status: int = 200


def requests(running: str, ended: str, plan: SavedPlan) -> list[Sent]:
    """Return a request for every operation, in an order in which each of them succeeds."""
    return [
        Sent("POST /v1/plan", json=SUBMISSION),
        Sent("POST /v1/plan/pareto", json=SUBMISSION),
        Sent("POST /v1/plan/together", json={"submissions": [SUBMISSION, SUBMISSION]}),
        Sent("POST /v1/plan/save", json={"submissions": [SUBMISSION, SUBMISSION]}),
        Sent("POST /v1/plan/run", json=msgspec.to_builtins(plan), status=201),
        Sent(
            "POST /v1/plan/render", json=msgspec.to_builtins(plan), status=422
        ),  # no Kubernetes cluster is there
        Sent("GET /v1/jobs"),
        Sent("POST /v1/jobs", json=SUBMISSION, status=201),
        Sent("POST /v1/jobs/batch", json={"submissions": [SUBMISSION, SUBMISSION]}, status=201),
        Sent("GET /v1/jobs/{job_id}", f"/v1/jobs/{running}"),
        Sent("POST /v1/jobs/{job_id}/resize", f"/v1/jobs/{running}/resize", json={"cpu_millis": 500}),
        Sent("GET /v1/jobs/{job_id}/explain", f"/v1/jobs/{running}/explain"),
        Sent("GET /v1/jobs/{job_id}/nodes", f"/v1/jobs/{running}/nodes"),
        Sent("GET /v1/jobs/{job_id}/usage", f"/v1/jobs/{running}/usage"),
        Sent("GET /v1/jobs/{job_id}/events", f"/v1/jobs/{ended}/events"),
        Sent("GET /v1/jobs/{job_id}/logs", f"/v1/jobs/{ended}/logs"),
        Sent("GET /v1/jobs/{job_id}/outputs", f"/v1/jobs/{ended}/outputs"),
        Sent("GET /v1/jobs/{job_id}/files", f"/v1/jobs/{running}/files?path=."),
        Sent("POST /v1/jobs/{job_id}/stop", f"/v1/jobs/{running}/stop"),
        Sent(
            "PUT /v1/projects/{project}/uploads/{sha256}", f"/v1/projects/blue/uploads/{DIGEST}", content=b""
        ),
        Sent("PUT /v1/projects/{project}/chunks", "/v1/projects/blue/chunks", content=CHUNK),
        Sent("POST /v1/projects/{project}/uploads", "/v1/projects/blue/uploads", content=CHUNK[:32]),
        Sent("HEAD /v1/projects/{project}/uploads/{sha256}", f"/v1/projects/blue/uploads/{DIGEST}"),
        Sent("POST /v1/pools", json={"name": "more", "kind": "fake", "target": "more"}),
        Sent("POST /v1/pools/{pool}/check", "/v1/pools/more/check"),
        Sent("POST /v1/pools/{pool}/drain", "/v1/pools/more/drain"),
        Sent("POST /v1/pools/{pool}/nodes/{node}/cordon", "/v1/pools/more/nodes/fake-1/cordon"),
        Sent("PATCH /v1/pools/{pool}/facts", "/v1/pools/more/facts", json={"speed": 1.0}),
        Sent(
            "PUT /v1/pools/{pool}/prices",
            "/v1/pools/more/prices",
            json={"high": {"cpu_core_hour_micros": 1000}},
        ),
        Sent("DELETE /v1/pools/{pool}", "/v1/pools/more", status=204),
        Sent("GET /v1/plugin-folders"),
        # What follows the authorization is refused: no allowed folder, a plugin of the platform, no key of a plugin.
        Sent("POST /v1/plugin-folders", json={"directory": "/nowhere"}, status=201),
        Sent("DELETE /v1/plugin-folders", "/v1/plugin-folders?directory=/nowhere", status=204),
        Sent("POST /v1/plugins", json={"directory": "/nowhere"}, status=403),
        Sent("DELETE /v1/plugins/{name}", "/v1/plugins/fake", status=409),
        Sent(
            "PUT /v1/plugins/{name}/instances/{instance}",
            "/v1/plugins/more/instances/one",
            json={},
            status=403,
        ),
        Sent("DELETE /v1/plugins/{name}/instances/{instance}", "/v1/plugins/more/instances/one", status=403),
        Sent("GET /v1/projects"),
        Sent("POST /v1/projects", json={"id": "green"}, status=201),
        Sent("GET /v1/projects/{project}", "/v1/projects/blue"),
        Sent("PATCH /v1/projects/{project}", "/v1/projects/blue", json={"limits": {"queued": 1000}}),
        Sent("GET /v1/projects/{project}/members", "/v1/projects/blue/members"),
        Sent(
            "PUT /v1/projects/{project}/members/{user}",
            "/v1/projects/blue/members/joe",
            json={"role": "viewer"},
        ),
        Sent("DELETE /v1/projects/{project}/members/{user}", "/v1/projects/blue/members/joe", status=204),
        Sent("PUT /v1/projects/{project}/secrets/{name}", "/v1/projects/blue/secrets/S", json={"value": "x"}),
        Sent("GET /v1/projects/{project}/secrets", "/v1/projects/blue/secrets"),
        Sent("DELETE /v1/projects/{project}/secrets/{name}", "/v1/projects/blue/secrets/S", status=204),
        Sent("GET /v1/audit"),
        Sent("GET /v1/audit/export"),
        Sent("GET /v1/cost"),
        Sent("GET /v1/ledger"),
        Sent("GET /metrics"),
    ]


def until_running(client: Client, job: Job) -> None:
    assert any(seen.state is JobState.RUNNING for seen in client.watch(job.id))


@pytest.fixture(scope="module")
def sent(people: People) -> list[Sent]:
    outputs = Task(run="echo x > out.txt\n", outputs=("out.txt",))
    ended = people.ann.submit(Submission(task=outputs, project_id=ProjectId("blue")))
    running = people.ann.submit(Submission(task=Task(run="sleep 60\n"), project_id=ProjectId("blue")))
    assert [job.state for job in people.ann.watch(ended.id)][-1] is JobState.SUCCEEDED
    until_running(people.ann, running)
    plan = people.admin.save_plan([Submission(task=Task(run="true\n"), project_id=ProjectId("blue"))])
    people.admin.run_plan(plan)  # again is the same, whatever becomes of the room
    return requests(running.id, ended.id, plan)


@pytest.fixture(scope="module")
def stranger(people: People) -> str:
    """The key of somebody who has no role anywhere."""
    people.admin.set_member("red", "eve", Role.VIEWER)
    key = people.admin.create_key("eves", user="eve").text
    people.admin.remove_member("red", "eve")
    return key


def counting(counted: Counter[str], name: str, real: Any) -> Any:
    @wraps(real)
    def call(*args: Any, **options: Any) -> Any:
        counted[name] += 1
        return real(*args, **options)

    return call


@pytest.fixture(scope="module")
def counted() -> Generator[Counter[str]]:
    """Count authorizations, and questions for the projects of a caller, from before the server starts."""
    counter: Counter[str] = Counter()
    with pytest.MonkeyPatch.context() as patch:
        for name in ("authorize", "authorize_plugin", "visible_projects"):
            counted_as = name.removesuffix("_plugin")
            patch.setattr(AccountService, name, counting(counter, counted_as, getattr(AccountService, name)))
        yield counter


@pytest.fixture(scope="module")
def settings(counted: Counter[str]) -> dict[str, Any]:
    """The server of this module starts when its calls are counted."""
    return {}


@pytest.fixture
def calls(counted: Counter[str], monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Count parsed tasks, too, from zero."""
    real = parse.parse_task
    for module in list(sys.modules.values()):
        if getattr(module, "parse_task", None) is real:
            monkeypatch.setattr(module, "parse_task", counting(counted, "parse_task", real))
    counted.clear()
    return counted


def answer(served: Served, key: str, request: Sent) -> int:
    method, _, template = request.operation.partition(" ")
    headers = {"Authorization": f"Bearer {key}"}
    return httpx.request(
        method,
        served.url + (request.path or template),
        json=request.json,
        content=request.content,
        headers=headers,
        timeout=30,
    ).status_code


def operations(served: Served) -> set[str]:
    document = httpx.get(f"{served.url}/openapi.json").json()
    return {f"{method.upper()} {path}" for path, methods in document["paths"].items() for method in methods}


def test_every_operation_is_walked_or_open(served: Served, sent: list[Sent]) -> None:
    walked = [request.operation for request in sent]
    assert len(walked) == len(set(walked))
    assert {*walked, *WITHOUT_KEY, *FOR_EVERY_KEY} == operations(served)


def test_who_has_no_role_is_refused_by_one_authorization(
    served: Served, stranger: str, sent: list[Sent], calls: Counter[str]
) -> None:
    for request in sent:
        calls.clear()
        status = answer(served, stranger, request)
        if request.operation in BY_PROJECT:
            assert (status, calls["visible_projects"], calls["authorize"]) == (200, 1, 0), request
        else:
            assert status in (403, 404), (request, status)
            assert calls["authorize"] == 1, request


def test_who_may_is_authorized_once_and_a_task_is_parsed_once(
    served: Served, sent: list[Sent], calls: Counter[str]
) -> None:
    for request in sent:
        calls.clear()
        assert answer(served, served.key, request) == request.status, request
        assert calls["authorize"] + calls["visible_projects"] == 1, (request, calls)
        assert calls["parse_task"] == PARSED.get(request.operation, 0), (request, calls)


def test_a_question_for_one_job_or_one_project_is_authorized_once(
    served: Served, sent: list[Sent], calls: Counter[str]
) -> None:
    job_id = next(r.path for r in sent if r.operation == "GET /v1/jobs/{job_id}").rpartition("/")[2]
    for path in ("/v1/jobs?project=blue", f"/v1/cost?job={job_id}", "/v1/cost?project=blue"):
        calls.clear()
        assert answer(served, served.key, Sent("GET " + path)) == 200
        assert calls["authorize"] + calls["visible_projects"] == 1, (path, calls)


def test_a_command_beside_a_job_is_authorized_once(
    served: Served, people: People, calls: Counter[str]
) -> None:
    job = people.ann.submit(Submission(task=Task(run="sleep 60\n"), project_id=ProjectId("blue")))
    until_running(people.ann, job)

    async def beside(key: str) -> int | None:
        request = ExecRequest(argv=("true",))
        async with AsyncClient(served.url, key) as client, client.exec(job.id, request) as stream:
            while await stream.receive():
                pass
            return stream.exit_code

    calls.clear()
    assert anyio.run(beside, people.keys["ann"]) == 0
    assert calls["authorize"] == 1
    for who, refusal in {"vic": ForbiddenError, "bob": NotFoundError}.items():
        calls.clear()
        with pytest.raises(refusal):
            anyio.run(beside, people.keys[who])
        assert calls["authorize"] == 1
    people.ann.stop(job.id)


def test_the_command_line_parses_a_task_once(calls: Counter[str]) -> None:
    assert [given.task.run for given in tasks_from([], ["true"], Overrides())] == ["true"]
    assert calls["parse_task"] == 1
