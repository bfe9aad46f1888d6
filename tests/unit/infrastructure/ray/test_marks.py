"""Marks: what they say is independent of the order in which Ray lists them."""

from random import Random

import hypothesis.strategies as st
import msgspec
from hypothesis import given, settings

from yunhe.infrastructure.contract.model import Upload
from yunhe.infrastructure.ray import marks
from yunhe.infrastructure.ray.node.grace import JOB_KEYS, shortest_grace_s
from yunhe.infrastructure.ray.wire import RayJob, RaySubmission
from yunhe.kernel.ids import AllocationId, ProjectId

ID = AllocationId("alloc_06d1t8k2m4")
DAY_S = 86_400.0


def listed(submission: RaySubmission, at: float = 0.0, status: str = "FAILED") -> RayJob:
    return RayJob(
        type="SUBMISSION",
        status=status,
        submission_id=submission.submission_id,
        metadata=submission.metadata,
        start_time=round(at * 1000),
    )


def upload(token: int, path: str = "data") -> Upload:
    return Upload(
        allocation_id=ID, token=token, project_id=ProjectId("p"), path=path, digest="0" * 64, size_bytes=1
    )


tokens = st.integers(0, 2**40)
ids = st.just(ID)
submissions = st.one_of(
    st.builds(marks.tombstone, ids, tokens),
    st.builds(marks.token_mark, ids, tokens),
    st.builds(marks.stop_mark, ids, tokens, st.floats(0, 3600)),
    st.builds(marks.released_mark, ids, tokens),
    st.builds(marks.file_mark, st.builds(upload, tokens), st.integers(0, 9), st.just("p.zip")),
)


@settings(max_examples=60)
@given(st.lists(submissions, min_size=1, max_size=8, unique_by=lambda one: one.submission_id), st.randoms())
def test_the_highest_token_counts_in_whatever_order_they_are_listed(
    written: list[RaySubmission], random: Random
) -> None:
    jobs = [listed(one) for one in written]
    first = marks.read_known(jobs)
    random.shuffle(jobs)
    again = marks.read_known(jobs)
    assert list(first) == [ID]
    assert first[ID].token == max(int(one.metadata["token"]) for one in written)
    for name in ("token", "stopped", "released_at", "over", "live", "shown"):
        assert getattr(first[ID], name) == getattr(again[ID], name), name
    assert not first[ID].live


@settings(max_examples=60)
@given(st.lists(st.tuples(tokens, st.integers(0, 3_600_000)), min_size=1, max_size=5))
def test_the_node_reads_from_the_names_the_grace_that_was_written_into_them(
    stops: list[tuple[int, int]],
) -> None:
    prefix = f"{JOB_KEYS}{ID}.stop."
    keys = [
        f"{JOB_KEYS}{marks.stop_mark(ID, token, grace_ms / 1000).submission_id}".encode()
        for token, grace_ms in stops
    ]
    assert shortest_grace_s(keys, prefix) == min(grace_ms for _, grace_ms in stops) / 1000
    assert shortest_grace_s([], prefix) is None


def test_a_mark_asks_for_what_ray_refuses_and_would_do_nothing_if_it_did_not() -> None:
    mark = marks.stop_mark(ID, 3, 2.5)
    assert mark.entrypoint == "true"
    assert mark.entrypoint_resources == {"CPU": 1.0}
    assert mark.submission_id == f"{ID}.stop.3.2500"


def test_jobs_of_others_are_left_alone() -> None:
    theirs = RayJob(type="SUBMISSION", status="RUNNING", submission_id="train", metadata={"name": "x"})
    driver = RayJob(type="DRIVER", status="RUNNING")
    assert marks.read_known([theirs, driver]) == {}


def test_archives_are_unpacked_in_the_order_they_came() -> None:
    jobs = [listed(marks.file_mark(upload(1, f"p{n}"), n, f"{n}.zip")) for n in (10, 2, 0)]
    assert [file.number for file in marks.read_known(jobs)[ID].files] == [0, 2, 10]


def test_what_was_released_is_swept_after_an_hour_and_forgotten_after_a_week() -> None:
    main = listed(
        RaySubmission(entrypoint="x", submission_id=ID, metadata={"yunhe": "allocation", "token": "1"})
    )
    released = listed(marks.released_mark(ID, 2), at=1000.0)
    known = marks.read_known([released, main])
    assert marks.to_sweep(known, 1000.0 + 3599) == []
    assert marks.to_sweep(known, 1000.0 + 3601) == [ID]
    assert marks.to_prune(known, 1000.0 + 6 * DAY_S) == []
    assert marks.to_prune(known, 1000.0 + 8 * DAY_S) == [f"{ID}.released.2", ID], "its own name must go last"


def test_what_was_not_released_is_neither_swept_nor_forgotten() -> None:
    main = listed(
        RaySubmission(entrypoint="x", submission_id=ID, metadata={"yunhe": "allocation", "token": "1"})
    )
    known = marks.read_known([main])
    assert marks.to_sweep(known, 1e12) == []
    assert marks.to_prune(known, 1e12) == []
    assert known[ID].shown


def test_a_submission_says_only_what_differs_from_nothing() -> None:
    body = msgspec.json.decode(msgspec.json.encode(marks.token_mark(ID, 7)))
    assert sorted(body) == ["entrypoint", "entrypoint_resources", "metadata", "submission_id"]
