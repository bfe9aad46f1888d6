"""What must hold after a campaign, counted from the jobs' own lines, the database, the ledger and the agents' roots."""

import signal
from collections import Counter

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from faults import workload
from faults.campaign import Campaign
from faults.workload import Kind
from support import agent_processes
from yunhe.control.pools.store import POOLS
from yunhe.scheduling.orchestration.jobs import store
from yunhe.scheduling.orchestration.jobs.model import Job
from yunhe.scheduling.orchestration.jobs.outcome import UNKNOWN
from yunhe.scheduling.orchestration.jobs.states import JobState
from yunhe.scheduling.orchestration.jobs.steps import REFUSED, TURNED_AWAY
from yunhe.scheduling.orchestration.jobs.store import AllocationState
from yunhe.scheduling.orchestration.jobs.tables import ALLOCATIONS, JOBS
from yunhe.scheduling.perception.store import FEEDS
from yunhe.storage import audit
from yunhe.storage.database import Database
from yunhe.trading.trades.chain import verify
from yunhe.trading.trades.store import read_lines


async def problems_of(campaign: Campaign) -> list[str]:
    """Return everything that does not hold; nothing, if the platform kept its promises."""
    database = Database(campaign.database_url)
    try:
        found = await database.read(lambda connection: _books(connection, campaign))
    finally:
        database.close()
    return [*_jobs(campaign), *found, *_servers(campaign), *_agents(campaign), *_failpoints(campaign)]


def _jobs(campaign: Campaign) -> list[str]:
    lines = workload.lines_of(campaign.lines)
    found: list[str] = []
    if len(campaign.jobs) != campaign.submitted:
        found.append(f"{campaign.submitted} jobs were submitted, {len(campaign.jobs)} are there")
    for job in campaign.jobs.values():
        found += problems_of_job(job, lines)
    known = {attempt.allocation_id for job in campaign.jobs.values() for attempt in job.attempts}
    found += [f"{name} wrote lines and belongs to no job" for name in lines.keys() - known]
    return found


def problems_of_job(job: Job, lines: dict[str, list[str]]) -> list[str]:
    """Return what does not hold of one job, given what each attempt has written."""
    kind = workload.kind_of(int(job.name.partition("-")[2]))
    expected = JobState.STOPPED if kind is Kind.STOPPED else JobState.SUCCEEDED
    found: list[str] = []
    if job.state is not expected:
        found.append(f"should be {expected}")
    if kind is Kind.OUTPUTS and job.outputs_blob is None:
        found.append("its outputs are lost")
    wrote = {attempt.number: lines.get(attempt.allocation_id, []) for attempt in job.attempts}
    for attempt in job.attempts:
        number = attempt.number
        saves = kind is Kind.STOPPED and wrote[number] in (["start", "ready"], ["start", "ready", "saved"])
        if wrote[number] not in ([], ["start"], ["start", "end"]) and not saves:
            found.append(f"attempt {number} wrote {wrote[number]}")
        if attempt.ending in (REFUSED, TURNED_AWAY) and wrote[number]:
            found.append(f"attempt {number} was refused and wrote {wrote[number]}")
        if attempt.ending == "done" and attempt.exit_code == 0:
            if wrote[number] != ["start", "end"]:
                found.append(f"attempt {number} is done and wrote {wrote[number]}")
            if attempt.log_bytes != len(job.name) + 1:
                found.append(f"attempt {number} kept {attempt.log_bytes} bytes of its log")
        if attempt.ending == "stopped" and wrote[number] == ["start", "ready"]:
            found.append(f"attempt {number} was stopped and could not save its work")
    if (
        wrote
        and "saved" in wrote[max(wrote)]
        and job.attempts[-1].ending == "stopped"
        and job.outputs_blob is None
    ):
        found.append("what it saved is lost")
    starts = sum(written.count("start") for written in wrote.values())
    unknown = sum(attempt.ending == UNKNOWN for attempt in job.attempts)
    if starts > 1 + unknown:
        found.append(f"started {starts} times, {unknown} attempts unknown")
    return [f"{_told(job)}: {what}" for what in found]


def _told(job: Job) -> str:
    attempts = ", ".join(f"{a.ending}({a.exit_code}) {a.detail}".strip() for a in job.attempts)
    return f"{job.name} {job.id} is {job.state} ({job.reason}) after [{attempts}]"


def _books(connection: Connection, campaign: Campaign) -> list[str]:
    found = [f"{node} is still promised {held}" for node, held in store.promised(connection).items()]
    found += _leases(connection, campaign)
    entries = read_lines(connection, 0, 1_000_000)
    verdict = verify(entries)
    if not verdict.ok:
        found.append(f"the ledger does not verify: {verdict.problem}")
    finals = Counter(entry.allocation_id for entry in entries if entry.final)
    for row in connection.execute(sa.select(ALLOCATIONS)):
        if row.state != AllocationState.RELEASED:
            found.append(f"{row.id} is {row.state}, not released")
        if finals[row.id] != (0 if row.ending in (REFUSED, TURNED_AWAY) else 1):
            found.append(f"{row.id} ({row.ending}) has {finals[row.id]} final lines in the ledger")
        if row.ending == "done" and not row.log_bytes:
            found.append(f"{row.id} has no log")
    return found + _audit(connection)


def _audit(connection: Connection) -> list[str]:
    """Return changes of which the audit log does not tell exactly once."""
    told = Counter((row.action, row.subject) for row in connection.execute(sa.select(audit.LOG)))
    found: list[str] = []
    for job in connection.execute(sa.select(JOBS.c.id, JOBS.c.stop_requested)):
        for action, expected in (("job submit", 1), ("job stop", int(job.stop_requested))):
            if told[action, job.id] != expected:
                found.append(f"{job.id} has {told[action, job.id]} lines of {action} in the audit log")
    return found


def _leases(connection: Connection, campaign: Campaign) -> list[str]:
    """Return leases that nobody should hold: any on a job, and those of processes that were told to stop."""
    stopped = {server.last_pid for server in campaign.servers}
    found: list[str] = []
    for table in (JOBS, POOLS, FEEDS):
        for row in connection.execute(sa.select(table.c.id, table.c.lease_owner)):
            by = row.lease_owner
            if by and (table is JOBS or int(by.split(":")[1]) in stopped):
                found.append(f"{table.name} {row.id} is still leased by {by}")
    return found


def _servers(campaign: Campaign) -> list[str]:
    found: list[str] = []
    for server in campaign.servers:
        strange = [status for status in server.deaths if status != -signal.SIGKILL]
        if strange:
            found.append(f"{server.name} ended by itself, with {strange}; see {server.log}")
        if server.stopped_with != 0:
            found.append(f"{server.name} answered SIGTERM with {server.stopped_with}")
    return found


def _agents(campaign: Campaign) -> list[str]:
    allocations = {str(a.allocation_id) for job in campaign.jobs.values() for a in job.attempts}
    found = [f"process {pid} of a job lives" for pid in agent_processes.processes_of(allocations)]
    for name, root in campaign.roots.items():
        found += [f"{name}: {what} is left" for what in agent_processes.left_behind(root)]
    return found


def _failpoints(campaign: Campaign) -> list[str]:
    missed = [name for name in campaign.plan.failpoints if not campaign.marks.has_fired(name)]
    found = [f"the failpoint {name} was never reached" for name in missed]
    return found + [f"nobody was frozen at {n}" for n in campaign.plan.freezes if n not in campaign.frozen]
