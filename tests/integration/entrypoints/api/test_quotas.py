"""Quotas over the API and the command line; and nothing that a tenant does grows the database without bound."""

import hashlib
import json
import time
from collections.abc import Generator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
import sqlalchemy as sa

from integration.entrypoints.api.conftest import People
from integration.entrypoints.api.serving import Served
from integration.entrypoints.cli.conftest import Shell
from yunhe.entrypoints.client import Client
from yunhe.kernel.errors import ConflictError, ForbiddenError, GoneError, QuotaExceededError, YunheError
from yunhe.kernel.ids import ProjectId
from yunhe.kernel.quotas import QuotaName
from yunhe.runtime import housekeeping
from yunhe.runtime.limits import Retention
from yunhe.scheduling.orchestration.jobs import retention_store
from yunhe.scheduling.orchestration.placing import placer
from yunhe.storage.database import Database, metadata
from yunhe.trading.accounts.model import ProjectChange, ProjectState, Role
from yunhe.trading.applications.model import Submission
from yunhe.trading.demand.model import ResourceSpec, Task

INSTANT_DAYS = 1e-7
SOON_DAYS = 1e-5
"""Archives go so soon: they must not take all the room that outputs of jobs wait for."""
KEPT = Retention(
    ended_jobs=4, audit_lines=50, events=40, keys_days=INSTANT_DAYS, blobs_days=SOON_DAYS, sweep_s=0.1
)
NEVER_PRUNED = {"trade_ledger"}
"""What is owed; it grows with what is billed."""


@pytest.fixture(scope="module")
def settings() -> Generator[dict[str, Any]]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(housekeeping, "MOST_IDEMPOTENCY_KEYS", 5)
        patch.setattr(housekeeping, "MOST_ROUNDS", 5)
        patch.setattr(retention_store, "REASONS_KEPT_S", 0.1)
        patch.setattr(placer, "GROUP_LOCKS", 2)
        yield {"retention": KEPT}


def use_of(state: ProjectState, name: QuotaName) -> tuple[int | None, int | None, bool]:
    (use,) = [use for use in state.quotas if use.name is name]
    return use.used, use.limit, use.own


def task(run: str = "true\n", project: str = "blue", cpus: float = 0.1, **fields: Any) -> Submission:
    spec = ResourceSpec(cpus=cpus, memory="64MB")
    return Submission(task=Task(run=run, resources=spec, **fields), project_id=ProjectId(project))


def put(served: Served, key: str, project: str, data: bytes) -> httpx.Response:
    digest = hashlib.sha256(data).hexdigest()
    url = f"{served.url}/v1/projects/{project}/uploads/{digest}"
    return httpx.put(url, content=data, headers={"Authorization": f"Bearer {key}"}, timeout=60)


def test_only_an_admin_of_the_platform_sets_quotas_and_members_see_them(
    served: Served, people: People
) -> None:
    change = ProjectChange(limits={QuotaName.QUEUED: 7, QuotaName.RUNNING: -1})
    state = people.admin.set_project("red", change)
    assert use_of(state, QuotaName.QUEUED) == (0, 7, True)
    assert use_of(state, QuotaName.RUNNING) == (0, None, True)
    assert people.bob.project("red") == state
    with pytest.raises(ForbiddenError):
        people.bob.set_project("red", change)
    with pytest.raises(ForbiddenError):
        people.ann.project("red")
    people.admin.set_member("red", "boss", Role.ADMIN)
    key = people.admin.create_key("bosses", user="boss").text
    with served.client(key) as boss, pytest.raises(ForbiddenError):
        boss.set_project("red", change)
    line = next(entry for entry in people.admin.audit() if entry.action == "project set")
    assert (line.subject, line.detail) == ("red", "queued=7 running=-1")
    back = people.admin.set_project("red", ProjectChange(limits={QuotaName.QUEUED: None}))
    assert use_of(back, QuotaName.QUEUED) == (0, 50_000, False)


def test_a_submission_over_the_quota_is_a_problem_that_says_all_and_a_batch_leaves_nothing(
    served: Served, people: People
) -> None:
    people.admin.set_project("red", ProjectChange(limits={QuotaName.QUEUED: 2, QuotaName.RUNNING: 0}))
    people.bob.submit(task(project="red"))
    body = {"submissions": [{"project_id": "red", "task": {"run": "true"}}] * 2}
    answer = httpx.post(
        f"{served.url}/v1/jobs/batch",
        json=body,
        headers={"Authorization": f"Bearer {people.keys['bob']}"},
        timeout=60,
    )
    problem = answer.json()
    assert (answer.status_code, problem["code"]) == (429, "quota-exceeded")
    assert problem["detail"] == (
        "Project red has 1 of 2 jobs queued, and 2 more would be over its quota queued; nothing was done."
    )
    assert problem["fields"] == [
        {"field": "quota.queued", "problem": "1 used of 2, 2 more asked", "value": "2"}
    ]
    assert "yunhe project set red --max-queued N" in problem["remedy"]
    assert use_of(people.bob.project("red"), QuotaName.QUEUED)[0] == 1
    for job in people.bob.jobs(project="red"):
        people.bob.stop(job.id)
    people.admin.set_project("red", ProjectChange(limits={QuotaName.QUEUED: None, QuotaName.RUNNING: None}))


