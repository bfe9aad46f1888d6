"""Whatever is wrong with a request, it is refused with a problem that names it, and nothing has changed."""

import gzip
import hashlib
import socket
import time
from collections.abc import Callable, Generator
from typing import Any, NamedTuple

import httpx
import pytest

from integration.entrypoints.api.conftest import People
from integration.entrypoints.api.serving import Served
from integration.entrypoints.api.witness import state_of
from yunhe.entrypoints.api.bodies import BODY_LIMIT_BYTES
from yunhe.kernel.ids import ProjectId
from yunhe.scheduling.orchestration.jobs.states import JobState
from yunhe.trading.accounts.model import Role
from yunhe.trading.accounts.service import NOBODY
from yunhe.trading.applications.model import Submission
from yunhe.trading.demand.model import ResourceSpec, Task

BLUE = ProjectId("blue")

GZIP = b"\x1f\x8b not really"
DIGEST = hashlib.sha256(GZIP).hexdigest()
MEMBER = gzip.compress(b"")
CHUNK = hashlib.sha256(b"").digest() + len(MEMBER).to_bytes(4, "big") + MEMBER


def task(**fields: Any) -> dict[str, Any]:
    return {"task": {"run": "true", **fields}, "project_id": "blue"}


class Case(NamedTuple):
    """A bad request, who sends it, and what must be said about it."""

    name: str
    method: str
    path: str
    status: int
    code: str
    json: Any = None
    content: bytes | None = None
    headers: dict[str, str] | None = None
    who: str = "ann"
    field: str = ""
    meant: str = ""
    audited: bool | None = False
    """None: there may have been a line of the same within the last minute, and then this has none."""


def post(name: str, path: str, json: Any, field: str = "", meant: str = "") -> Case:
    return Case(name, "POST", path, 400, "invalid-input", json=json, field=field, meant=meant)


