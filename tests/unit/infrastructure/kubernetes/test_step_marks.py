"""The marks of steps leave no trace in the log, however the stream is cut."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from yunhe.infrastructure.kubernetes.files.step_marks import StepMarks
from yunhe.infrastructure.kubernetes.objects.wrapper import mark_of

ID = "alloc_1"
OUTPUTS = st.lists(
    st.binary(max_size=30)
    | st.sampled_from([b"\x1e", b"\x1ealloc_1 ", b"no newline", b"\x1ealloc_2 1\x1e\n"]),
    max_size=5,
)


@given(outputs=OUTPUTS, cuts=st.lists(st.integers(0, 200), max_size=8))
def test_the_clean_log_is_what_the_steps_wrote_however_it_is_cut(
    outputs: list[bytes], cuts: list[int]
) -> None:
    raw = b"".join(mark_of(ID, number) + output for number, output in enumerate(outputs, start=1))
    marks = StepMarks(ID)
    edges = [0, *sorted(cut for cut in cuts if cut < len(raw)), len(raw)]
    clean = b"".join(marks.feed(raw[start:end]) for start, end in itertools.pairwise(edges)) + marks.end()
    assert clean == b"".join(outputs)
    assert marks.step_number == len(outputs)


def test_a_mark_is_noticed_before_its_step_says_anything() -> None:
    marks = StepMarks(ID)
    assert marks.feed(mark_of(ID, 1) + b"one\n" + mark_of(ID, 2)) == b"one\n"
    assert marks.step_number == 2


def test_what_begins_like_a_mark_is_not_held_for_ever() -> None:
    marks = StepMarks(ID)
    assert (
        marks.feed(b"\x1ealloc_1 1 and then something else\n") == b"\x1ealloc_1 1 and then something else\n"
    )


def test_a_log_whose_beginning_was_rotated_away_is_told_from_a_whole_one() -> None:
    whole, rotated = StepMarks(ID), StepMarks(ID)
    whole.feed(mark_of(ID, 1) + b"one\n")
    rotated.feed(b"ne\n" + mark_of(ID, 2) + b"two\n")
    assert whole.begins_with_mark is True
    assert rotated.begins_with_mark is False
