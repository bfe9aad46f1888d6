"""Jobs as people read them: the list, how one ended, why one waits."""

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from yunhe.entrypoints.cli.terminal.screen import amount, hints, local_time, span, symbol, table
from yunhe.entrypoints.cli.terminal.tables import FittingTable
from yunhe.entrypoints.cli.views.plan import GLANCE, Pools, considered, left_out, why_first, why_waiting
from yunhe.kernel.ids import PoolId
from yunhe.kernel.money import show_money
from yunhe.kernel.resources import Resources
from yunhe.kernel.units import show_duration, show_memory
from yunhe.scheduling.decision.model import Decision, Placed, Policy
from yunhe.scheduling.orchestration.jobs.model import Explanation, Job
from yunhe.scheduling.orchestration.jobs.states import FINAL, JobState
from yunhe.trading.trades.model import CostReport

COLOURS = {
    JobState.SUCCEEDED: "green",
    JobState.FAILED: "red",
    JobState.UNKNOWN: "red",
    JobState.RUNNING: "cyan",
    JobState.PREEMPTED: "yellow",
    JobState.PENDING: "yellow",
}

WELL = {JobState.STARTING, JobState.RUNNING, JobState.STOPPING, JobState.SUCCEEDED, JobState.STOPPED}
"""States that need no word of explanation, unless something is lost."""


def jobs_table(jobs: Sequence[Job], *, now: float) -> FittingTable:
    """Return the list of jobs, newest first."""
    notes = any(_note(job, now=now) for job in jobs)
    rows = [
        [
            job.id,
            job.name,
            Text(job.state, style=COLOURS.get(job.state, "")),
            job.attempts[-1].pool_name if job.attempts else "–",
            local_time(job.submitted_at, now=now),
            span(ran_s(job, now=now)),
            amount(asked(job)),
            *([_note(job, now=now)] if notes else []),
        ]
        for job in jobs
    ]
    headings = ["JOB", "NAME", "STATE", "POOL", "SUBMITTED", "RAN", "RESOURCES", *(["NOTE"] if notes else [])]
    return table(
        headings, rows, flexible=(1, 3, 6), cut=(7,) if notes else (), expendable=(6, 4, 5, *([7] * notes), 3)
    )


def _note(job: Job, *, now: float) -> str:
    """Return why a job waits or did not end well, in as many words as fit; ``explain`` and ``logs`` say more."""
    if being_ended := being_ended_text(job, now=now):
        return being_ended
    return "" if job.state in WELL and not is_lost(job) else job.reason


def being_ended_text(job: Job, *, now: float) -> str:
    """Return until when a job that was asked to end may save its work; empty for any other."""
    if job.stop_by is None or now < job.stop_by - job.grace_s:
        return ""
    why = "stopping" if job.state is JobState.STOPPING else "its timeout is over"
    if now >= job.stop_by:
        return f"{why}: it is being forced to end"
    return f"{why}: forced to end in {span(job.stop_by - now)}, at {local_time(job.stop_by, now=now)}"


def is_lost(job: Job) -> bool:
    """Return whether outputs or some of the log of a job's last attempt can never be had."""
    return bool(job.attempts) and bool(job.attempts[-1].outputs_lost or job.attempts[-1].log_lost)


def asked(job: Job) -> Resources:
    """Return what a job holds, or asks for while it holds nothing."""
    return job.attempts[-1].resources if job.attempts else job.demand.alternatives[0].resources


def ran_s(job: Job, *, now: float) -> float | None:
    """Return how long a job has run; None before it starts."""
    if job.started_at is None:
        return None
    return max(0.0, (job.ended_at or now) - job.started_at)


def used_text(job: Job) -> str:
    """Return what a job used, all attempts together."""
    core_s = sum(attempt.meters.cpu_us for attempt in job.attempts) / 1e6
    peak_mib = max((attempt.meters.memory_peak_mib for attempt in job.attempts), default=0)
    peak = f", {show_memory(peak_mib)} peak" if peak_mib else ""  # over before the first sample: not seen
    return f"used {core_s:.{1 if core_s >= 1 else 2}f} core-s{peak}"


def cost_text(report: CostReport) -> str:
    """Return what is owed, and what the reservation would have been."""
    if not report.lines:
        return "cost not metered yet"
    sign = symbol(report.currency)
    owed, reserved = show_money(report.amount_micros, sign), show_money(report.reserved_micros, sign)
    return f"cost {owed} (reserved would have been {reserved})"


