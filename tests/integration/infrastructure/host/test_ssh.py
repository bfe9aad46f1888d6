"""Hosts over a real sshd: first contact, running, and a connection that is cut without a word."""

from collections.abc import Generator

import anyio
import pytest

from integration.infrastructure.host.orders import ended, launched, log_of, look
from integration.infrastructure.host.sshd import SshServer, ssh_server
from yunhe.infrastructure.contract.model import Ending, Isolation
from yunhe.infrastructure.host.engine import HostEngine
from yunhe.infrastructure.host.onboard import onboard
from yunhe.infrastructure.host.package import agent_file
from yunhe.kernel.errors import ForbiddenError, PoolUnreachableError

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def server() -> Generator[SshServer, None, None]:
    with ssh_server() as server:
        yield server


async def test_first_contact_passes_every_check_and_the_second_need_not_send_the_agent(
    server: SshServer,
) -> None:
    first = [check async for check in onboard(server.target("root"))]
    assert all(check.ok for check in first)
    assert [check.step for check in first][:4] == ["reachable", "key accepted", "python found", "agent sent"]
    assert first[3].detail == f"{len(agent_file().data) / 1000:.0f} kB"
    second = [check async for check in onboard(server.target("root"))]
    assert second[3].detail == "already there"


@pytest.mark.parametrize(
    ("changes", "failing"),
    [
        ({"port": "2223"}, "reachable"),
        ({"identity_file": "/dev/null"}, "key accepted"),
        ({"destination": "stranger@host"}, "reachable"),
        ({"python": "python9"}, "python found"),
    ],
    ids=["nobody-listens", "wrong-key", "no-such-host", "no-python"],
)
async def test_each_failure_of_first_contact_has_its_own_name_and_remedy(
    server: SshServer, changes: dict[str, str], failing: str
) -> None:
    target = server.target("root", **changes)
    checks = [check async for check in onboard(target)]
    assert [check.step for check in checks if not check.ok] == [failing]
    assert checks[-1].step == failing
    assert checks[-1].remedy


@pytest.mark.parametrize("user", ["root", "member"])
async def test_a_job_runs_over_ssh(server: SshServer, user: str) -> None:
    async with HostEngine(server.target(user)) as engine:
        order = await launched(engine, "echo over the wire; id -u; exit 4")
        seen = await ended(engine, order.allocation_id)
        assert (seen.ending, seen.exit_code) == (Ending.DONE, 4)
        assert (await log_of(engine, order.allocation_id)).startswith(b"over the wire\n")
        await engine.release(order.allocation_id, 1)


async def test_an_agent_without_root_serves_one_project_and_says_how_it_keeps_limits(
    server: SshServer,
) -> None:
    async with HostEngine(server.target("member")) as engine:
        description = await engine.describe()
        assert description.isolation is Isolation.ONE_PROJECT
        assert description.limits == "rlimits and nice"
        order = await launched(engine, "true", project="p1")
        with pytest.raises(ForbiddenError, match="p1 only"):
            await launched(engine, "true", project="p2")
        await ended(engine, order.allocation_id)
        await engine.release(order.allocation_id, 1)


async def test_an_agent_without_root_ends_and_counts_everything_a_task_started(server: SshServer) -> None:
    script = "(setsid sh -c 'while :; do :; done' &) ; sleep 2; exit 0"
    async with HostEngine(server.target("member")) as engine:
        order = await launched(engine, script)
        seen = await ended(engine, order.allocation_id)
        assert seen.meters.cpu_us > 300_000, "the orphan ran for two seconds and must be counted"
        await engine.release(order.allocation_id, 1)


async def cut_for(server: SshServer, cut_s: float) -> None:
    """Cut the connection while a task writes a line every half second; nothing may be lost or told twice."""
    lines = round(2 * (cut_s + 4))
    script = f"for i in $(seq {lines}); do echo line $i; sleep 0.5; done; exit 7"
    async with HostEngine(server.target("root"), request_within_s=4) as engine:
        order = await launched(engine, script)
        short = await launched(engine, "sleep 2; echo in the gap; exit 3")
        await anyio.sleep(1)
        server.cut()
        with pytest.raises(PoolUnreachableError):
            await engine.observe()
        await anyio.sleep(cut_s - 4)
        server.mend()
        seen = await ended(engine, order.allocation_id, within_s=cut_s + 30)
        assert (seen.ending, seen.exit_code) == (Ending.DONE, 7)
        expected = "".join(f"line {number + 1}\n" for number in range(lines))
        assert await log_of(engine, order.allocation_id) == expected.encode()
        gone = await look(engine, short.allocation_id)
        assert (gone.ending, gone.exit_code) == (Ending.DONE, 3)
        minutes = [minute async for minute in engine.usage()]
        assert len({minute.seq for minute in minutes}) == len(minutes)
        mine = [minute for minute in minutes if minute.allocation_id == order.allocation_id]
        assert sum(minute.samples for minute in mine) >= cut_s, "the agent sampled on while it was cut off"
        assert seen.meters.gap_ms == 0
        again = [minute async for minute in engine.usage(beyond=minutes[-1].seq)]
        assert again == []
        for one in (order, short):
            await engine.release(one.allocation_id, 1)


async def test_what_happens_while_the_connection_is_cut_arrives_afterwards_once(server: SshServer) -> None:
    await cut_for(server, 8.0)


@pytest.mark.engine
async def test_what_happens_in_a_cut_of_thirty_seconds_arrives_afterwards_once(server: SshServer) -> None:
    await cut_for(server, 30.0)
