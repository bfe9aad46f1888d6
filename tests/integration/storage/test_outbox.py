"""The outbox: facts are read in the order in which they became true, each exactly once."""

import random
import threading
import time

import anyio
import anyio.to_thread
import msgspec
import pytest
from sqlalchemy.engine import Connection

from yunhe.storage import outbox
from yunhe.storage.database import Database
from yunhe.storage.notices import Notices

pytestmark = pytest.mark.anyio

WRITERS = 6
FACTS_EACH = 25
TOPICS = ("north.v1", "south.v1")


async def write_all(database: Database, seed: int) -> None:
    """Have several writers append, each transaction staying open for a moment after it has drawn its number."""

    async def write(writer: int) -> None:
        moods = random.Random(seed + writer)
        for number in range(FACTS_EACH):
            topic, pause_s = moods.choice(TOPICS), moods.choice((0, 0, 0.001, 0.01))

            def append(
                connection: Connection, t: str = topic, n: int = number, pause_s: float = pause_s
            ) -> None:
                outbox.append(connection, t, f"writer-{writer}", time.time(), {"number": n})
                time.sleep(pause_s)

            await database.write(append)

    async with anyio.create_task_group() as tasks:
        for writer in range(WRITERS):
            tasks.start_soon(write, writer)


def by_writer(events: list[outbox.Event]) -> dict[str, list[int]]:
    told: dict[str, list[int]] = {}
    for event in events:
        told.setdefault(event.key, []).append(msgspec.json.decode(event.body)["number"])
    return told


async def test_who_has_read_up_to_a_fact_never_finds_an_earlier_one_appear(database: Database) -> None:
    seen: list[outbox.Event] = []
    done = threading.Event()

    def read_as_it_grows() -> None:
        last_round = False
        while not last_round:
            last_round = done.is_set()
            with database.engine.connect() as connection:
                seen.extend(outbox.read_all(connection, seen[-1].seq if seen else 0, 10_000))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(anyio.to_thread.run_sync, read_as_it_grows)
        await write_all(database, seed=1)
        done.set()
    everything = await database.read(lambda c: outbox.read_all(c, 0, 10_000))
    assert [event.seq for event in seen] == [event.seq for event in everything]
    assert by_writer(seen) == {f"writer-{w}": list(range(FACTS_EACH)) for w in range(WRITERS)}


async def test_consumers_side_by_side_deal_with_every_fact_once_and_in_order(database: Database) -> None:
    dealt: list[outbox.Event] = []
    finished = anyio.Event()

    def consume(connection: Connection) -> list[outbox.Event]:
        after = outbox.cursor(connection, "ledger")
        events = outbox.read(connection, TOPICS, after, 5)
        if events:
            outbox.advance(connection, "ledger", events[-1].seq)
        return events

    async def consumer() -> None:
        while True:
            events = await database.write(consume)
            dealt.extend(events)
            if not events and finished.is_set():
                return

    async with anyio.create_task_group() as tasks:
        for _ in range(3):
            tasks.start_soon(consumer)
        await write_all(database, seed=2)
        finished.set()
    assert len({event.seq for event in dealt}) == len(dealt) == WRITERS * FACTS_EACH
    assert by_writer(sorted(dealt, key=lambda event: event.seq)) == {
        f"writer-{w}": list(range(FACTS_EACH)) for w in range(WRITERS)
    }


async def test_listeners_hear_every_fact_of_their_topic_once(database: Database) -> None:
    notices, heard, wanted = Notices(database), list[outbox.Event](), list[outbox.Event]()
    await database.write(lambda c: outbox.append(c, "north.v1", "before", 0.0, {"number": 0}))
    notices.listen("north.v1", heard.append)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(notices.run)
        await anyio.sleep(0.3)  # what was written before it began is not told
        await write_all(database, seed=3)
        wanted = await database.read(lambda c: outbox.read(c, ("north.v1",), 1, 10_000))
        with anyio.move_on_after(10):
            while len(heard) < len(wanted):
                await anyio.sleep(0.02)
        tasks.cancel_scope.cancel()
    assert heard == wanted


async def test_a_waiter_is_woken_by_a_fact_about_its_key_and_no_other(database: Database) -> None:
    notices = Notices(database)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(notices.run)
        await anyio.sleep(0.3)
        mine, other = notices.waiter("mine"), notices.waiter("other")
        await database.write(lambda c: outbox.append(c, "north.v1", "mine", 0.0, {}))
        notices.poke()
        with anyio.fail_after(60):
            await mine.wait()
        assert not other.is_set()
        tasks.cancel_scope.cancel()


async def test_only_what_everybody_has_dealt_with_is_forgotten(database: Database) -> None:
    for number in range(4):
        await database.write(lambda c, n=number: outbox.append(c, "north.v1", "k", float(n), {"number": n}))
    assert await database.write(lambda c: outbox.forget_before(c, 100.0)) == 0, "nobody has read anything"

    def read_two(connection: Connection, consumer: str) -> None:
        events = outbox.read(connection, TOPICS, outbox.cursor(connection, consumer), 2)
        outbox.advance(connection, consumer, events[-1].seq)

    await database.write(lambda c: read_two(c, "fast"))
    await database.write(lambda c: read_two(c, "fast"))
    await database.write(lambda c: read_two(c, "slow"))
    assert await database.write(lambda c: outbox.forget_before(c, 1.0)) == 1, "the second is too young"
    assert await database.write(lambda c: outbox.forget_before(c, 100.0)) == 1, "the slow one needs the rest"
    left = await database.read(lambda c: outbox.read_all(c, 0, 100))
    assert [msgspec.json.decode(event.body)["number"] for event in left] == [2, 3]
