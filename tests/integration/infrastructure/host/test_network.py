"""Each task has a network of its own: who it reaches, how it is counted, and that nothing of it is left."""

import io
import os
import zipfile
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from integration.infrastructure.host.orders import ended, launched, log_of, running
from support.agent_roots import agent_root, end_agent, kill_daemon
from support.host_networks import HOST, OTHER, OUTSIDE, PORT, WEB_PORT, HostNetwork, host_network
from yunhe.infrastructure.contract.model import ExecRequest
from yunhe.infrastructure.host.engine import HostEngine
from yunhe.infrastructure.host.target import DeclaredNode, LocalHost
from yunhe.kernel.confinement import Confinement
from yunhe.kernel.errors import UnsupportedError

pytestmark = [pytest.mark.anyio, pytest.mark.skipif(os.geteuid() != 0, reason="needs root: namespaces")]

SAYS = 'says() {{ timeout 2 bash -c "exec 3<>/dev/tcp/$1/$2 && head -c5 <&3" 2>/dev/null || echo closed; }}; '.replace(
    "{{", "{"
).replace("}}", "}")


@pytest.fixture(scope="module")
def network() -> Generator[HostNetwork]:
    with host_network() as network:
        yield network


@asynccontextmanager
async def agent(network: HostNetwork, root: Path, **declared: object) -> AsyncGenerator[HostEngine]:
    target = LocalHost(root=str(root), python=network.python, declared=DeclaredNode(**declared))  # pyright: ignore[reportArgumentType]
    async with HostEngine(target) as engine:
        yield engine


async def said(engine: HostEngine, script: str, **fields: object) -> list[str]:
    order = await launched(engine, SAYS + script, **fields)
    seen = await ended(engine, order.allocation_id)
    output = (await log_of(engine, order.allocation_id)).decode()
    assert seen.exit_code == 0, output
    return output.replace("hello", "hello\n").split()


async def test_a_task_gets_out_but_not_to_its_host_and_its_bytes_are_counted(network: HostNetwork) -> None:
    with agent_root() as root:
        async with agent(network, root) as engine:
            description = await engine.describe()
            assert description.network_metered
            assert "network" in description.permits
            script = f"says {OUTSIDE} {PORT}; says 127.0.0.1 {PORT}; says {HOST} {PORT}; dd if=/dev/zero bs=1000 count=500 status=none >/dev/udp/{OUTSIDE}/{PORT}"
            order = await launched(engine, SAYS + f"{script}; sleep 1.5")
            seen = await ended(engine, order.allocation_id)
            output = (await log_of(engine, order.allocation_id)).decode()
            assert output.replace("hello", "hello\n").split() == ["hello", "closed", "closed"]
            assert seen.meters.sent_bytes is not None
            assert seen.meters.received_bytes is not None
            assert 500_000 < seen.meters.sent_bytes < 700_000
            assert 100 < seen.meters.received_bytes < 60_000


async def test_a_task_without_a_network_or_with_a_list_reaches_no_more_than_that(
    network: HostNetwork,
) -> None:
    everywhere = f"says {OUTSIDE} {PORT}; says {OTHER} {PORT}; says {OUTSIDE} {WEB_PORT}"
    with agent_root() as root:
        async with agent(network, root) as engine:
            none = Confinement(network="none")
            assert await said(engine, everywhere, confinement=none) == ["closed"] * 3
            listed = Confinement(egress=(f"{OUTSIDE}:{PORT}", "192.0.2.0/24"))
            assert await said(engine, everywhere, confinement=listed) == ["hello", "closed", "closed"]
            with pytest.raises(UnsupportedError, match="host-network"):
                await launched(engine, "true", confinement=Confinement(network="host"))
        end_agent(root)
        async with agent(network, root, allowed=("host-network",), egress=(OTHER,)) as engine:
            loopback = f"says 127.0.0.1 {PORT}"
            assert await said(engine, loopback, confinement=Confinement(network="host")) == ["hello"]
            assert await said(engine, everywhere) == ["closed", "hello", "closed"]
            assert await said(engine, everywhere, confinement=listed) == ["closed"] * 3


