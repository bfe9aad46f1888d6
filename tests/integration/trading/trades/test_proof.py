"""Ledger and audit log: whoever has an export and a signed head notices what was changed or cut off, without a server."""

import json
from collections.abc import Generator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import anyio
import msgspec
import pytest
import sqlalchemy as sa
from cryptography.fernet import Fernet

from integration.control.plugins.processes import until
from integration.entrypoints.api.serving import Served, add_fake_pool, serving
from integration.entrypoints.cli.conftest import Shell
from support.apart import database_url
from yunhe.entrypoints.client import Client
from yunhe.kernel.chains import ChainHead
from yunhe.kernel.clock import system_clock
from yunhe.runtime.notary import CUT, Notary, head_path
from yunhe.runtime.settings import Settings
from yunhe.storage import audit, signing
from yunhe.storage.database import Connection, Database
from yunhe.storage.migrate import migrate
from yunhe.storage.vault import Vault
from yunhe.trading.accounts.chain import verify
from yunhe.trading.accounts.store import read_chain
from yunhe.trading.applications.model import Submission
from yunhe.trading.demand.model import ResourceSpec, Task

BY = audit.Actor("ann", "key_1")


@pytest.fixture
def posted() -> Generator[tuple[str, list[dict[str, object]]]]:
    """A party that keeps every head it is sent."""
    heads: list[dict[str, object]] = []

    class Keeper(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            heads.extend(json.loads(self.rfile.read(int(self.headers["content-length"])))["heads"])
            self.send_response(204)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the library's name
            return

    server = HTTPServer(("127.0.0.1", 0), Keeper)
    thread = Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/heads", heads
    server.shutdown()
    thread.join()
    server.server_close()


def ran(client: Client) -> None:
    task = Task(name="one", run="sleep 0.2", resources=ResourceSpec(cpus=1, memory="1GB"))
    job = client.submit(Submission(task=task))
    while True:
        if client.cost(by="job", job=job.id).lines:
            return


def exported(shell: Shell, served: Served, what: str, folder: Path) -> tuple[Path, Path]:
    shell.extra = {"YUNHE_URL": served.url, "YUNHE_KEY": served.key}
    lines, head = folder / f"{what}.ndjson", folder / f"{what}.head"
    for words in ((what, "export", lines), (what, "head", head)):
        done = shell.inside(*words)
        assert done.returncode == 0, done.stderr
    shell.extra = {"YUNHE_URL": "http://127.0.0.1:1"}  # there is no server from here on
    return lines, head


@pytest.mark.feature(
    "R31",
    file="src/yunhe/kernel/chains.py",
    old='said = {"chain": head.chain, "lines": head.lines, "hash": head.hash, "at": head.at}',
    new='said = {"chain": head.chain}',
)
@pytest.mark.feature(
    "R31",
    file="src/yunhe/trading/trades/chain.py",
    old="if not problem and head is not None and head.lines > count:",
    new="if not problem and head is not None and head.lines < 0:",
)
def test_any_party_verifies_ledger_and_audit_log_without_a_server(
    tmp_path: Path, posted: tuple[str, list[dict[str, object]]]
) -> None:
    url, heads = posted
    shell = Shell(home=tmp_path, cwd=tmp_path)
    with serving(tmp_path / "home", head_webhook=url) as served, served.client() as client:
        add_fake_pool(client, cpus="4")
        for _ in range(2):
            ran(client)
        files = {what: exported(shell, served, what, tmp_path) for what in ("ledger", "audit")}
        until(lambda: {head["chain"] for head in heads} >= {"ledger", "audit"})
        assert head_path(served.settings.home, "ledger").exists()
    for what, (lines, head) in files.items():
        key = msgspec.json.decode(head.read_bytes(), type=ChainHead).key
        held = shell.inside(what, "verify", lines, "--head", head, "--key", key)
        assert held.returncode == 0, held.stderr
        whole = lines.read_bytes().splitlines(keepends=True)
        assert len(whole) >= 2
        attacks = {
            "cut short": b"".join(whole[:-1]),
            "a line gone": b"".join([*whole[:-2], whole[-1]]),
            "swapped": b"".join([*whole[:-2], whole[-1], whole[-2]]),
            "changed": b"".join([whole[0].replace(b'"at":1', b'"at":2', 1), *whole[1:]]),
        }
        for attack, content in attacks.items():
            (tmp_path / "attacked").write_bytes(content)
            told = shell.inside(what, "verify", tmp_path / "attacked", "--head", head)
            assert told.returncode == 1, f"{what}, {attack}: not noticed"
        forged = msgspec.json.decode(head.read_bytes(), type=ChainHead)
        shorter = msgspec.structs.replace(forged, lines=forged.lines - 1, hash=json.loads(whole[-2])["hash"])
        (tmp_path / "forged").write_bytes(msgspec.json.encode(shorter))
        assert shell.inside(what, "verify", lines, "--head", tmp_path / "forged").returncode == 1
        assert shell.inside(what, "verify", lines, "--head", head, "--key", "other").returncode == 1


def as_writer(url: str, attack: str) -> None:
    """Change the database as somebody who may write to it, without its triggers: who attacks drops them first."""
    engine = sa.create_engine(url.replace("postgresql://", "postgresql+psycopg://", 1))
    with engine.begin() as connection:
        if engine.dialect.name == "sqlite":
            triggers = connection.exec_driver_sql("SELECT name FROM sqlite_master WHERE type = 'trigger'")
            for trigger in triggers.scalars().all():
                connection.exec_driver_sql(f"DROP TRIGGER {trigger}")
        else:
            connection.exec_driver_sql("SET LOCAL session_replication_role = replica")
        for statement in attack.split(";"):
            connection.exec_driver_sql(statement)
    engine.dispose()


@pytest.mark.parametrize(
    "attack",
    [
        "DELETE FROM account_audit WHERE seq = (SELECT max(seq) FROM account_audit)",
        """UPDATE account_audit SET "user" = 'somebody' WHERE seq = 1""",
        "DELETE FROM trade_ledger WHERE seq = (SELECT max(seq) FROM trade_ledger)",
        "DELETE FROM trade_ledger; DELETE FROM proof_head; DELETE FROM proof_key",
    ],
)
def test_a_writer_of_the_database_does_not_truncate_or_rewrite_unnoticed(
    tmp_path: Path, attack: str, caplog: pytest.LogCaptureFixture
) -> None:
    chain = "audit" if "account_audit" in attack else "ledger"
    shell = Shell(home=tmp_path, cwd=tmp_path)
    with serving(tmp_path / "home") as served, served.client() as client:
        add_fake_pool(client, cpus="4")
        ran(client)
        _, head = exported(shell, served, chain, tmp_path)
    as_writer(database_url(tmp_path / "home"), attack)
    caplog.clear()
    with serving(tmp_path / "home") as served:
        lines = tmp_path / "now"
        shell.extra = {"YUNHE_URL": served.url, "YUNHE_KEY": served.key}
        assert shell.inside(chain, "export", lines).returncode == 0
    told = shell.inside(chain, "verify", lines, "--head", head)
    assert told.returncode == 1, "a party that kept a head does not notice"
    truncated = "UPDATE" not in attack
    if truncated:
        assert any("chain was changed" in record.message for record in caplog.records), (
            "the server does not notice"
        )


@pytest.mark.anyio
async def test_servers_that_write_at_once_make_one_chain_and_old_lines_join_it(
    database_url: str, tmp_path: Path
) -> None:
    databases = [Database(database_url) for _ in range(3)]
    await migrate(databases[0])
    vault = Vault(Fernet.generate_key())
    notaries = [
        Notary(one, vault, system_clock, Settings(home=tmp_path / f"{i}")) for i, one in enumerate(databases)
    ]
    for i in range(3):
        (tmp_path / f"{i}").mkdir()
    await databases[0].write(lambda c: audit.append(c, BY, 1.0, "old line"))  # as before there was a chain

    async def work(which: int) -> None:
        for turn in range(20):
            await databases[which].write(lambda c, t=turn: audit.append(c, BY, 2.0 + t, f"{which}/{t}"))
            await notaries[which].head("audit")

    async with anyio.create_task_group() as tasks:
        for which in range(3):
            tasks.start_soon(work, which)
    head = await notaries[0].head("audit")
    lines = await databases[0].read(lambda c: read_chain(c, 0, 1000))
    assert lines[0].action == "old line"
    assert len(lines) == head.lines == 61
    assert verify(lines, head=head).problem == ""
    assert signing.check_head(head) == ""

    removed = await notaries[1].prune_audit(before=5.0)
    assert removed > 0
    await databases[2].write(lambda c: audit.append(c, BY, 99.0, "after"))
    after = await notaries[2].head("audit")
    kept = await databases[0].read(lambda c: read_chain(c, 0, 1000))
    cut = await databases[0].read(_cut)
    assert cut is not None
    assert after.lines == 62
    assert cut.lines == removed == 62 - len(kept)
    assert signing.check_head(cut, head.key) == ""
    assert verify(kept, cut=cut, head=after).problem == ""
    assert verify(kept[1:], cut=cut, head=after).problem
    for database in databases:
        database.close()


def _cut(connection: Connection) -> ChainHead | None:
    return signing.read_head(connection, CUT)
