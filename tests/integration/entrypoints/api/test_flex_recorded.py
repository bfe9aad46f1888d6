"""``yunhe flex --recorded``: what a platform's own jobs used becomes a trace like that of any file."""

import json
import sys
import time

import anyio
import msgspec
import numpy as np
import pytest
from sqlalchemy.engine import Connection

from integration.entrypoints.api.conftest import People
from integration.entrypoints.api.serving import Served
from yunhe.control.pools.model import UsageMinute
from yunhe.entrypoints.cli.commands.analysis.flex_recorded import recorded_usage
from yunhe.entrypoints.cli.main import main
from yunhe.entrypoints.client import Client
from yunhe.flexible.reading.rows import read_trace
from yunhe.flexible.trace import Dimension
from yunhe.kernel.errors import InvalidInputError
from yunhe.kernel.ids import AllocationId, ProjectId
from yunhe.scheduling.orchestration.jobs.model import Job
from yunhe.scheduling.perception import store
from yunhe.storage.database import Database
from yunhe.trading.applications.model import Submission
from yunhe.trading.demand.model import ResourceSpec, Task

HOURS = 8


@pytest.fixture(scope="module")
def ended(served: Served, people: People) -> tuple[Job, ...]:
    """Two jobs that ended, and eight hours of minutes for each as an agent would have told them."""
    ended = tuple(_ran(people.ann, cores) for cores in ("1", "2"))
    first = int(time.time() // 60) - 60 * HOURS
    minutes = tuple(
        UsageMinute(
            seq=n,
            allocation_id=job.attempts[0].allocation_id,
            minute=first + n,
            samples=60,
            cpu_mean_millis=250.0 * (number + 1),
            cpu_max_millis=900.0,
            cpu_sketch=(),
            memory_mean_mib=100.0,
            memory_max_mib=150.0,
            read_bytes=0,
            written_bytes=0,
        )
        for number, job in enumerate(ended)
        for n in range(60 * HOURS)
    )

    def keep(connection: Connection) -> None:
        store.write_usage(connection, minutes)

    database = Database(served.settings.resolved_database_url())
    try:
        anyio.run(database.write, keep)
    finally:
        database.close()
    return ended


def _ran(client: Client, cpus: str) -> Job:
    task = Task(run="true", resources=ResourceSpec(cpus=cpus, memory="1"))
    *_, last = client.watch(client.submit(Submission(task=task, project_id=ProjectId("blue"))).id)
    return last


def test_recorded_minutes_become_a_trace(people: People, ended: tuple[Job, ...]) -> None:
    told: list[tuple[int, int]] = []
    reading = read_trace(recorded_usage(people.ann, "blue", lambda done, of: told.append((done, of))))
    assert told[-1] == (2, 2)
    trace = reading.trace
    assert (set(trace.instances), trace.period_s) == ({job.id for job in ended}, 60)
    for number, job in enumerate(ended):
        row = trace.instances.index(job.id)
        assert trace.request[Dimension.CPU][row] == number + 1
        assert trace.request[Dimension.MEMORY][row] == 1024
        earlier = trace.usage[Dimension.CPU][row, : 60 * HOURS]
        assert np.allclose(earlier, 0.25 * (number + 1))
        assert np.allclose(trace.usage[Dimension.MEMORY][row, : 60 * HOURS], 150), "its peak, not its mean"


def test_the_command_answers_from_the_platforms_record(
    served: Served,
    people: People,
    ended: tuple[Job, ...],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name, value in (("URL", served.url), ("KEY", people.keys["ann"]), ("PROJECT", "blue")):
        monkeypatch.setenv(f"YUNHE_{name}", value)

    def run(*words: str) -> object:
        monkeypatch.setattr(sys, "argv", ["yunhe", "flex", *words, "--recorded", "-o", "json"])
        with pytest.raises(SystemExit) as left:
            main()
        assert not left.value.code
        return json.loads(capsys.readouterr().out)

    found = run("assess", "--no-report", "--hosts", "1x4")
    assert isinstance(found, dict)
    assert found["assessment"]["totals"]["instances"] == 2
    assert {one["instance"] for one in found["recommendations"]} == {job.id for job in ended}
    explained = run("explain", ended[0].id)
    assert isinstance(explained, dict)
    assert explained["instance"] == ended[0].id


def test_a_project_without_minutes_says_so(people: People) -> None:
    with pytest.raises(InvalidInputError, match="no minute of use"):
        recorded_usage(people.bob, "red", lambda _done, _of: None)


class TwoAttempts:
    """A job that was started again in the minute in which it had failed."""

    def __init__(self, job: Job, minutes: tuple[UsageMinute, ...]) -> None:
        first = job.attempts[0]
        again = msgspec.structs.replace(first, number=2, allocation_id=AllocationId("alloc_again"))
        self._job = msgspec.structs.replace(job, attempts=(first, again))
        self._minutes = minutes[:3] + tuple(
            msgspec.structs.replace(one, allocation_id=again.allocation_id, cpu_mean_millis=1.0)
            for one in minutes[2:5]
        )

    def jobs(self, *, project: str = "") -> tuple[Job, ...]:
        assert project == "blue"
        return (self._job,)

    def usage(self, job_id: str) -> tuple[UsageMinute, ...]:
        assert job_id == self._job.id
        return self._minutes


def test_each_attempt_is_an_instance_of_its_own(people: People, ended: tuple[Job, ...]) -> None:
    twice = TwoAttempts(ended[0], people.ann.usage(ended[0].id))
    reading = read_trace(recorded_usage(twice, "blue", lambda _done, _of: None))
    assert reading.trace.instances == (f"{ended[0].id}/1", f"{ended[0].id}/2")