CASES = [
    post("a task without run", "/v1/jobs", {"task": {}, "project_id": "blue"}, "task.run"),
    post("a number for text", "/v1/jobs", task(run=7), "task.run"),
    post("a misspelt field of a task", "/v1/jobs", task(resorces={"cpus": 1}), "task.resorces", "resources"),
    post(
        "a misspelt field of a submission",
        "/v1/jobs",
        {**task(), "projct_id": "x"},
        "projct_id",
        "project_id",
    ),
    post("a misspelt tier", "/v1/jobs", task(tier="hgh"), "task.tier", "high"),
    post("minus one core", "/v1/jobs", task(resources={"cpus": -1}), "task.resources.cpus"),
    post("no core at all", "/v1/jobs", task(resources={"cpus": 0}), "task.resources.cpus"),
    post("memory in parsecs", "/v1/jobs", task(resources={"memory": "3 parsecs"}), "task.resources.memory"),
    post("too many retries", "/v1/jobs", task(retries=10**9), "task.retries"),
    post(
        "a mount outside of the job",
        "/v1/jobs",
        task(file_mounts={"../../etc/cron.d/x": "a"}),
        "task.file_mounts",
    ),
    post("a mount at the root", "/v1/jobs", task(file_mounts={"/etc/passwd": "a"}), "task.file_mounts"),
    post("an output outside of the job", "/v1/jobs", task(outputs=["../secret"]), "task.outputs"),
    post("a place beyond Earth", "/v1/jobs", task(near="x@91,0"), "task.near"),
    post("a secret that is not there", "/v1/jobs", task(secrets=["NOPE"]), "secrets"),
    post("a mount that was not uploaded", "/v1/jobs", task(workdir="."), "mounts"),
    post(
        "a batch with one bad item",
        "/v1/jobs/batch",
        {"submissions": [task(), task(tier="x"), task()]},
        "submissions[1].task.tier",
    ),
    post("an empty batch", "/v1/jobs/batch", {"submissions": []}, "submissions"),
    post("a list for a body", "/v1/jobs", [], "(whole)"),
    Case("no JSON", "POST", "/v1/jobs", 400, "invalid-input", content=b"{run: true}"),
    Case("JSON nested without end", "POST", "/v1/jobs", 400, "invalid-input", content=b"[" * 20_000),
    Case(
        "a body beyond the limit", "POST", "/v1/jobs", 413, "too-large", content=b" " * (BODY_LIMIT_BYTES + 1)
    ),
    Case(
        "a body of too many values",
        "POST",
        "/v1/jobs",
        413,
        "too-large",
        content=b"[" + b"0," * 60_000 + b"0]",
    ),
    Case(
        "a batch of too many values",
        "POST",
        "/v1/jobs/batch",
        413,
        "too-large",
        content=b'{"submissions":[' + b"0," * 400_000 + b"0]}",
    ),
    post("a batch of too many tasks", "/v1/jobs/batch", {"submissions": [{}] * 1001}, "submissions"),
    Case("no key", "POST", "/v1/jobs", 401, "unauthenticated", json=task(), who="", audited=None),
    Case(
        "a key nobody has",
        "POST",
        "/v1/jobs",
        401,
        "unauthenticated",
        json=task(),
        who="yk_nobody",
        audited=None,
    ),
    Case(
        "a key under another scheme",
        "GET",
        "/v1/me",
        401,
        "unauthenticated",
        headers={"Authorization": "Basic YTpi"},
        audited=None,
    ),
    Case("a viewer who runs", "POST", "/v1/jobs", 403, "forbidden", json=task(), who="vic", audited=True),
    Case(
        "a member who adds a pool",
        "POST",
        "/v1/pools",
        403,
        "forbidden",
        json={"name": "p", "kind": "fake"},
        audited=True,
    ),
    Case(
        "a member who sets prices",
        "PUT",
        "/v1/pools/lab/prices",
        403,
        "forbidden",
        json={"high": {}},
        audited=True,
    ),
    Case("a member who removes a pool", "DELETE", "/v1/pools/lab", 403, "forbidden", audited=True),
    Case(
        "a member who makes a project",
        "POST",
        "/v1/projects",
        403,
        "forbidden",
        json={"id": "mine"},
        audited=True,
    ),
    Case(
        "a submission to another project",
        "POST",
        "/v1/jobs",
        403,
        "forbidden",
        json=task(),
        who="bob",
        audited=True,
    ),
    Case(
        "another project's secret",
        "PUT",
        "/v1/projects/blue/secrets/A",
        403,
        "forbidden",
        json={"value": "x"},
        who="bob",
        audited=True,
    ),
    Case(
        "another project's costs", "GET", "/v1/cost?project=blue", 403, "forbidden", who="bob", audited=True
    ),
    Case(
        "a secret of the wrong type",
        "PUT",
        "/v1/projects/blue/secrets/A",
        400,
        "invalid-input",
        json={"value": ["hunter2"]},
        field="value",
    ),
    Case(
        "a secret that cannot be in an environment",
        "PUT",
        "/v1/projects/blue/secrets/1A",
        400,
        "invalid-input",
        json={"value": "x"},
        field="name",
    ),
    Case("a state there is not", "GET", "/v1/jobs?state=sleeping", 400, "invalid-input", field="state"),
    Case("a page too large", "GET", "/v1/jobs?limit=100000", 400, "invalid-input", field="limit"),
    Case(
        "a misspelt parameter",
        "GET",
        "/v1/jobs?projct=blue",
        400,
        "invalid-input",
        field="projct",
        meant="project",
    ),
    Case(
        "a cursor of nobody", "GET", "/v1/audit?cursor=abc", 400, "invalid-input", who="admin", field="cursor"
    ),
    Case("a NUL in a parameter", "GET", "/v1/jobs?cursor=%00", 400, "invalid-input"),
    Case("a NUL in an address", "GET", "/v1/jobs/job_%00", 400, "invalid-input"),
    post("a NUL in a task", "/v1/jobs", task(envs={"A": "x\0y"}), "task.envs.A"),
    Case("a job there is not", "POST", "/v1/jobs/job_0/stop", 404, "not-found", audited=True),
    Case(
        "a pool of an unknown kind",
        "POST",
        "/v1/pools",
        400,
        "invalid-input",
        json={"name": "p", "kind": "fak"},
        who="admin",
        field="kind",
    ),
    Case(
        "a pool with a path for a name",
        "POST",
        "/v1/pools",
        400,
        "invalid-input",
        json={"name": "../p", "kind": "fake"},
        who="admin",
        field="name",
    ),
    Case(
        "a pool with an unknown field",
        "POST",
        "/v1/pools",
        400,
        "invalid-input",
        json={"name": "p", "kind": "fake", "prize": {}},
        who="admin",
        field="prize",
        meant="prices",
    ),
    Case(
        "prices that fall upwards",
        "PUT",
        "/v1/pools/lab/prices",
        400,
        "invalid-input",
        json={"high": {"cpu_core_hour_micros": 1}, "tiers": {"low": {"cpu_core_hour_micros": 2}}},
        who="admin",
    ),
    Case(
        "prices that are the same in two tiers",
        "PUT",
        "/v1/pools/lab/prices",
        400,
        "invalid-input",
        json={"high": {"cpu_core_hour_micros": 50_000}, "tiers": {"medium": {}, "low": {}}},
        who="admin",
        field="low.cpu_core_hour_micros",
    ),
    Case(
        "a pool with a price too small to be discounted",
        "POST",
        "/v1/pools",
        400,
        "invalid-input",
        json={"name": "p", "kind": "fake", "target": "p", "prices": {"cpu_core_hour_micros": 1}},
        who="admin",
        field="high.cpu_core_hour_micros",
    ),
    Case(
        "an archive under a wrong digest",
        "PUT",
        f"/v1/projects/blue/uploads/{'0' * 64}",
        400,
        "invalid-input",
        content=GZIP,
    ),
    Case(
        "an archive under no digest",
        "PUT",
        "/v1/projects/blue/uploads/x..y",
        400,
        "invalid-input",
        content=GZIP,
        field="sha256",
    ),
    Case(
        "an archive beyond the limit",
        "PUT",
        f"/v1/projects/blue/uploads/{DIGEST}",
        413,
        "too-large",
        content=b"x" * 300_000,
    ),
    Case(
        "an archive for another project",
        "PUT",
        f"/v1/projects/red/uploads/{DIGEST}",
        403,
        "forbidden",
        content=GZIP,
        audited=True,
    ),
    Case(
        "an archive outside of its project",
        "PUT",
        "/v1/projects/blue/uploads/..%2F..%2Fx",
        404,
        "not-found",
        content=GZIP,
    ),
    *(
        Case(
            f"chunks: {what}",
            "PUT",
            "/v1/projects/blue/chunks",
            400,
            "invalid-input",
            content=body,
            field=field,
        )
        for what, body, field in (
            ("half a header", CHUNK[:20], "body"),
            ("half a chunk", CHUNK[:-1], "body"),
            ("a length beyond all bounds", CHUNK[:32] + b"\xff" * 4, "body"),
            ("another content than it says", CHUNK + bytes(32) + CHUNK[32:], "chunk"),
        )
    ),
    Case(
        "chunks beyond the limit",
        "PUT",
        "/v1/projects/blue/chunks",
        413,
        "too-large",
        content=CHUNK * 1_000_000,
    ),
    Case(
        "chunks for another project",
        "PUT",
        "/v1/projects/red/chunks",
        403,
        "forbidden",
        content=CHUNK,
        audited=True,
    ),
    Case(
        "no whole digest",
        "POST",
        "/v1/projects/blue/uploads",
        400,
        "invalid-input",
        content=CHUNK[:31],
        field="body",
    ),
    Case(
        "an archive of no chunks",
        "POST",
        "/v1/projects/blue/uploads",
        400,
        "invalid-input",
        content=b"",
        field="body",
    ),
    Case(
        "what another project lacks",
        "POST",
        "/v1/projects/red/uploads",
        403,
        "forbidden",
        content=CHUNK[:32],
        audited=True,
    ),
    Case("an address there is not", "GET", "/v1/jbos", 404, "not-found"),
    Case("a method an address does not take", "DELETE", "/v1/jobs", 405, "conflict"),
]


