"""The notary: seals the audit log, signs the heads of both chains, and publishes them to a file and a webhook.

Lines are written with the changes they tell of and join the chain a moment later (ADR 54): a crash in between loses none.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import anyio
import anyio.to_thread
import httpx
import msgspec

from yunhe.kernel.chains import ChainHead
from yunhe.kernel.clock import Clock
from yunhe.kernel.errors import NotFoundError
from yunhe.observability.failpoints import failpoint
from yunhe.runtime.settings import Settings
from yunhe.storage import audit, signing
from yunhe.storage.database import Connection, Database
from yunhe.storage.private_files import write_private
from yunhe.storage.vault import Vault
from yunhe.trading.trades import store as ledger

EVERY_S = 1.0
SEAL_ALL_EVERY_S = 600.0
WEBHOOK_EVERY_S = 10.0
WEBHOOK_WITHIN_S = 5.0
AUDIT, LEDGER, CUT = "audit", "ledger", "audit-cut"

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Chain:
    tip: Callable[[Connection], tuple[int, str]]
    hash_at: Callable[[Connection, int], str]


def _seal(connection: Connection, *, whole: bool) -> None:
    cut = signing.read_head(connection, CUT)
    while audit.seal_batch(connection, cut, whole=whole):
        pass


def _audit_tip(connection: Connection) -> tuple[int, str]:
    _seal(connection, whole=False)
    cut = signing.read_head(connection, CUT)
    return audit.tip(connection, cut)


def _audit_hash(connection: Connection, number: int) -> str:
    cut = signing.read_head(connection, CUT)
    return cut.hash if cut is not None and cut.lines == number else audit.hash_at(connection, number)


CHAINS: Mapping[str, _Chain] = {
    LEDGER: _Chain(ledger.last_line, ledger.hash_at),
    AUDIT: _Chain(_audit_tip, _audit_hash),
}


class Notary:
    """Signs what is there, and never anything shorter or other than what it signed before."""

    def __init__(self, database: Database, vault: Vault, clock: Clock, settings: Settings) -> None:
        self._database = database
        self._vault = vault
        self._clock = clock
        self._home = settings.home
        self._webhook = settings.head_webhook
        self._posted: dict[str, str] = {}
        self._post_at = 0.0

    async def run(self) -> None:
        """Seal, sign and publish until cancelled."""
        seal_at = 0.0
        while True:
            if anyio.current_time() >= seal_at:
                await self._database.write(lambda c: _seal(c, whole=True))
                seal_at = anyio.current_time() + SEAL_ALL_EVERY_S
            heads = [await self.head(chain) for chain in CHAINS]
            await self._post(heads)
            await anyio.sleep(EVERY_S)

    async def head(self, chain: str) -> ChainHead:
        """Return the signed head of a chain as it is now."""
        if chain not in CHAINS:
            raise NotFoundError(f"There is no chain {chain}.", remedy=f"There are {', '.join(CHAINS)}.")
        published = await anyio.to_thread.run_sync(self._published, chain)
        head, changed = await self._database.write(lambda c: self._sign(c, chain, published))
        if changed:
            log.error("chain was changed", extra={"chain": chain, "signed": head.lines, "found": changed})
        elif published is None or published.hash != head.hash:
            path = head_path(self._home, chain)
            await anyio.to_thread.run_sync(write_private, path, msgspec.json.encode(head) + b"\n")
        return head

    def _sign(self, connection: Connection, chain: str, published: ChainHead | None) -> tuple[ChainHead, str]:
        """Return the head to show, and what is wrong with the chain; a chain that was cut or rewritten is not signed."""
        kind = CHAINS[chain]
        lines, last = kind.tip(connection)
        kept = signing.read_head(connection, chain)
        for before in (kept, published):
            if before is None or before.lines == 0:
                continue
            cut = signing.read_head(connection, CUT) if chain == AUDIT else None
            removed = cut is not None and before.lines < cut.lines
            if not removed and kind.hash_at(connection, before.lines) != before.hash:
                return before, f"{lines} lines, and line {before.lines} is not the one that was signed"
        if kept is not None and (kept.lines, kept.hash) == (lines, last):
            return kept, ""
        head = ChainHead(chain=chain, lines=lines, hash=last, at=self._clock())
        signed = signing.sign(connection, self._vault, head)
        signing.write_head(connection, signed)
        return signed, ""

    async def cut(self) -> ChainHead | None:
        """Return the signed cut before which lines of the audit log were removed; None: it begins at its first."""
        return await self._database.read(lambda c: signing.read_head(c, CUT))

    async def prune_audit(
        self, before: float, *, most: int | None = None, guard: Callable[[Connection], object] = audit.nothing
    ) -> int:
        """Remove the oldest lines of the audit log and sign where it was cut, in one transaction; return how many.

        Those from before a moment go, and those beyond the *most* that are kept. *guard* raises to stop it.
        """

        def prune(connection: Connection) -> int:
            guard(connection)
            _audit_tip(connection)
            found = audit.cut_before(connection, before, most)
            if found is None:
                return 0
            removed = signing.read_head(connection, CUT)
            head = ChainHead(chain=CUT, lines=found[0], hash=found[1], at=self._clock())
            signing.write_head(connection, signing.sign(connection, self._vault, head))
            failpoint("prune-audit-before-removal")
            audit.remove_through(connection, found[0])
            return found[0] - (removed.lines if removed else 0)

        return await self._database.write(prune)

    def _published(self, chain: str) -> ChainHead | None:
        try:
            return msgspec.json.decode(head_path(self._home, chain).read_bytes(), type=ChainHead)
        except (OSError, msgspec.MsgspecError):
            return None

    async def _post(self, heads: list[ChainHead]) -> None:
        """Send heads that are new to whoever keeps them, a few times a minute; what is not taken is sent again."""
        fresh = [head for head in heads if self._posted.get(head.chain) != head.hash]
        if not self._webhook or not fresh or anyio.current_time() < self._post_at:
            return
        self._post_at = anyio.current_time() + WEBHOOK_EVERY_S
        try:
            async with httpx.AsyncClient(timeout=WEBHOOK_WITHIN_S) as client:
                answer = await client.post(self._webhook, json={"heads": msgspec.to_builtins(fresh)})
                answer.raise_for_status()
        except httpx.HTTPError as error:
            log.warning("webhook did not take the heads", extra={"problem": str(error)})
            return
        self._posted |= {head.chain: head.hash for head in fresh}


def head_path(home: Path, chain: str) -> Path:
    """Return the file with the newest signed head of a chain."""
    return home / f"{chain}.head.json"
