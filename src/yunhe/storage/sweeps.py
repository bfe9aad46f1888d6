"""Sweeps: work that one process does at a time, held by a lease; who has lost it cannot write any more."""

from collections.abc import Callable

import sqlalchemy as sa

from yunhe.storage import leases
from yunhe.storage.database import Connection, Database, T, insert_if_missing, metadata

SWEEPS = sa.Table(
    "sweep",
    metadata,
    sa.Column("id", sa.String(40), primary_key=True),
    *leases.lease_columns(),
)


class Sweep:
    """One kind of work, named *name*, as *owner* does it."""

    def __init__(self, database: Database, name: str, owner: str, ttl_s: float) -> None:
        self._database = database
        self._name = name
        self._owner = owner
        self._ttl_s = ttl_s
        self._token = -1

    async def begin(self, now: float) -> bool:
        """Take the lease and return whether it is ours: another process may have it."""

        def claim(connection: Connection) -> int | None:
            insert_if_missing(connection, SWEEPS, id=self._name)
            mine = sa.select(SWEEPS.c.id).where(SWEEPS.c.id == self._name)
            rows = leases.claim(connection, SWEEPS, mine, owner=self._owner, now=now, ttl_s=self._ttl_s)
            return rows[0].lease_token if rows else None

        token = await self._database.write(claim)
        self._token = -1 if token is None else token
        return token is not None

    def guard(self, connection: Connection, now: float) -> None:
        """Prolong the lease in a transaction; raise ``FencedError`` if another process has it."""
        leases.apply(connection, SWEEPS, self._name, self._token, lease_until=now + self._ttl_s)

    async def write(self, transaction: Callable[[Connection], T], now: float) -> T:
        """Run a transaction if the lease still stands; it is prolonged with it."""

        def guarded(connection: Connection) -> T:
            self.guard(connection, now)
            return transaction(connection)

        return await self._database.write(guarded)

    async def end(self) -> None:
        """Let others take the lease at once."""
        await self._database.write(lambda c: leases.let_go(c, SWEEPS, owner=self._owner))