@pytest.fixture(scope="module")
def settings() -> dict[str, Any]:
    return {"upload_limit_bytes": 200_000}


@pytest.fixture(scope="module")
def http(served: Served) -> Generator[httpx.Client]:
    with httpx.Client(base_url=served.url, trust_env=False, timeout=30) as client:
        yield client


Ask = Callable[[Case], httpx.Response]


@pytest.fixture(scope="module")
def ask(served: Served, people: People, http: httpx.Client) -> Ask:
    keys = {**people.keys, "admin": served.key}

    def send(case: Case) -> httpx.Response:
        headers = dict(case.headers or {})
        if case.who and "Authorization" not in headers:
            headers["Authorization"] = f"Bearer {keys.get(case.who, case.who)}"
        return http.request(case.method, case.path, json=case.json, content=case.content, headers=headers)

    return send


def denials(people: People) -> int:
    return sum(entry.outcome == "denied" for entry in people.admin.audit())


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_it_is_refused_and_nothing_has_changed(case: Case, served: Served, people: People, ask: Ask) -> None:
    before, denied = state_of(served.settings), denials(people)
    answer = ask(case)
    problem = answer.json()
    assert (answer.status_code, problem["code"]) == (case.status, case.code), problem
    assert answer.headers["Content-Type"] == "application/problem+json"
    assert problem["detail"]
    assert problem["request_id"] == answer.headers["X-Request-Id"]
    if case.field:
        found = {field["field"]: field for field in problem["fields"]}
        assert any(name.startswith(case.field) for name in found), problem
        if case.meant:
            assert found[case.field]["did_you_mean"] == case.meant
    assert "hunter2" not in answer.text
    assert state_of(served.settings) == before
    assert denials(people) in ({denied, denied + 1} if case.audited is None else {denied + case.audited})


