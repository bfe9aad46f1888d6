"""A task in a sandbox: limits changed while it runs, its network, commands beside it, and that nothing of it is left."""

import os
from collections.abc import AsyncGenerator
from pathlib import Path

import anyio
import pytest

from integration.infrastructure.host.orders import ended, launched, log_of, look, running, until
from support.agent_processes import members_of
from support.agent_roots import agent_root, kill_daemon
from support.host_networks import HOST, OTHER, OUTSIDE, PORT, host_network
from support.sandboxes import SANDBOXED, sandbox_environment
from yunhe.agent.runs.processes import read_stat
from yunhe.infrastructure.contract.model import Ending, ExecRequest, LaunchOrder
from yunhe.infrastructure.host.engine import HostEngine
from yunhe.infrastructure.host.target import LocalHost
from yunhe.kernel.confinement import Confinement
from yunhe.kernel.errors import UnsupportedError
from yunhe.kernel.resources import Resources

pytestmark = [pytest.mark.anyio, pytest.mark.skipif(os.geteuid() != 0, reason="needs root: namespaces")]
HOLD_MIB = (
    'exec /usr/bin/python3 -c "import time; held = bytearray({} << 20); print(len(held)); time.sleep({})"'
)


@pytest.fixture
async def sandboxing(root: Path) -> AsyncGenerator[HostEngine]:
    async with HostEngine(LocalHost(root=str(root), environment=sandbox_environment())) as engine:
        yield engine


async def cores_of(engine: HostEngine, order: LaunchOrder, least_s: float) -> float:
    """Return how many cores an allocation uses, over *least_s* seconds or more."""
    first = (await look(engine, order.allocation_id)).meters
    with anyio.fail_after(60):
        while True:
            now = (await look(engine, order.allocation_id)).meters
            if now.wall_ms - first.wall_ms > least_s * 1000:
                return (now.cpu_us - first.cpu_us) / (now.wall_ms - first.wall_ms) / 1000
            await anyio.sleep(0.2)


async def command(engine: HostEngine, order: LaunchOrder, *argv: str, tty: bool = False) -> tuple[int, bytes]:
    """Run a command beside a task; return its exit code and output."""
    output = b""
    async with engine.exec(order.allocation_id, ExecRequest(argv=argv, tty=tty)) as session:
        while piece := await session.receive():
            output += piece
        return await session.wait(), output


async def test_the_user_of_a_sandboxed_task_exists_for_the_system(sandboxing: HostEngine) -> None:
    order = await launched(
        sandboxing, "id -un; whoami; ssh -TG nowhere.example | grep '^user '", confinement=SANDBOXED
    )
    await ended(sandboxing, order.allocation_id)
    assert await log_of(sandboxing, order.allocation_id) == b"task\ntask\nuser task\n"


async def test_cpu_and_memory_of_a_sandbox_are_resized_while_its_task_runs(sandboxing: HostEngine) -> None:
    engine = sandboxing
    waits = "while [ ! -e go ]; do :; done\n"
    order = await launched(engine, waits + HOLD_MIB.format(300, 0), cpu_millis=200, confinement=SANDBOXED)
    await running(engine, order.allocation_id)
    assert await cores_of(engine, order, 2) < 0.3
    await engine.resize(order.allocation_id, 1, Resources(cpu_millis=1000, memory_mib=512))
    with anyio.fail_after(60):
        while await cores_of(engine, order, 1.5) < 0.4:
            continue
    await command(engine, order, "touch", "go")
    seen = await ended(engine, order.allocation_id)
    assert (seen.ending, seen.exit_code) == (Ending.DONE, 0)
    assert seen.meters.memory_peak_mib > 300
    too_much = await launched(engine, HOLD_MIB.format(300, 0), confinement=SANDBOXED)
    assert (await ended(engine, too_much.allocation_id)).ending is Ending.OUT_OF_MEMORY


