"""The verdict of a campaign bites: each broken promise is noticed from the lines alone."""

import pytest

from faults import workload
from faults.verdict import problems_of_job
from yunhe.kernel.ids import AllocationId, BlobId, JobId, NodeId, PoolId, ProjectId
from yunhe.kernel.resources import Resources
from yunhe.scheduling.decision.model import Alternative, Demand
from yunhe.scheduling.orchestration.jobs.model import Attempt, Job
from yunhe.scheduling.orchestration.jobs.states import JobState

PLAIN, OUTPUTS, STOPPED = 0, 3, 2


def attempt(number: int, ending: str = "done", exit_code: int | None = 0, log_bytes: int = 9) -> Attempt:
    return Attempt(
        allocation_id=AllocationId(f"alloc_{number}"),
        number=number,
        pool_id=PoolId("pool"),
        pool_name="pool",
        node_id=NodeId("node"),
        resources=Resources(),
        ending=ending,
        exit_code=exit_code,
        log_bytes=log_bytes,
    )


def job(
    *attempts: Attempt, number: int = PLAIN, state: JobState = JobState.SUCCEEDED, blob: str | None = None
) -> Job:
    return Job(
        id=JobId("job"),
        name=workload.name_of(number),
        project_id=ProjectId("default"),
        submitted_by="admin",
        state=state,
        submitted_at=0.0,
        attempts=attempts,
        demand=Demand(
            job_id=JobId("job"),
            project_id=ProjectId("default"),
            alternatives=(Alternative(Resources()),),
        ),
        outputs_blob=None if blob is None else BlobId(blob),
    )


RAN = ["start", "end"]
SAVED = ["start", "ready", "saved"]
LOST = attempt(1, ending="unknown", exit_code=None)


@pytest.mark.parametrize(
    ("one", "lines"),
    [
        (job(attempt(1)), {"alloc_1": RAN}),
        (job(LOST, attempt(2)), {"alloc_2": RAN}),
        (job(LOST, attempt(2)), {"alloc_1": ["start"], "alloc_2": RAN}),
        (job(LOST, attempt(2)), {"alloc_1": RAN, "alloc_2": RAN}),
        (job(attempt(1), number=OUTPUTS, blob="outputs/1"), {"alloc_1": RAN}),
        (job(attempt(1, ending="stopped"), number=STOPPED, state=JobState.STOPPED), {"alloc_1": ["start"]}),
        (
            job(attempt(1, ending="stopped"), number=STOPPED, state=JobState.STOPPED, blob="outputs/1"),
            {"alloc_1": SAVED},
        ),
    ],
    ids=[
        "ran",
        "lost unrun",
        "lost midway",
        "lost after its end",
        "with outputs",
        "stopped",
        "stopped and saved",
    ],
)
def test_what_is_promised_is_no_problem(one: Job, lines: dict[str, list[str]]) -> None:
    assert problems_of_job(one, lines) == []


@pytest.mark.parametrize(
    ("one", "lines"),
    [
        (job(attempt(1)), {}),
        (job(attempt(1)), {"alloc_1": ["start"]}),
        (job(attempt(1)), {"alloc_1": ["start", "start", "end", "end"]}),
        (job(attempt(1, log_bytes=0)), {"alloc_1": RAN}),
        (job(attempt(1, ending="done", exit_code=125), attempt(2)), {"alloc_1": ["start"], "alloc_2": RAN}),
        (job(LOST, attempt(2)), {"alloc_1": ["start", "start"], "alloc_2": RAN}),
        (job(LOST, attempt(2, ending="refused"), attempt(3)), {"alloc_2": ["start"], "alloc_3": RAN}),
        (job(attempt(1), state=JobState.RUNNING), {"alloc_1": RAN}),
        (job(LOST, state=JobState.FAILED), {"alloc_1": ["start"]}),
        (job(attempt(1), number=OUTPUTS), {"alloc_1": RAN}),
        (job(attempt(1), number=STOPPED), {"alloc_1": RAN}),
        (
            job(attempt(1, ending="stopped"), number=STOPPED, state=JobState.STOPPED),
            {"alloc_1": ["start", "ready"]},
        ),
        (job(attempt(1, ending="stopped"), number=STOPPED, state=JobState.STOPPED), {"alloc_1": SAVED}),
    ],
    ids=[
        "done and never ran",
        "done and never ended",
        "one attempt ran twice",
        "log lost",
        "ran twice, none unknown",
        "unknown ran twice",
        "refused and ran",
        "never ended",
        "given up",
        "outputs lost",
        "never stopped",
        "killed without its grace",
        "what it saved lost",
    ],
)
def test_a_broken_promise_is_a_problem(one: Job, lines: dict[str, list[str]]) -> None:
    assert problems_of_job(one, lines)