def until_explained(people: People, job_id: str) -> None:
    """Wait until the scheduler has said why a job waits, so that nothing more changes by itself."""
    deadline = time.monotonic() + 10
    while not people.admin.job(job_id).reason:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_another_projects_job_is_not_there(served: Served, people: People, ask: Ask) -> None:
    job = people.ann.submit(
        Submission(task=Task(run="true", resources=ResourceSpec(cpus=64)), project_id=BLUE)
    )
    until_explained(people, job.id)
    before, denied = state_of(served.settings), denials(people)
    paths = ["", "/events", "/logs", "/explain", "/outputs", "/usage", "/files?path=a"]
    answers = [ask(Case("", "GET", f"/v1/jobs/{job.id}{path}", 404, "", who="bob")) for path in paths]
    answers += [
        ask(Case("", "POST", f"/v1/jobs/{job.id}/{verb}", 404, "", json={}, who="bob"))
        for verb in ("stop", "resize")
    ]
    absent = ask(Case("", "GET", "/v1/jobs/job_absent", 404, "", who="bob")).json()
    for answer in answers:
        assert answer.status_code == 404
        assert answer.json()["detail"].replace(job.id, "job_absent") == absent["detail"]
    assert state_of(served.settings) == before
    assert denials(people) == denied + len(answers) + 1, (
        "what is not there leaves as many lines as what is not theirs"
    )
    people.ann.stop(job.id)


@pytest.mark.parametrize("path", ["../x", "/etc/passwd", "a/../../b", "~root/x", ""])
def test_files_outside_of_a_job_are_refused(path: str, people: People, ask: Ask) -> None:
    nowhere = ResourceSpec(cpus=64)  # what never runs is never billed either, while another test looks
    job = people.ann.submit(Submission(task=Task(run="true", resources=nowhere), project_id=BLUE))
    answer = ask(Case("", "GET", f"/v1/jobs/{job.id}/files?path={path}", 400, ""))
    assert answer.status_code == 400
    assert answer.json()["fields"][0]["field"] == "path"
    people.ann.stop(job.id)
    list(people.ann.watch(job.id))