def test_uploads_and_requests_over_their_quotas_are_refused(served: Served, people: People) -> None:
    limits = {QuotaName.UPLOAD_FILE_BYTES: 1000, QuotaName.BLOB_BYTES: 9000, QuotaName.REQUESTS_PER_S: 1}
    people.admin.set_project("red", ProjectChange(limits={**limits, QuotaName.REQUESTS_PER_S: None}))
    answers = [put(served, people.keys["bob"], "red", data) for data in (b"1" * 1001, b"2", b"3", b"4")]
    assert [answer.status_code for answer in answers] == [429, 200, 200, 429]
    assert [answer.json().get("code") for answer in answers[::3]] == ["quota-exceeded"] * 2
    assert use_of(people.bob.project("red"), QuotaName.BLOB_BYTES) == (8192, 9000, True)
    people.admin.set_project("red", ProjectChange(limits={QuotaName.REQUESTS_PER_S: 1}))
    time.sleep(1.1)  # another process would see it within a second
    headers = {"Authorization": f"Bearer {people.keys['bob']}"}
    with httpx.Client(headers=headers, timeout=60) as direct:
        codes = [direct.get(f"{served.url}/v1/projects/red").status_code for _ in range(30)]
        assert 429 in codes
    people.admin.set_project("red", ProjectChange(limits=dict.fromkeys(limits)))


def test_a_limit_that_cannot_be_is_refused_with_every_field(people: People) -> None:
    change = ProjectChange(
        limits={QuotaName.QUEUED: -2, QuotaName.JOB_LOG_BYTES: 5}, egress=("10.0.0.0/8", "nowhere")
    )
    with pytest.raises(YunheError) as refused:
        people.admin.set_project("red", change)
    assert [problem.field for problem in refused.value.fields] == [
        "limits.queued",
        "limits.job_log_bytes",
        "egress[1]",
    ]


def test_the_command_line_sets_and_shows_quotas_and_policy(served: Served, tmp_path: Path) -> None:
    shell = Shell(tmp_path / "home", tmp_path, {"YUNHE_URL": served.url, "YUNHE_KEY": served.key})
    assert shell.inside("project", "create", "cli").returncode == 0
    words = ("--max-queued", "5", "--max-blob-bytes", "2GB", "--max-running", "unlimited")
    done = shell.inside("project", "set", "cli", *words, "--egress", "none", "--output", "json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    limits = {quota["name"]: quota["limit"] for quota in told["quotas"] if quota["own"]}
    assert limits == {"queued": 5, "running": None, "blob_bytes": 2 * 1024**3}
    assert told["egress"] == []
    shown = shell.inside("project", "show", "cli")
    assert "blob_bytes" in shown.stdout
    assert "2 GiB" in shown.stdout
    assert "nowhere" in shown.stdout
    bad = shell.inside(
        "project", "set", "cli", "--max-queued", "many", "--egress", "none", "--egress", "1.2.3.4"
    )
    assert bad.returncode != 0
    assert "--max-queued" in bad.stderr
    assert "none stands alone" in bad.stderr
    assert json.loads(shell.inside("project", "show", "cli", "--output", "json").stdout) == told


def live_through(served: Served, ann: Client, key: str, round_: int) -> None:
    """Do what a member may do, each a few times, with ever new names and content."""
    for number in range(4):
        name = f"n{round_}-{number}"
        job = ann.submit(task(f"echo {name}\n", groups=(f"g-{name}",), outputs=("o.txt",)))
        waits = ann.submit(task(f"echo {name}\n", cpus=1000 + round_ * 4 + number))
        ann.stop(waits.id)
        with suppress(QuotaExceededError):
            ann.submit_batch([task(f"echo {name}\n") for _ in range(3)])
        put(served, key, "blue", name.encode())
        ann.set_secret("blue", "S" + name.replace("-", "_"), "x")
        ann.delete_secret("blue", "S" + name.replace("-", "_"))
        with suppress(ConflictError):
            ann.revoke_key(ann.create_key(name).key.id)
        with suppress(YunheError):
            ann.create_project(name)
        ann.plan(task())
        assert list(ann.watch(job.id))


def rows(database: Database) -> dict[str, int]:
    with database.engine.connect() as connection:
        return {
            table.name: connection.scalar(sa.select(sa.func.count()).select_from(table)) or 0
            for table in metadata.tables.values()
            if table.name not in NEVER_PRUNED
        }


def test_whatever_a_tenant_does_the_rows_of_every_table_stop_growing(served: Served, people: People) -> None:
    people.admin.set_project(
        "blue", ProjectChange(limits={QuotaName.QUEUED: 50, QuotaName.BLOB_BYTES: 50_000})
    )
    database = Database(served.settings.resolved_database_url())
    first = people.ann.submit(task())
    bound: dict[str, int] = {}
    for round_ in range(4):
        live_through(served, people.ann, people.keys["ann"], round_)
        if round_ < 2:  # what is kept has filled up by then
            time.sleep(0.5)
            bound = {name: max(count, bound.get(name, 0)) for name, count in rows(database).items()}
    until = time.monotonic() + 60
    while over := {name: count for name, count in rows(database).items() if count > bound.get(name, 0) + 5}:
        assert time.monotonic() < until, f"{over} and were {[bound.get(name) for name in over]}"
        time.sleep(0.1)
    with pytest.raises(GoneError):
        people.ann.job(first.id)
    database.close()
