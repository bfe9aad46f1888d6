"""What a tenant may not do to others: fill the log, look behind pools, tell jobs apart, break a stream of exec."""

import json
from collections.abc import Generator
from typing import Any

import httpx
import pytest
import sqlalchemy as sa
from sqlalchemy import event
from websockets.sync.client import connect

from integration.entrypoints.api.conftest import People
from integration.entrypoints.api.serving import Served
from yunhe.entrypoints.client import Client
from yunhe.kernel.errors import ForbiddenError
from yunhe.kernel.ids import ProjectId
from yunhe.scheduling.orchestration.jobs.states import JobState
from yunhe.storage import audit
from yunhe.storage.database import Database
from yunhe.trading.accounts.service import REFUSALS_A_MINUTE
from yunhe.trading.applications.model import Submission
from yunhe.trading.demand.model import ResourceSpec, Task

BLUE = ProjectId("blue")


def ask(served: Served, key: str, method: str, path: str, **options: Any) -> httpx.Response:
    return httpx.request(
        method, served.url + path, headers={"Authorization": f"Bearer {key}"}, timeout=60, **options
    )


def audit_bytes(served: Served) -> tuple[int, int]:
    database = Database(served.settings.resolved_database_url())
    try:
        with database.engine.connect() as connection:
            rows = connection.execute(sa.select(audit.LOG)).all()
    finally:
        database.close()
    return len(rows), sum(len(str(value)) for row in rows for value in row)


def test_denied_requests_leave_short_lines_and_not_one_each(served: Served, people: People) -> None:
    lines, size = audit_bytes(served)
    long = "p" * 900_000
    for _ in range(5):
        body = {"task": {"run": "true"}, "project_id": long}
        answer = ask(served, people.keys["vic"], "POST", "/v1/jobs", json=body)
        assert answer.status_code == 403
        assert len(answer.content) < 4096
    for _ in range(100):
        ask(served, people.keys["vic"], "POST", "/v1/projects/blue/secrets/X", json={"value": "x"})
        assert ask(
            served, people.keys["vic"], "PUT", "/v1/projects/red/secrets/X", json={"value": "x"}
        ).is_error
    more_lines, more_size = audit_bytes(served)
    assert more_lines - lines <= REFUSALS_A_MINUTE + 2
    assert more_size - size < (REFUSALS_A_MINUTE + 2) * 1000


def test_pools_show_how_they_are_reached_to_operators_alone(served: Served, people: People) -> None:
    assert people.admin.pool("lab").spec.target == "lab"
    seen = people.ann.pool("lab")
    assert (seen.spec.name, seen.spec.target, seen.spec.options) == ("lab", "", {})
    assert [pool.spec.target for pool in people.ann.pools()] == [""]


@pytest.fixture
def outsider(people: People, served: Served) -> Generator[Client]:
    """Yields whoever has a key and no role any more."""
    people.admin.set_member("red", "out", people.admin.members("red")[0].role)
    key = people.admin.create_key("outs", user="out").text
    people.admin.remove_member("red", "out")
    with served.client(key) as client:
        yield client


def test_a_key_without_a_role_sees_no_pools(outsider: Client) -> None:
    assert outsider.pools() == ()
    assert outsider.plugins() == ()
    for question in (lambda: outsider.pool("lab"), outsider.graph, lambda: outsider.prices("lab")):
        with pytest.raises(ForbiddenError, match="belongs to no project"):
            question()


def test_a_job_of_others_is_answered_as_one_that_is_not_there(served: Served, people: People) -> None:
    big = Task(run="true", resources=ResourceSpec(cpus=64))
    job = people.ann.submit(Submission(task=big, project_id=BLUE))
    statements: list[list[str]] = []

    def count(path: str) -> dict[str, Any]:
        found: list[str] = []

        def note(_c: object, _cursor: object, statement: str, *_: object) -> None:
            found.append(statement)

        event.listen(sa.engine.Engine, "before_cursor_execute", note)
        try:
            answer = ask(served, people.keys["bob"], "GET", path)
        finally:
            event.remove(sa.engine.Engine, "before_cursor_execute", note)
        assert answer.status_code == 404
        statements.append(
            [line for line in found if "FROM orchestration_job" in line or "account_audit" in line]
        )
        return answer.json()

    def ours(found: list[str]) -> list[str]:
        return [line for line in found if "project_id IN" in line or "account_audit" in line]

    for _ in range(10):  # what the platform does behind the answers is counted too, now and then
        statements.clear()
        theirs, none = count(f"/v1/jobs/{job.id}"), count("/v1/jobs/job_absent")
        assert theirs["detail"].replace(job.id, "job_absent") == none["detail"]
        if ours(statements[0]) == ours(statements[1]) != []:
            break
    else:
        pytest.fail(f"the answers differ in what they asked: {statements}")
    people.ann.stop(job.id)


BAD_EXEC = {
    "an empty command": '{"argv":[]}',
    "an empty program": '{"argv":[""]}',
    "no rows": '{"argv":["sh"],"tty":true,"rows":0}',
    "rows below zero": '{"argv":["sh"],"tty":true,"rows":-1}',
    "rows beyond counting": '{"argv":["sh"],"tty":true,"rows":99999999999999999999}',
    "columns beyond a terminal": '{"argv":["sh"],"tty":true,"columns":70000}',
    "half a pair of characters": '{"argv":["\\ud800"]}',
    "a list": "[]",
    "nothing": "",
    "bytes": b"\xff\xfe",
    "a NUL": '{"argv":["a\\u0000b"]}',
    "a long line": json.dumps({"argv": ["x" * 200_000]}),
}


@pytest.mark.parametrize("name", BAD_EXEC)
def test_exec_refuses_what_cannot_be_started(name: str, served: Served, people: People) -> None:
    job = people.ann.submit(
        Submission(task=Task(run="sleep 30", resources=ResourceSpec(cpus=1)), project_id=BLUE)
    )
    next(seen for seen in people.ann.watch(job.id) if seen.state is JobState.RUNNING)
    with connect(
        f"{served.url.replace('http', 'ws')}/v1/jobs/{job.id}/exec",
        additional_headers={"Authorization": f"Bearer {people.keys['ann']}"},
    ) as socket:
        socket.send(BAD_EXEC[name])
        answer = json.loads(socket.recv(timeout=20))
    people.ann.stop(job.id)
    assert answer["problem"]["code"] == "invalid-input", answer


@pytest.mark.parametrize("size", [[0, 80], [24, -1], [70000, 80], [10**30, 1]])
def test_exec_refuses_a_size_no_terminal_has(size: list[int], served: Served, people: People) -> None:
    job = people.ann.submit(
        Submission(task=Task(run="sleep 30", resources=ResourceSpec(cpus=1)), project_id=BLUE)
    )
    next(seen for seen in people.ann.watch(job.id) if seen.state is JobState.RUNNING)
    with connect(
        f"{served.url.replace('http', 'ws')}/v1/jobs/{job.id}/exec",
        additional_headers={"Authorization": f"Bearer {people.keys['ann']}"},
    ) as socket:
        socket.send('{"argv":["sleep","20"],"tty":true}')
        socket.send(json.dumps({"resize": size}))
        answer = json.loads(socket.recv(timeout=20))
    people.ann.stop(job.id)
    assert answer["problem"]["code"] == "invalid-input", answer
