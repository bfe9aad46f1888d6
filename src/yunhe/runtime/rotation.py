"""Rotating the vault's key: a new one beside the old, everything sealed anew, the old one gone.

Each step is found in the files and the database themselves, so that a rotation that was killed anywhere goes on from there.
"""

import fcntl
import getpass
import os
import socket
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import contextmanager
from enum import StrEnum
from functools import partial
from pathlib import Path

import anyio
import anyio.to_thread
import msgspec

from yunhe.control.plugins import store as plugins
from yunhe.kernel.clock import Clock
from yunhe.kernel.errors import ConflictError
from yunhe.observability.redaction import keep_out
from yunhe.scheduling.orchestration.jobs import store as jobs
from yunhe.storage import audit, signing
from yunhe.storage.database import IDLE_IN_TRANSACTION_MS, Connection, Database
from yunhe.storage.resealing import ResealedBatch, SealedColumn, reseal_batch
from yunhe.storage.vault import KeyFiles, Vault
from yunhe.trading.accounts import store as accounts

SEALED = (
    accounts.SEALED,
    jobs.SEALED,
    plugins.SEALED_TOKENS,
    plugins.SEALED_KEYS,
    signing.SEALED,
)
"""Every column of the database that the vault seals."""
SETTLE_S = {"sqlite": 3.0, "postgresql": IDLE_IN_TRANSACTION_MS / 1000 + 2}
"""How long a server may take to write what it sealed before the new key was there; PostgreSQL ends whoever takes longer."""
SHOWN_AT_MOST = 5


class RotationStep(StrEnum):
    """How far to go."""

    PREPARED = "prepared"
    """There is a new key; what it seals can be opened here, and nothing is sealed with it yet."""
    SWITCHED = "switched"
    """The new key seals; the old one still opens."""
    DONE = "done"
    """Nothing needs the old key, and it is gone."""


class VaultRotation(msgspec.Struct, frozen=True, kw_only=True):
    """What a rotation has done."""

    reached: RotationStep
    key: str
    """The name of the key that seals now."""
    resealed: dict[str, int] = {}
    """How many rows of each sort were sealed anew by this command."""


class Rotator:
    """Rotates the key of one home."""

    def __init__(
        self,
        path: Path,
        database: Database,
        clock: Clock,
        *,
        say: Callable[[str], None],
        settle_s: float | None = None,
    ) -> None:
        self._files = KeyFiles.of(path)
        self._database = database
        self._clock = clock
        self._say = say
        self._settle_s = SETTLE_S[database.engine.dialect.name] if settle_s is None else settle_s

    async def rotate(self, until: RotationStep) -> VaultRotation:
        """Go on from where the last rotation came to, as far as *until*; repeated, it is the next."""
        with _alone(self._files.current):
            await anyio.to_thread.run_sync(self._files.prepare)
            self._say("the new key is there")
            vault = Vault.at(self._files.current, keep_out)
            if until is RotationStep.PREPARED:
                return VaultRotation(reached=until, key=vault.key_id)
            await self._note(vault.key_id, "begun")
            await anyio.to_thread.run_sync(self._files.switch)
            self._say("the new key seals")
            if until is RotationStep.SWITCHED:
                return VaultRotation(reached=until, key=vault.key_id)
            resealed = await self._reseal(vault)
            await anyio.to_thread.run_sync(self._files.finish)
            self._say("the old key is gone")
            await self._note(vault.key_id, "done")
            return VaultRotation(reached=until, key=vault.key_id, resealed=dict(resealed))

    async def _reseal(self, vault: Vault) -> Counter[str]:
        """Seal everything anew, until a whole pass some time after the last finds nothing of the old key."""
        resealed = Counter[str]()
        await self._pass(vault, resealed)
        while True:
            self._say(f"{resealed.total()} sealed anew; waiting {self._settle_s:g} s for servers that write")
            await anyio.sleep(self._settle_s)
            found, broken = await self._pass(vault, resealed)
            if found:
                continue
            if not broken:
                return resealed
            more = f" and {len(broken) - SHOWN_AT_MOST} more" * (len(broken) > SHOWN_AT_MOST)
            raise ConflictError(
                f"No key of this home opens: {', '.join(broken[:SHOWN_AT_MOST])}{more}. The old key is kept.",
                remedy="Set or forget such secrets, stop such jobs, start such plugins again; then repeat the command.",
            )

    async def _pass(self, vault: Vault, resealed: Counter[str]) -> tuple[int, list[str]]:
        """Go through all that is sealed once; return how many rows were not of the new key, and which do not open."""
        found, broken = 0, list[str]()
        for column in SEALED:
            after: tuple[object, ...] | None = None
            while True:
                batch = await self._database.write(partial(_batch, column, vault, after))
                resealed[column.what] += batch.renewed
                found += batch.renewed + batch.changed_meanwhile
                broken += batch.broken
                after = batch.last
                if batch.renewed:
                    self._say(f"{resealed.total()} sealed anew")
                if after is None:
                    break
        return found, broken

    async def _note(self, key: str, outcome: str) -> None:
        by = audit.Actor(f"{getpass.getuser()}@{socket.gethostname()}")
        now = self._clock()
        await self._database.write(lambda c: audit.append(c, by, now, "vault rotate", key, outcome=outcome))


def _batch(
    column: SealedColumn, vault: Vault, after: tuple[object, ...] | None, connection: Connection
) -> ResealedBatch:
    return reseal_batch(connection, column, vault, after)


@contextmanager
def _alone(path: Path) -> Generator[None]:
    """Let no other process rotate the key of this home meanwhile; a lock ends with its process."""
    handle = os.open(path.with_name(f"{path.name}.lock"), os.O_RDWR | os.O_CREAT, 0o600)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConflictError(
                f"Another process rotates the key {path}.",
                remedy="Wait until it has ended; then it need not be repeated.",
            ) from None
        yield
    finally:
        os.close(handle)
