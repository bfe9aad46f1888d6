"""The queue of keys coalesces, never hands out a key twice at a time, and loses none."""

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from yunhe.infrastructure.kubernetes.api.key_queue import KeyQueue

A, B, C = ("x", "a"), ("x", "b"), ("x", "c")

pytestmark = pytest.mark.anyio


async def take(queue: KeyQueue) -> tuple[str, str] | None:
    with anyio.move_on_after(0.05):
        return await queue.take()
    return None


async def test_a_key_added_many_times_is_taken_once() -> None:
    queue = KeyQueue()
    for _ in range(5):
        queue.add(A)
    assert await take(queue) == A
    assert await take(queue) is None


async def test_a_key_that_changes_while_it_is_looked_at_is_looked_at_once_more() -> None:
    queue = KeyQueue()
    queue.add(A)
    assert await take(queue) == A
    queue.add(A)
    queue.add(A)
    assert await take(queue) is None, "two at a time"
    queue.done(A)
    assert await take(queue) == A
    queue.done(A)
    assert await take(queue) is None


async def test_what_just_changed_goes_before_the_backlog() -> None:
    queue = KeyQueue()
    queue.add(A, urgent=False)
    queue.add(B, urgent=False)
    queue.add(C)
    queue.add(B)
    assert [await take(queue) for _ in range(3)] == [C, B, A]


async def test_what_is_wanted_later_comes_later() -> None:
    queue = KeyQueue()
    queue.add_after(A, 0.15)
    assert await take(queue) is None
    with anyio.fail_after(1):
        assert await queue.take() == A


STEPS = st.lists(
    st.tuples(st.sampled_from(["add", "backlog", "take", "done"]), st.sampled_from([A, B, C])), max_size=40
)


@settings(max_examples=100)
@given(steps=STEPS)
def test_no_key_is_lost_and_none_is_held_twice(steps: list[tuple[str, tuple[str, str]]]) -> None:
    async def play() -> None:
        queue = KeyQueue()
        owed: set[tuple[str, str]] = set()
        held: list[tuple[str, str]] = []
        for what, key in steps:
            if what in ("add", "backlog"):
                queue.add(key, urgent=what == "add")
                owed.add(key)
            elif what == "take" and len(queue):
                taken = await queue.take()
                assert taken not in held
                held.append(taken)
                owed.discard(taken)
            elif what == "done" and key in held:
                held.remove(key)
                queue.done(key)
        for key in held:
            queue.done(key)
        left = {await queue.take() for _ in range(len(queue))}
        assert left == owed

    anyio.run(play)