def test_an_expired_key_opens_nothing(served: Served, people: People, ask: Ask) -> None:
    key = people.ann.create_key("short", expires_in_s=0.2)
    time.sleep(0.3)
    before, denied = state_of(served.settings), denials(people)
    answer, *_ = [ask(Case("", "POST", "/v1/jobs", 401, "", json=task(), who=key.text)) for _ in range(3)]
    assert (answer.status_code, answer.json()["code"]) == (401, "unauthenticated")
    assert "expired" in answer.json()["detail"]
    assert answer.headers["WWW-Authenticate"] == "Bearer"
    assert state_of(served.settings) == before
    assert denials(people) == denied + 1, "who knocks again within a minute has no line of their own"
    line = next(entry for entry in people.admin.audit() if entry.outcome == "denied")
    assert (line.user, line.key_id, line.action) == ("ann", key.key.id, "authenticate")
    assert "expired" in line.detail


def test_a_key_that_was_revoked_or_never_was_opens_nothing_and_is_told_of(people: People, ask: Ask) -> None:
    revoked = people.bob.create_key("old")
    people.bob.revoke_key(revoked.key.id)
    for text in (revoked.text, "yk_made-up", ""):
        assert ask(Case("", "POST", "/v1/jobs", 401, "", json=task(), who=text)).status_code == 401
    told = {
        (entry.user, entry.key_id): entry.detail
        for entry in people.admin.audit()
        if entry.action == "authenticate"
    }
    assert told["bob", revoked.key.id] == "The key has been revoked."
    assert any(user == NOBODY and not key_id for user, key_id in told)
    assert revoked.text not in repr(told)


def test_a_replayed_key_returns_the_first_answer_or_is_refused(
    served: Served, people: People, ask: Ask
) -> None:
    def submit(body: Any, who: str = "ann", path: str = "/v1/jobs") -> httpx.Response:
        headers = {"Idempotency-Key": "once-only"}
        return ask(Case("", "POST", path, 0, "", json=body, who=who, headers=headers))

    body = task(resources={"cpus": 64})
    first = submit(body)
    assert first.status_code == 201
    until_explained(people, first.json()["id"])
    before = state_of(served.settings)
    again = submit(body)
    assert again.status_code == 201
    assert {**again.json(), "reason": ""} == {**first.json(), "reason": ""}  # as it is now, not as it was
    other = submit(task(resources={"cpus": 65}))
    assert (other.status_code, other.json()["code"]) == (409, "conflict")
    assert state_of(served.settings) == before
    people.admin.set_member("blue", "ben", Role.MEMBER)
    bens = people.admin.create_key("bens", user="ben").text
    assert submit(body, who=bens).json()["id"] != first.json()["id"]
    for job in people.ann.jobs(states=[JobState.PENDING]):
        people.ann.stop(job.id)


def test_an_idempotency_key_that_is_too_long_is_refused(served: Served, people: People, ask: Ask) -> None:
    before = state_of(served.settings)
    answer = ask(Case("", "POST", "/v1/jobs", 400, "", json=task(), headers={"Idempotency-Key": "k" * 500}))
    assert answer.status_code == 400
    assert state_of(served.settings) == before


def test_an_upload_that_breaks_off_leaves_nothing(served: Served, people: People) -> None:
    before = state_of(served.settings)
    with socket.create_connection(("127.0.0.1", served.settings.port)) as connection:
        head = (
            f"PUT /v1/projects/blue/uploads/{DIGEST} HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n"
            f"Authorization: Bearer {people.keys['ann']}\r\n\r\n"
        )
        connection.sendall(head.encode() + b"x" * 5000)
        time.sleep(0.3)
    deadline = time.monotonic() + 5
    while state_of(served.settings) != before and time.monotonic() < deadline:
        time.sleep(0.1)
    assert state_of(served.settings) == before
