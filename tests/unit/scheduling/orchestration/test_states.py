"""A job's state is written from one place: the table of what may follow what."""

import ast
from pathlib import Path

import pytest

import yunhe
from yunhe.kernel.errors import ConflictError
from yunhe.scheduling.orchestration.jobs.states import FINAL, FOLLOWS, JobState, follow

SOURCES = Path(yunhe.__file__).parent / "scheduling" / "orchestration"
WRITERS = {"values", "apply", "change_row"}
"""Functions whose keyword arguments become columns of a job's row."""
COLUMNS = {"state", "state_followed"}
"""The column, and the parameter of it where many rows are written at once."""
OTHER_ROWS = {"AllocationState", "sa.bindparam('state_followed')"}
"""Enums of rows that are not jobs; and the parameter, whose values are looked at where they are given."""


def states_written(source: str) -> list[str]:
    """Return the expressions that become a ``state`` column, less those of other rows."""
    found: list[ast.expr] = []
    nodes = list(ast.walk(ast.parse(source)))
    logged = {node.value for node in nodes if isinstance(node, ast.keyword) and node.arg == "extra"}
    for node in nodes:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in WRITERS:
            found += [keyword.value for keyword in node.keywords if keyword.arg == "state"]
        if isinstance(node, ast.Dict) and node not in logged:
            found += [
                value
                for key, value in zip(node.keys, node.values, strict=True)
                if isinstance(key, ast.Constant) and key.value in COLUMNS
            ]
    texts = [ast.unparse(value) for value in found]
    return [text for text in texts if not OTHER_ROWS & {text, text.partition(".")[0]}]


def goes_round(source: str) -> list[str]:
    """Return the expressions that become a job's state without ``follow()``."""
    return [text for text in states_written(source) if not text.startswith("follow(")]


def test_no_module_of_orchestration_writes_a_state_that_follow_did_not_return() -> None:
    written: list[str] = []
    for path in SOURCES.rglob("*.py"):
        source = path.read_text()
        written += states_written(source)
        assert not goes_round(source), path
    assert len(written) >= 4  # a new job, a change, a stop and a placement: the walk looks at something


@pytest.mark.parametrize(
    "line",
    [
        "JOBS.update().values(state=JobState.STOPPED, reason='')",
        "leases.apply(connection, JOBS, job_id, token, state='failed')",
        "row = {'state': JobState.PENDING.value}",
    ],
)
def test_a_state_written_past_follow_is_noticed(line: str) -> None:
    assert goes_round(line)


def test_a_new_job_is_pending_and_nothing_else() -> None:
    assert follow(None, JobState.PENDING) is JobState.PENDING
    for state in set(JobState) - {JobState.PENDING}:
        with pytest.raises(ConflictError, match="new cannot become"):
            follow(None, state)


def test_a_job_that_has_ended_stays_as_it_is() -> None:
    assert {JobState.SUCCEEDED, JobState.FAILED, JobState.STOPPED} == FINAL
    for ended in FINAL:
        for state in set(JobState) - {ended}:
            with pytest.raises(ConflictError):
                follow(ended, state)


def test_every_state_can_be_reached_from_a_new_job() -> None:
    reached: set[JobState | None] = {None}
    while (wider := reached | {then for now in reached for then in FOLLOWS[now]}) != reached:
        reached = wider
    assert reached == {None, *JobState}
