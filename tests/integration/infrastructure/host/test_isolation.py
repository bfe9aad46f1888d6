"""Projects share a host and see nothing of each other; secrets are in memory and nowhere else."""

import os
from pathlib import Path

import anyio
import pytest

from integration.infrastructure.host.orders import (
    ended,
    files_with,
    launched,
    log_of,
    look,
    processes_of,
    running,
    until,
)
from support.agent_roots import kill_daemon
from yunhe.infrastructure.contract.model import ExecRequest, Isolation, Phase
from yunhe.infrastructure.host.engine import HostEngine
from yunhe.kernel.errors import PoolUnreachableError

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root: users per project"),
]

SECRET = "hush-4c1f77aa90"


async def test_one_project_cannot_read_anything_of_another(engine: HostEngine, root: Path) -> None:
    assert (await engine.describe()).isolation is Isolation.PER_PROJECT
    victim = await launched(
        engine, "echo mine > note.txt; echo said; sleep 60", project="victim", secrets={"TOKEN": SECRET}
    )
    await until(engine, victim.allocation_id, lambda seen: seen.log_bytes > 0)
    run = root / "runs" / victim.allocation_id
    reached = "for path in {}; do cat $path 2>/dev/null && echo LEAK $path; done; true"
    paths = [
        f"{run}/work/note.txt",
        f"{run}/log/*",
        f"{run}/claim.json",
        f"{run}/steps/00",
        f"{run}/samples",
        f"{root}/journal",
        f"{root}/users.json",
        f"{root}/usage",
    ]
    environ = "for pid in $(ls /proc | grep -E '^[0-9]+$'); do tr '\\0' '\\n' < /proc/$pid/environ; done 2>/dev/null"
    thief = await launched(
        engine,
        reached.format(" ".join(paths)),
        f"{environ} | grep -v YUNHE_ | grep {SECRET[:6]} && echo LEAK environment; true",
        f"ls {root}/runs {run} {run}/work 2>/dev/null && echo LEAK listing; true",
        "kill -9 -1 2>/dev/null; true",
        "exec 3<>/dev/tcp/localhost/1 2>/dev/null; ps aux",
        project="thief",
    )
    await ended(engine, thief.allocation_id)
    output = await log_of(engine, thief.allocation_id)
    assert b"LEAK" not in output
    assert SECRET.encode() not in output, "the secret is in somebody's process list"
    assert (await look(engine, victim.allocation_id)).phase is Phase.RUNNING


async def test_a_secret_is_on_no_disk(engine: HostEngine, root: Path) -> None:
    script = f"sleep 1; test \"$TOKEN\" = {SECRET[:6]}'{SECRET[6:]}'"
    order = await launched(engine, script, secrets={"TOKEN": SECRET})
    assert files_with(SECRET, root) == ""
    seen = await ended(engine, order.allocation_id)
    assert seen.exit_code == 0, "the task did not get its secret"
    assert files_with(SECRET, root) == ""


async def test_a_task_is_unprivileged_and_cannot_become_more(engine: HostEngine) -> None:
    script = (
        "id -u; id -G; grep NoNewPrivs /proc/self/status; umask; ulimit -c; grep CapEff /proc/self/status"
    )
    order = await launched(engine, script)
    await ended(engine, order.allocation_id)
    lines = (await log_of(engine, order.allocation_id)).decode().splitlines()
    assert int(lines[0]) >= 700_000
    assert lines[1] == lines[0]
    assert lines[2].split() == ["NoNewPrivs:", "1"]
    assert lines[3:5] == ["0077", "0"]
    assert int(lines[5].split()[1], 16) == 0


async def test_a_project_keeps_its_user_and_another_gets_another(engine: HostEngine) -> None:
    outputs: list[bytes] = []
    for project in ("a", "a", "b"):
        order = await launched(engine, "id -u", project=project)
        await ended(engine, order.allocation_id)
        outputs.append(await log_of(engine, order.allocation_id))
    assert outputs[0] == outputs[1] != outputs[2]


async def test_a_command_beside_a_task_is_its_user_in_its_limits(engine: HostEngine) -> None:
    order = await launched(engine, "id -u; cat /proc/self/cgroup; sleep 60")
    await until(engine, order.allocation_id, lambda seen: seen.log_bytes > 0)
    await anyio.sleep(0.2)
    said = await log_of(engine, order.allocation_id)
    request = ExecRequest(argv=("sh", "-c", "id -u; cat /proc/self/cgroup"))
    async with engine.exec(order.allocation_id, request) as session:
        output = b""
        while piece := await session.receive():
            output += piece
    assert output == said
    assert order.allocation_id.encode() in output


