"""An order that an agent did not claim in its time is never claimed."""

import os
import signal
from pathlib import Path

import pytest

from integration.infrastructure.host.orders import ended, launched, order_for
from support.agent_roots import daemon_pid
from yunhe.infrastructure.host import engine as host
from yunhe.infrastructure.host.engine import HostEngine
from yunhe.kernel.errors import LaunchUnansweredError, PoolUnreachableError

pytestmark = pytest.mark.anyio


async def test_an_order_that_comes_late_is_refused_and_may_be_sent_again(
    engine: HostEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    order = await order_for(engine, "true")
    with monkeypatch.context() as patch:
        patch.setattr(host, "LAUNCH_WITHIN_S", -1.0)
        with pytest.raises(PoolUnreachableError, match="expired"):
            await engine.launch(order)
    assert not (await engine.observe()).allocations
    await engine.launch(order)
    assert (await ended(engine, order.allocation_id)).exit_code == 0


async def test_a_frozen_agent_does_not_claim_what_it_finds_when_it_goes_on(
    engine: HostEngine, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await ended(engine, (await launched(engine, "true")).allocation_id)
    order = await order_for(engine, "echo ran")
    monkeypatch.setattr(host, "LAUNCH_WITHIN_S", 1.0)
    pid = daemon_pid(root)
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    try:
        with pytest.raises(LaunchUnansweredError):
            await engine.launch(order)
    finally:
        os.kill(pid, signal.SIGCONT)
    known = {seen.allocation_id for seen in (await engine.observe()).allocations}
    assert order.allocation_id not in known
