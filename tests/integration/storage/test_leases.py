"""Leases against the obvious model of them, and with several claimers at once."""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import anyio
import pytest
import sqlalchemy as sa
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test
from sqlalchemy.engine import Connection

from yunhe.kernel.errors import FencedError
from yunhe.scheduling.perception.store import FEEDS
from yunhe.storage import leases
from yunhe.storage.database import Database

pytestmark = pytest.mark.anyio

ROWS = ("a", "b", "c", "d")
OWNERS = ("north", "south")
TTL_S = 10.0
EVERYTHING = sa.select(FEEDS.c.id).order_by(FEEDS.c.id)


class Row:
    """What a lease is, without a database."""

    def __init__(self) -> None:
        self.owner, self.until, self.token, self.value = "", 0.0, 0, 0


class Leases(RuleBasedStateMachine):
    """Every step is done to the table and to the model, and both must say the same."""

    database: Database

    @initialize()
    def empty(self) -> None:
        self.now = 1000.0
        self.rows = {name: Row() for name in ROWS}
        self.tokens: set[tuple[str, int]] = set()
        with self.transaction() as connection:
            connection.execute(FEEDS.delete())
            connection.execute(FEEDS.insert(), [{"id": name} for name in ROWS])

    @contextmanager
    def transaction(self) -> Generator[Connection]:
        with self.database.engine.begin() as connection:
            yield connection

    @rule(seconds=st.sampled_from([0.1, 4.0, 9.9, 10.1]))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @rule(owner=st.sampled_from(OWNERS), limit=st.integers(1, 5))
    def claim(self, owner: str, limit: int) -> None:
        with self.transaction() as connection:
            taken = leases.claim(
                connection, FEEDS, EVERYTHING.limit(limit), owner=owner, now=self.now, ttl_s=TTL_S
            )
        free = [name for name in ROWS if self.rows[name].until < self.now][:limit]
        assert sorted(row.id for row in taken) == free
        for row in taken:
            assert (row.id, row.lease_token) not in self.tokens, "a token was given out twice"
            self.tokens.add((row.id, row.lease_token))
            mine = self.rows[row.id]
            mine.owner, mine.until, mine.token = owner, self.now + TTL_S, mine.token + 1

    @rule(owner=st.sampled_from(OWNERS))
    def keep(self, owner: str) -> None:
        with self.transaction() as connection:
            kept = leases.keep(connection, FEEDS, owner=owner, now=self.now, ttl_s=TTL_S)
        standing = {name for name, row in self.rows.items() if row.owner == owner}
        assert kept == standing
        for name in standing:
            self.rows[name].until = self.now + TTL_S

    @rule(owner=st.sampled_from(OWNERS), which=st.none() | st.sets(st.sampled_from(ROWS)))
    def let_go(self, owner: str, which: set[str] | None) -> None:
        with self.transaction() as connection:
            leases.let_go(connection, FEEDS, owner=owner, ids=which)
        for name, row in self.rows.items():
            if row.owner == owner and (which is None or name in which):
                row.owner, row.until = "", 0.0

    @rule(name=st.sampled_from(ROWS), behind=st.integers(0, 2), value=st.integers(0, 99))
    def apply(self, name: str, behind: int, value: int) -> None:
        row = self.rows[name]
        try:
            with self.transaction() as connection:
                leases.apply(connection, FEEDS, name, row.token - behind, seq=value)
            applied = True
        except FencedError:
            applied = False
        assert applied == (behind == 0)
        row.value = value if applied else row.value

    @invariant()
    def same(self) -> None:
        if not hasattr(self, "rows"):
            return
        with self.transaction() as connection:
            found = {row.id: row for row in connection.execute(sa.select(FEEDS))}
        for name, row in self.rows.items():
            actual = found[name]
            assert (actual.lease_owner, actual.lease_token) == (row.owner, row.token)
            assert actual.lease_until == pytest.approx(row.until)
            assert row.value in (0, actual.seq)


async def test_leases_behave_as_their_model(database: Database) -> None:
    class OnThisDatabase(Leases):
        pass

    OnThisDatabase.database = database
    run_state_machine_as_test(
        OnThisDatabase,
        settings=settings(
            max_examples=20,
            stateful_step_count=20,
            deadline=None,
        ),
    )


async def test_claimers_at_once_never_share_a_row(database: Database) -> None:
    names = [f"row-{number:03}" for number in range(200)]
    await database.write(lambda c: c.execute(FEEDS.insert(), [{"id": name} for name in names]))
    claimed: list[str] = []

    async def claim(owner: str) -> None:
        def take(connection: Connection) -> list[Any]:
            few = EVERYTHING.limit(7)
            return leases.claim(connection, FEEDS, few, owner=owner, now=1000.0, ttl_s=TTL_S)

        while rows := await database.write(take):
            assert all(row.lease_owner == owner for row in rows)
            claimed.extend(row.id for row in rows)

    async with anyio.create_task_group() as tasks:
        for number in range(6):
            tasks.start_soon(claim, f"owner-{number}")
    assert len(claimed) == len(set(claimed))
    left = await database.write(
        lambda c: leases.claim(c, FEEDS, EVERYTHING, owner="last", now=1000.0, ttl_s=TTL_S)
    )
    assert sorted([*claimed, *(row.id for row in left)]) == names


async def test_whoever_lost_the_lease_changes_nothing_even_beside_other_changes(database: Database) -> None:
    await database.write(lambda c: c.execute(FEEDS.insert().values(id="a")))

    def claim(connection: Connection, owner: str, now: float) -> int:
        (row,) = leases.claim(connection, FEEDS, EVERYTHING, owner=owner, now=now, ttl_s=TTL_S)
        return row.lease_token

    old = await database.write(lambda c: claim(c, "north", 1000.0))
    new = await database.write(lambda c: claim(c, "south", 1000.0 + TTL_S + 1))

    def late(connection: Connection) -> None:
        connection.execute(FEEDS.insert().values(id="b"))
        leases.apply(connection, FEEDS, "a", old, seq=7)

    with pytest.raises(FencedError):
        await database.write(late)
    await database.write(lambda c: leases.apply(c, FEEDS, "a", new, seq=8))
    rows = await database.read(lambda c: {row.id: row.seq for row in c.execute(sa.select(FEEDS))})
    assert rows == {"a": 8}


async def test_leases_end_with_the_block_that_holds_them(database: Database) -> None:
    await database.write(lambda c: c.execute(FEEDS.insert().values(id="a")))
    with pytest.raises(RuntimeError, match="stopped"):
        async with leases.held_until_end(database, FEEDS, "north"):
            await database.write(
                lambda c: leases.claim(c, FEEDS, EVERYTHING, owner="north", now=1000.0, ttl_s=TTL_S)
            )
            raise RuntimeError("stopped")
    (row,) = await database.write(
        lambda c: leases.claim(c, FEEDS, EVERYTHING, owner="south", now=1000.0, ttl_s=TTL_S)
    )
    assert row.lease_owner == "south"