async def test_a_command_with_a_terminal_sees_its_size_and_is_ended_when_left(engine: HostEngine) -> None:
    order = await launched(engine, "sleep 60")
    await running(engine, order.allocation_id)
    request = ExecRequest(argv=("sh", "-c", "stty size; sleep 88.75"), tty=True, rows=31, columns=97)
    with anyio.fail_after(60):
        async with engine.exec(order.allocation_id, request) as session:
            assert await session.receive() == b"31 97\r\n"
        while processes_of("^sleep 88.75"):
            await anyio.sleep(0.05)


@pytest.mark.parametrize("last", ["sleep 88.25", "exit 3"])
async def test_what_a_command_leaves_running_is_ended_with_it_and_the_task_goes_on(
    engine: HostEngine, last: str
) -> None:
    order = await launched(engine, "sleep 60")
    await running(engine, order.allocation_id)
    script = f"trap '' HUP TERM; (setsid sleep 88.25 &); sleep 88.25 & echo begun; {last}"
    with anyio.fail_after(60):
        async with engine.exec(order.allocation_id, ExecRequest(argv=("sh", "-c", script))) as session:
            assert await session.receive() == b"begun\n"
            if last == "exit 3":
                assert (await session.receive(), await session.wait()) == (b"", 3)
        while processes_of("^sleep 88.25"):
            await anyio.sleep(0.05)
    await running(engine, order.allocation_id)


async def test_what_a_task_leaves_running_is_ended_with_it(engine: HostEngine) -> None:
    order = await launched(engine, "(setsid sleep 99.125 &); (trap '' TERM HUP; sleep 99.125) & sleep 0.2")
    seen = await ended(engine, order.allocation_id)
    assert seen.exit_code == 0
    assert processes_of("sleep 99.125") == []


async def test_users_are_taken_back_from_the_claims_when_their_file_is_lost(
    engine: HostEngine, root: Path
) -> None:
    first = await launched(engine, "id -u", project="a")
    await ended(engine, first.allocation_id)
    kill_daemon(root)
    (root / "users.json").write_text("{ damaged")
    with pytest.raises(PoolUnreachableError):
        await engine.observe()
    assert any("users.json" in notice for notice in (await engine.observe()).notices)
    second = await launched(engine, "id -u", project="a")
    await ended(engine, second.allocation_id)
    assert await log_of(engine, first.allocation_id) == await log_of(engine, second.allocation_id)


WHEEL = """
import zipfile
with zipfile.ZipFile("greet-1.0-py3-none-any.whl", "w") as wheel:
    wheel.writestr("greet.py", "def main(): print('hello from a package')")
    info = "greet-1.0.dist-info/"
    wheel.writestr(info + "METADATA", "Metadata-Version: 2.1\\nName: greet\\nVersion: 1.0\\n")
    wheel.writestr(info + "WHEEL", "Wheel-Version: 1.0\\nGenerator: x\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
    wheel.writestr(info + "entry_points.txt", "[console_scripts]\\ngreet = greet:main\\n")
    wheel.writestr(info + "RECORD", "")
"""


KNOWN_USER = """
id -un; whoami; python3 -c 'import getpass, pwd, os; print(getpass.getuser(), pwd.getpwuid(os.getuid()).pw_dir)'
ssh -TG nowhere.example | grep '^user '
git init -q . && git -c user.email=task@example.org commit -q --allow-empty -m first && git log --format=%cn
"""


async def test_the_tasks_user_exists_for_the_system_so_ssh_and_git_work(engine: HostEngine) -> None:
    order = await launched(engine, KNOWN_USER)
    seen = await ended(engine, order.allocation_id)
    said = (await log_of(engine, order.allocation_id)).decode().splitlines()
    home = next(line for line in said if line.startswith("task /")).split()[1]
    assert (seen.exit_code, said) == (0, ["task", "task", f"task {home}", "user task", "task"])
    assert home.endswith(f"/{order.allocation_id}/work")


@pytest.mark.skipif(not Path("/usr/bin/pip3").exists(), reason="needs the system's pip")
async def test_what_a_task_installs_with_pip_is_its_own_and_its_programs_are_found(
    engine: HostEngine,
) -> None:
    """Also where the system's Python belongs to the packager and pip alone would refuse."""
    order = await launched(
        engine,
        f"python3 - <<'END'\n{WHEEL}\nEND\n",
        "pip3 install -q --no-index ./greet-1.0-py3-none-any.whl",
        "greet; command -v greet; id -un; whoami",
    )
    assert (await ended(engine, order.allocation_id)).exit_code == 0, await log_of(
        engine, order.allocation_id
    )
    said = (await log_of(engine, order.allocation_id)).decode().splitlines()
    assert "hello from a package" in said
    assert any(line.endswith("/work/.local/bin/greet") for line in said)
    assert said[-2:] == ["task", "task"]
