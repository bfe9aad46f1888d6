"""An agent becomes another one while its tasks run on."""

import hashlib
import io
import zipfile
from pathlib import Path

import anyio
import pytest

from integration.infrastructure.host.orders import ended, launched, log_of, running
from yunhe.agent import AGENT_VERSION
from yunhe.infrastructure.contract.model import Ending, Observation
from yunhe.infrastructure.host import engine as engine_module
from yunhe.infrastructure.host.bridge import open_bridge
from yunhe.infrastructure.host.engine import HostEngine
from yunhe.infrastructure.host.package import AgentFile, agent_file
from yunhe.infrastructure.host.target import LocalHost
from yunhe.kernel.errors import ConflictError, InvalidInputError, PoolUnreachableError

pytestmark = pytest.mark.anyio


def agent_of_version(version: int) -> AgentFile:
    """Return an agent like this one that gives another version."""
    buffer = io.BytesIO()
    with (
        zipfile.ZipFile(io.BytesIO(agent_file().data)) as this,
        zipfile.ZipFile(buffer, "w") as other,
    ):
        for name in this.namelist():
            text = this.read(name).replace(
                b"AGENT_VERSION = %d\n" % AGENT_VERSION, b"AGENT_VERSION = %d\n" % version
            )
            other.writestr(name, text)
    return AgentFile(buffer.getvalue(), hashlib.sha256(buffer.getvalue()).hexdigest())


async def test_an_agent_is_replaced_and_its_tasks_do_not_notice(
    engine: HostEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    order = await launched(engine, "echo $$; sleep 2; echo done; exit 5")
    await running(engine, order.allocation_id)
    before = await engine.hello()
    outcomes: list[Observation | PoolUnreachableError] = []

    async def wait_long() -> None:
        version = (await engine.observe()).version
        try:
            outcomes.append(await engine.observe(beyond=version, wait_s=20))
        except PoolUnreachableError as error:
            outcomes.append(error)

    newer = agent_of_version(AGENT_VERSION + 1)
    monkeypatch.setattr(engine_module, "agent_file", lambda: newer)
    async with anyio.create_task_group() as group:
        group.start_soon(wait_long)
        await anyio.sleep(0.3)
        await engine.upgrade()
    after = await engine.hello()
    assert (after["pid"], after["digest"]) == (before["pid"], newer.digest)
    assert before["digest"] == agent_file().digest
    assert isinstance(outcomes[0], PoolUnreachableError), "who waited was not told to ask again"
    assert outcomes[0].retryable
    seen = await ended(engine, order.allocation_id)
    assert (seen.ending, seen.exit_code, seen.meters.gap_ms) == (Ending.DONE, 5, 0)
    assert len((await log_of(engine, order.allocation_id)).splitlines()) == 2


async def test_an_agent_that_does_not_run_replaces_nothing(
    engine: HostEngine, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = await engine.hello()
    data = b"not a program"
    broken = AgentFile(data, hashlib.sha256(data).hexdigest())
    monkeypatch.setattr(engine_module, "agent_file", lambda: broken)
    with pytest.raises(ConflictError, match="does not run"):
        await engine.upgrade()
    assert (await engine.hello()) == before
    assert not (root / broken.name).exists()


async def test_an_agent_with_no_protocol_in_common_says_so(root: Path) -> None:
    link = (await open_bridge(LocalHost(root=str(root)))).link
    with pytest.raises(InvalidInputError, match="protocols"):
        await link.request("hello", {"protocol": 99, "oldest_protocol": 98}, timeout_s=10)
    await link.close()


async def test_an_older_agent_is_upgraded_by_the_first_call(
    root: Path, engine: HostEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    newer = agent_of_version(AGENT_VERSION + 1)
    monkeypatch.setattr(engine_module, "agent_file", lambda: newer)
    monkeypatch.setattr(engine_module, "AGENT_VERSION", AGENT_VERSION + 1)
    await engine.close()
    await engine.describe()
    assert (await engine.hello())["agent_version"] == AGENT_VERSION + 1
    assert (root / newer.name).exists()
