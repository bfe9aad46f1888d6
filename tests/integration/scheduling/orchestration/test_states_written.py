"""What the database sees of a job's states is what the table of transitions let through, counted."""

import sys
from collections import Counter
from pathlib import Path

import anyio
import pytest
import sqlalchemy as sa

from integration.scheduling.orchestration.driving import Rig, rig
from yunhe.infrastructure.fake.pool import FakePool
from yunhe.kernel.clock import system_clock
from yunhe.kernel.errors import UnsupportedError
from yunhe.scheduling.orchestration.jobs import states, steps, store
from yunhe.scheduling.orchestration.jobs.states import JobState
from yunhe.scheduling.orchestration.jobs.tables import JOBS

pytestmark = pytest.mark.anyio

Transitions = Counter[tuple[str | None, str]]

SEEN = "CREATE TABLE seen (before TEXT, after TEXT)"
ON_SQLITE = [
    f"CREATE TRIGGER {name} AFTER {event} ON {JOBS.name} {when} BEGIN INSERT INTO seen VALUES ({before}, NEW.state); END"
    for name, event, when, before in (
        ("born", "INSERT", "", "NULL"),
        ("moved", "UPDATE OF state", "WHEN OLD.state <> NEW.state", "OLD.state"),
    )
]
LOOK = """CREATE FUNCTION look() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
IF TG_OP = 'INSERT' THEN INSERT INTO seen VALUES (NULL, NEW.state);
ELSIF OLD.state <> NEW.state THEN INSERT INTO seen VALUES (OLD.state, NEW.state); END IF;
RETURN NEW; END $$"""
ON_POSTGRES = [
    LOOK,
    f"CREATE TRIGGER looked AFTER INSERT OR UPDATE ON {JOBS.name} FOR EACH ROW EXECUTE FUNCTION look()",
]


async def watch_rows(parts: Rig) -> None:
    """Have the database itself write down every change of a state."""

    def begin(connection: sa.Connection) -> None:
        for line in [SEEN, *(ON_SQLITE if parts.database.is_sqlite else ON_POSTGRES)]:
            connection.exec_driver_sql(line)

    await parts.database.write(begin)


async def seen(parts: Rig) -> Transitions:
    rows = await parts.database.read(lambda c: c.exec_driver_sql("SELECT before, after FROM seen").all())
    return Counter((row.before, row.after) for row in rows)


def count_follows(monkeypatch: pytest.MonkeyPatch) -> Transitions:
    """Count the transitions that are asked of ``follow``, wherever it was imported."""
    allowed: Transitions = Counter()
    real = states.follow

    def follow(now: JobState | None, then: JobState) -> JobState:
        allowed[now, then] += 1
        return real(now, then)

    for module in list(sys.modules.values()):
        if getattr(module, "follow", None) is real:
            monkeypatch.setattr(module, "follow", follow)
    return allowed


async def test_every_change_of_state_in_the_database_went_through_follow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    allowed = count_follows(monkeypatch)
    monkeypatch.setattr(steps, "REFUSED_PAUSE_S", 0.0)
    async with rig(tmp_path) as parts:
        await watch_rows(parts)
        await parts.submit("true\n")
        again = await parts.submit("exit 3\n", retries=1)
        waits = await parts.submit("true\n")
        await stop(parts, waits)
        await parts.place()
        await parts.until(again, JobState.PENDING)
        await parts.place()
        await parts.until(again, JobState.FAILED)
        stopped = await parts.submit("sleep 60\n")
        await parts.place()
        await parts.until(stopped, JobState.RUNNING)
        await stop(parts, stopped)
        parts.driver.poke(stopped)
        await parts.until(stopped, JobState.STOPPED)
        monkeypatch.setattr(FakePool, "launch", refuse)
        refused = await parts.submit("true\n")
        with anyio.fail_after(30):
            while (await parts.job(refused)).state is not JobState.FAILED:
                await parts.place()
                await anyio.sleep(0.02)
        written = await seen(parts)
    assert written <= allowed
    assert {after for _, after in written} >= {*JobState} - {JobState.PREEMPTED, JobState.UNKNOWN}
    assert written["starting", "failed"] == 1
    assert written["pending", "stopped"] == 1


async def test_a_state_written_past_follow_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    allowed = count_follows(monkeypatch)
    async with rig(tmp_path) as parts:
        await watch_rows(parts)
        job_id = await parts.submit("true\n")
        await parts.database.write(
            lambda c: c.execute(JOBS.update().where(JOBS.c.id == job_id).values(state="stopped"))
        )
        assert not await seen(parts) <= allowed


async def stop(parts: Rig, job_id: store.JobId) -> None:
    job = await parts.job(job_id)
    await parts.database.write(lambda c: store.request_stop(c, job, system_clock()))


def refuse(*_: object, **__: object) -> None:
    raise UnsupportedError("The pool takes nothing.")