async def test_names_are_resolved_and_a_package_is_installed_from_an_index(network: HostNetwork) -> None:
    folder = network.files / "simple" / "yunhe-probe"
    folder.mkdir(parents=True)
    name = "yunhe_probe-1-py3-none-any.whl"
    about = "yunhe_probe-1.dist-info"
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as wheel:
        wheel.writestr("yunhe_probe.py", "print('installed')\n")
        wheel.writestr(f"{about}/METADATA", "Metadata-Version: 2.1\nName: yunhe-probe\nVersion: 1\n")
        wheel.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{about}/RECORD", "")
    (folder / name).write_bytes(data.getvalue())
    (folder / "index.html").write_text(f'<a href="{name}">{name}</a>')
    index = f"--index-url http://index.example:{WEB_PORT}/simple --trusted-host index.example"
    script = (
        f"/usr/bin/python3 -m pip install -q --no-input --retries 0 {index} --target lib yunhe-probe 2>&1"
    )
    with agent_root() as root:
        async with agent(network, root) as engine:
            if await said(
                engine, "/usr/bin/python3 -m pip --version >/dev/null 2>&1 && echo pip || echo none"
            ) != ["pip"]:
                pytest.skip("the system's Python has no pip")
            output = await said(engine, f"{script}; PYTHONPATH=lib /usr/bin/python3 -m yunhe_probe")
            assert output[-1] == "installed", output


async def test_a_command_beside_a_task_has_its_network(network: HostNetwork) -> None:
    with agent_root() as root:
        async with agent(network, root) as engine:
            order = await launched(engine, "sleep 60")
            await running(engine, order.allocation_id)
            script = f"{SAYS}says {OUTSIDE} {PORT}; says 127.0.0.1 {PORT}"
            async with engine.exec(order.allocation_id, ExecRequest(argv=("bash", "-c", script))) as session:
                output = b""
                while piece := await session.receive():
                    output += piece
            assert output == b"helloclosed\n"


async def test_nothing_of_a_network_outlives_its_task_or_its_agent(network: HostNetwork) -> None:
    with agent_root() as root, agent_root() as second:
        async with agent(network, root) as engine, agent(network, second) as other:
            first = await launched(engine, "sleep 60")
            await running(engine, first.allocation_id)
            neighbour = await launched(other, "sleep 60")
            await running(other, neighbour.allocation_id)
            links = network.words("ip", "-brief", "link").count("yh") - 1  # less the host's own
            assert links == 2
            kill_daemon(root)
            assert (await ended_or_running(engine, first.allocation_id)) == "running"
            assert network.words("nft", "list", "tables").count("yunhe_") == 2
            await engine.stop(first.allocation_id, 1, grace_s=0)
            await ended(engine, first.allocation_id)
            await other.stop(neighbour.allocation_id, 1, grace_s=0)
            await ended(other, neighbour.allocation_id)
            with anyio.fail_after(5):
                while network.words("ip", "-brief", "link").count("yh") > 1:
                    await anyio.sleep(0.05)
        end_agent(root)
        end_agent(second)
        assert "yunhe_" not in network.words("nft", "list", "tables")


async def test_what_a_lost_agent_left_is_removed_where_it_lies_and_nowhere_else(
    network: HostNetwork,
) -> None:
    with agent_root() as here:
        with agent_root() as lost:
            async with agent(network, lost) as engine:
                await engine.describe()
            kill_daemon(lost)
        assert network.words("nft", "list", "tables").count("yunhe_") == 1
        with agent_root() as elsewhere:
            async with HostEngine(LocalHost(root=str(elsewhere))) as engine:
                await engine.describe()  # in the machine's own network, where that table is not
        async with agent(network, here) as engine:
            await engine.describe()
            assert network.words("nft", "list", "tables").count("yunhe_") == 1, "only its own is left"


async def ended_or_running(engine: HostEngine, allocation_id: str) -> str:
    with anyio.fail_after(10):
        while True:
            try:
                seen = await engine.observe()
            except Exception:  # noqa: BLE001 - the daemon was killed; the next call starts another
                await anyio.sleep(0.1)
                continue
            return next(one.phase for one in seen.allocations if one.allocation_id == allocation_id)