async def test_what_a_command_leaves_in_a_sandbox_ends_with_it_and_the_task_goes_on(
    sandboxing: HostEngine,
) -> None:
    order = await launched(
        sandboxing, "echo up; while [ ! -e go ]; do sleep 0.1; done; ps ax", confinement=SANDBOXED
    )
    await until(sandboxing, order.allocation_id, lambda seen: seen.log_bytes > 0)
    leaves = "test -t 0 && echo terminal; sleep 4242 >/dev/null 2>&1 & exit 7"
    assert await command(sandboxing, order, "sh", "-c", leaves) == (7, b"")
    code, output = await command(sandboxing, order, "sh", "-c", leaves, tty=True)
    assert (code, output.strip()) == (7, b"terminal")
    wanted = ExecRequest(argv=("sh", "-c", "echo; sleep 4343"))
    async with sandboxing.exec(order.allocation_id, wanted) as session:
        assert await session.receive()  # and whoever listens leaves while it runs
    assert (await command(sandboxing, order, "touch", "go"))[0] == 0
    seen = await ended(sandboxing, order.allocation_id)
    left = await log_of(sandboxing, order.allocation_id)
    assert seen.exit_code == 0
    assert b"up" in left
    assert b"sleep 4242" not in left
    assert b"sleep 4343" not in left, left


async def test_a_sandbox_outlives_its_agent_and_nothing_of_it_outlives_its_wrapper(
    root: Path, sandboxing: HostEngine
) -> None:
    quick = await launched(sandboxing, "sleep 3; echo done", confinement=SANDBOXED)
    lost = await launched(sandboxing, "echo up; sleep 600", confinement=SANDBOXED)
    await running(sandboxing, quick.allocation_id)
    await until(sandboxing, lost.allocation_id, lambda seen: seen.log_bytes > 0)
    members = [*members_of(quick.allocation_id), *members_of(lost.allocation_id)]
    kill_daemon(root)
    seen = await ended(sandboxing, quick.allocation_id)
    assert (seen.ending, seen.exit_code) == (Ending.DONE, 0)
    assert await log_of(sandboxing, quick.allocation_id) == b"done\n"
    start = (root / "runs" / lost.allocation_id / "start.json").read_text()
    os.kill(int(start.split('"pid":')[1].split(",")[0].strip(" }")), 9)
    await ended(sandboxing, lost.allocation_id)
    assert len(members) > 4
    with anyio.fail_after(20):
        while any(read_stat(pid) for pid in members):
            await anyio.sleep(0.1)


async def test_a_task_in_a_sandbox_has_the_network_it_was_given_and_its_bytes_are_counted() -> None:
    says = (
        'says() { timeout 5 bash -c "exec 3<>/dev/tcp/$1/$2 && head -c5 <&3" 2>/dev/null || echo closed; }; '
    )
    everywhere = (
        f"{says}says {OUTSIDE} {PORT}; says {OTHER} {PORT}; says 127.0.0.1 {PORT}; says {HOST} {PORT}; "
    )
    flood = f"dd if=/dev/zero bs=1000 count=500 status=none >/dev/udp/{OUTSIDE}/{PORT}"
    cases = {
        "": ["hello", "hello", "closed", "closed"],
        "none": ["closed"] * 4,
        f"{OUTSIDE}/32": ["hello", "closed", "closed", "closed"],
    }
    with host_network() as network, agent_root() as root:
        target = LocalHost(root=str(root), python=network.python, environment=sandbox_environment())
        async with HostEngine(target) as engine:
            for wanted, expected in cases.items():
                egress = (wanted,) if "/" in wanted else ()
                apart = Confinement(runtime="sandboxed", network="" if egress else wanted, egress=egress)
                order = await launched(engine, everywhere + (flood if not wanted else ""), confinement=apart)
                seen = await ended(engine, order.allocation_id)
                output = (await log_of(engine, order.allocation_id)).decode()
                assert output.replace("hello", "hello\n").split() == expected, wanted
                if not wanted:
                    assert seen.meters.sent_bytes is not None
                    assert 500_000 < seen.meters.sent_bytes < 700_000


async def test_a_host_without_runsc_says_so_and_refuses_with_what_would_help(root: Path) -> None:
    async with HostEngine(LocalHost(root=str(root), environment={"PATH": "/usr/bin:/bin"})) as engine:
        description = await engine.describe()
        if "sandboxed" in description.permits:
            pytest.skip("the system itself has runsc")
        reasons = [guard.reason for guard in description.guards if "gVisor" in guard.name]
        assert reasons == [
            "This host has no runsc: install gVisor (on Debian the package runsc), then restart the agent."
        ]
        with pytest.raises(UnsupportedError, match="install gVisor"):
            await launched(engine, "true", confinement=SANDBOXED)