def ending(job: Job, report: CostReport) -> RenderableType:
    """Return the lines that tell how a job ended, what it cost and what to do next."""
    good = job.state is JobState.SUCCEEDED
    ran = max(0.0, (job.ended_at or 0) - (job.started_at or job.ended_at or 0))
    line = Text(f"{'✓' if good else '✗'} {job.state}", style="bold green" if good else "bold red")
    line.append(f" in {show_duration(ran)}   {used_text(job)}", style="default not bold")
    parts: list[RenderableType] = [line]
    if job.reason or (not good and job.exit_code):
        parts.append(Text(f"  {job.reason or f'exit code {job.exit_code}'}"))
    parts += [Text(f"  {cost_text(report)}"), hints(_after(job))]
    return Group(*parts)


def _after(job: Job) -> dict[str, str]:
    outputs = {} if job.outputs_blob is None else {"outputs": f"yunhe cp {job.id}: ."}
    return {**outputs, "logs": f"yunhe logs {job.id}", "why here": f"yunhe explain {job.id}"}


def explanation_page(
    explanation: Explanation, pools: Pools, *, now: float, every: bool = False
) -> RenderableType:
    """Return why a job is where it is, or why it waits."""
    job, decision = explanation.job, explanation.decision
    parts: list[RenderableType] = [Text(_situation(explanation, now=now), style="bold")]
    if decision is None:
        parts.append(Text("  nothing has been decided yet; ask again in a moment"))
        return Group(*parts)
    decided = local_time(explanation.decided_at, now=now)
    parts.append(
        Text(f"decided {decided} by policy {job.demand.policy}, tier {job.demand.tier}", style="dim")
    )
    best = why_first(decision) if isinstance(decision, Placed) else None
    parts += [] if best is None else [best]
    parts.append(considered(decision, pools, every=every))
    change = why_waiting(decision)
    if change is not None and job.state not in FINAL:
        parts.append(change)
    if isinstance(decision, Placed) and len(decision.candidates) > 1:
        parts.append(Text(_what_scores_mean(job), style="dim"))
    parts += left_out(decision)
    if not every and _count(decision) > GLANCE:
        parts.append(Text(f"every pool: yunhe explain {job.id} --all", style="dim"))
    return Group(*parts)


def _nobody(pools: int) -> str:
    return f"; none of {pools} pools can take it now" if pools > 1 else ""


def _count(decision: Decision) -> int:
    placed = isinstance(decision, Placed)
    able = {one.pool_id for one in decision.candidates} if placed else set[PoolId]()
    return len(able) + len(decision.rejected)


def _what_scores_mean(job: Job) -> str:
    if job.demand.policy is Policy.BALANCED:
        return "score: money, with time, distance and carbon turned into it; least wins"
    return f"score: what {job.demand.policy} is named after; least wins"


def _situation(explanation: Explanation, *, now: float) -> str:
    job = explanation.job
    wants = amount(job.demand.alternatives[0].resources)
    others = len(job.demand.alternatives) - 1
    if job.demand.members > 1:
        wants = f"{job.demand.members} × ({wants}) together"
    wants += f" or {others} alternative{'s' * (others > 1)}" if others else ""
    if job.state is JobState.PENDING and (job.demand.not_before or 0.0) > now:
        return f"{job.name} is held until {local_time(job.demand.not_before, now=now)} (start_after); needs {wants}"
    if job.state is JobState.PENDING:
        decision = explanation.decision
        if (
            isinstance(decision, Placed) and job.reason
        ):  # there is room; it waits for something else, such as a quota
            return f"{job.name} waits {span(explanation.waiting_s)}: {job.reason}; needs {wants}"
        nobody = "" if decision is None else _nobody(len(decision.rejected))
        return f"{job.name} waits {span(explanation.waiting_s)}: needs {wants}{nobody}"
    place = f" on {job.attempts[-1].pool_name}" if job.attempts else ""
    said = "; ".join(filter(None, (job.reason, being_ended_text(job, now=now))))
    why = f": {said}" if said else ""
    ran = ran_s(job, now=now)
    time = "" if ran is None else f" ({span(ran)})"
    resized = job.attempts and job.attempts[-1].resources not in [
        alternative.resources for alternative in job.demand.alternatives
    ]
    has = f"has {amount(asked(job))}, asked for" if resized else "needs"
    return f"{job.name} {job.state}{place}{time}{why}; {has} {wants}{_clock_text(job)}"


def _clock_text(job: Job) -> str:
    """Say where times were corrected, because the clock of the host that told them was wrong."""
    off_s = job.attempts[-1].clock_off_s if job.attempts else None
    if off_s is None:
        return ""
    return f"; the clock of its host was {span(abs(off_s))} {'ahead' if off_s > 0 else 'behind'}, its times are corrected"
