"""What compares transcripts finds every difference, and every argument that has lost its difference."""

from copy import deepcopy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scenarios.same_task.transcript import GOLDEN, TASKS, Difference, compare, differences, read, render

GOLD = {"works": {"states": "a → b", "attempt 1": "done"}, "fails": {"states": "a → c"}}
ARGUED = Difference(engine="ray", tasks=("works",), line="states", instead="a → d", why="because")


def seen(**changes: str) -> dict[str, dict[str, dict[str, str]]]:
    ray = deepcopy(GOLD)
    ray["works"] |= changes
    return {"host": deepcopy(GOLD), "ray": ray}


def test_what_is_the_same_everywhere_is_right() -> None:
    assert compare(GOLD, seen(), []) == []


def test_a_difference_that_is_argued_is_right() -> None:
    assert compare(GOLD, seen(states="a → d"), [ARGUED]) == []


@pytest.mark.parametrize(
    ("changes", "argued"),
    [
        ({"states": "a → d"}, []),  # nobody argued
        ({"states": "a → e"}, [ARGUED]),  # argued for something else
        ({}, [ARGUED]),  # argued for and not there
        ({"output 1": "more"}, []),  # a line too many
    ],
)
def test_anything_else_is_wrong(changes: dict[str, str], argued: list[Difference]) -> None:
    (problem,) = compare(GOLD, seen(**changes), argued)
    assert problem.startswith("ray, works")


def test_a_line_and_a_task_that_are_missing_are_wrong() -> None:
    ray = seen()
    del ray["ray"]["works"]["attempt 1"]
    del ray["ray"]["fails"]
    assert len(compare(GOLD, ray, [])) == 2


@given(
    transcript=st.dictionaries(
        st.sampled_from([task.stem for task in TASKS]),
        st.dictionaries(
            st.from_regex(r"[a-z]{1,8}( [0-9])?", fullmatch=True),
            st.text(st.characters(exclude_categories=("Cc", "Cs", "Zl", "Zp")), min_size=1),
            min_size=1,
        ),
        min_size=1,
    )
)
def test_a_transcript_is_read_as_it_was_written(transcript: dict[str, dict[str, str]]) -> None:
    assert read(render(transcript)) == transcript


def test_the_golden_transcript_has_every_task_and_every_argument_a_line_and_a_reason() -> None:
    golden = read(GOLDEN.read_text())
    assert list(golden) == [task.stem for task in TASKS]
    for one in differences():
        assert one.why.strip()
        assert one.tasks
        assert all(golden[task][one.line] != one.instead for task in one.tasks)
