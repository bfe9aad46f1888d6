"""More than a hundred attempts to leave a task: all are refused, and each would succeed where nothing guards it."""

import ctypes
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from integration.infrastructure.host.orders import ended, launched, log_of, until
from support import isolation_probes
from support.agent_processes import processes_of
from support.containers import IMAGE, container_store
from support.host_networks import ABSTRACT, HOST, HOST_INSIDE, PORT, host_network
from support.isolation_probes import Around
from support.sandboxes import SANDBOXED, sandbox_environment
from yunhe.agent.limits.limits import find_backend
from yunhe.infrastructure.contract.model import LaunchOrder
from yunhe.infrastructure.host.engine import HostEngine
from yunhe.infrastructure.host.target import LocalHost
from yunhe.kernel.confinement import Confinement

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root: users per project, namespaces"),
]
FEWEST = 100
PROGRAM = Path(isolation_probes.__file__)
PROGRAM_TEXT = PROGRAM.read_text()
PYTHON = shutil.which("python3", path="/usr/bin:/usr/local/bin") or sys.executable
SEGMENT_KEY = 0x59554E
HOST_KERNEL = Path("/proc/version").read_text()
OWN_KERNEL = frozenset(
    {
        *("call clone3", "call name_to_handle_at", "call open_by_handle_at", "call perf_event_open"),
        *(
            "call setns",
            "call unshare(user)",
            "call unshare(cgroups)",
            "call unshare(time)",
            "open /dev/fuse",
        ),
    }
)
"""What the kernel inside a sandbox takes up: it is the task's own, and the host's is as far away as before."""


@contextmanager
def things_of_the_host() -> Generator[Around]:
    """Put what a task must not reach into the host's directories for all, its shared memory and its sockets."""
    libc = ctypes.CDLL(None, use_errno=True)
    segment = libc.shmget(SEGMENT_KEY, 4096, 0o1666)
    folder = Path(tempfile.mkdtemp(prefix="yunhe-probe-", dir="/var/lib"))
    shared = [Path(place) / f"yunhe-probe-{os.getpid()}" for place in ("/tmp", "/var/tmp", "/dev/shm")]
    try:
        folder.chmod(0o777)
        for path in shared:
            path.write_text("a secret of the host\n")
            path.chmod(0o666)
        program = folder / "id"
        shutil.copy(shutil.which("id") or "id", program)
        program.chmod(0o4755)
        yield {
            "open_folder": str(folder),
            "setuid_program": str(program),
            "segment_key": SEGMENT_KEY,
            **dict(zip(("host_tmp", "host_var_tmp", "host_shm"), map(str, shared), strict=True)),
        }
    finally:
        libc.shmctl(segment, 0, 0)
        shutil.rmtree(folder)
        for path in shared:
            path.unlink()


def around_task(root: Path, order: LaunchOrder, other: LaunchOrder) -> Around:
    """Return what lies around the run of *order*, which is to probe, and of *other*, which is to be left alone."""
    run, victim = root / "runs" / order.allocation_id, root / "runs" / other.allocation_id
    paths = find_backend(str(root)).paths
    disk = next(line.split()[0] for line in Path("/proc/mounts").read_text().splitlines() if " / " in line)
    return {
        "claim": str(run / "claim.json"),
        "exit_record": str(run / "exit.json"),
        "log_file": str(run / "log" / f"{0:020d}"),
        "step": str(run / "steps" / "00"),
        "scratch": str(run / "work"),
        "runs": str(root / "runs"),
        "other_run": other.allocation_id,
        "other_note": str(victim / "work" / "note.txt"),
        "other_log": str(victim / "log" / f"{0:020d}"),
        "other_claim": str(victim / "claim.json"),
        "other_pid": max(processes_of({other.allocation_id})),
        "host_pid": os.getpid(),
        "journal": str(root / "journal"),
        "users": str(root / "users.json"),
        "disk": disk if disk.startswith("/") else "/dev/vda",
        "memory_limit": f"{paths['memory']}/{order.allocation_id}/memory.limit_in_bytes",
        "cpu_limit": f"{paths['cpu']}/{order.allocation_id}/cpu.cfs_quota_us",
        "other_group": f"{paths['memory']}/{other.allocation_id}/cgroup.procs",
    }


def read(text: str) -> dict[str, bool]:
    """Return which probes reached their aim, by what the program printed."""
    return {name: word == "reached" for name, word in (line.split("\t") for line in text.splitlines())}


def control(around: Around, enter: Sequence[str] = ()) -> dict[str, bool]:
    """Make the same attempts as root, beside the task and outside it."""
    command = [*enter, PYTHON, str(PROGRAM), json.dumps(around)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    return read(done.stdout)


def put(path: Path, text: str) -> None:
    """Put a file into a task's directory, all at once."""
    fresh = path.with_suffix(".new")
    fresh.write_text(text)
    fresh.chmod(0o644)
    fresh.rename(path)


def portable_python(folder: Path) -> str:
    """Put a Python with its libraries into *folder*; return the command that runs it, whatever system is around it."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    library = Path("/usr/lib") / Path(PYTHON).resolve().name
    if not library.is_dir():
        pytest.skip(f"the system's {version} has no {library} to take along")
    ignored = shutil.ignore_patterns("test", "*-packages", "config-*", "__pycache__", "idlelib", "ensurepip")
    home = folder / "python"
    shutil.copytree(library, home / "lib" / library.name, ignore=ignored)
    shutil.copy(Path(PYTHON).resolve(), home / "python")
    modules = [str(home / "python"), *map(str, (home / "lib").rglob("_ctypes.*.so"))]
    found = subprocess.run(["ldd", *modules], capture_output=True, text=True, check=True).stdout
    libraries = {word for word in found.split() if word.startswith("/") and not word.startswith(str(home))}
    for path in libraries:
        shutil.copy(path.rstrip(":"), home)
    loader = next(Path(path).name for path in libraries if "ld-linux" in path)
    for path in (home, *home.rglob("*")):
        path.chmod(0o755)
    return f"PYTHONHOME={home} {home}/{loader} --library-path {home} {home}/python"


async def probe_from_task(
    engine: HostEngine, root: Path, python: str, *, harmless: frozenset[str] = frozenset(), **fields: object
) -> None:
    """Have a task make every attempt that is not harmless; all must be refused, and enough of them be such as succeed outside."""
    other = await launched(engine, "echo mine | tee note.txt; sleep 120", project="other")
    await until(engine, other.allocation_id, lambda seen: seen.log_bytes > 0)
    with things_of_the_host() as things:
        waits = "echo; while [ ! -e around ]; do sleep 0.05; done; "
        order = await launched(engine, f"{waits}. ./command", **fields)
        await until(engine, order.allocation_id, lambda seen: seen.log_bytes > 0)
        work = root / "runs" / order.allocation_id / "work"
        around = {**things, **around_task(root, order, other)}
        put(work / "program", PROGRAM_TEXT)
        put(work / "command", f'{python or portable_python(work)} - "$(cat around)" < program\n')
        put(work / "around", json.dumps(around))
        free = control(around)
        seen = await ended(engine, order.allocation_id)
        output = (await log_of(engine, order.allocation_id)).decode().lstrip()
    assert seen.exit_code == 0, output
    tried = {name: reached for name, reached in read(output).items() if name not in harmless}
    judge({name: free[name] for name in free if name not in harmless}, tried, FEWEST)


def judge(free: dict[str, bool], guarded: dict[str, bool], fewest: int) -> None:
    assert [name for name, reached in guarded.items() if reached] == []
    effective = {name for name, reached in free.items() if reached} & guarded.keys()
    assert len(effective) >= fewest, " | ".join(sorted(guarded.keys() - effective))
    assert guarded.keys() == free.keys()


async def test_no_probe_leaves_a_process_and_each_would_without_its_guards(
    engine: HostEngine, root: Path
) -> None:
    await probe_from_task(engine, root, PYTHON)


async def test_no_probe_leaves_a_container_and_each_would_without_its_guards(root: Path) -> None:
    with container_store() as store:
        async with HostEngine(LocalHost(root=str(root), environment=store.environment)) as engine:
            await probe_from_task(engine, root, "", image=IMAGE)


async def test_no_probe_leaves_a_sandbox_and_each_would_without_its_guards(root: Path) -> None:
    async with HostEngine(LocalHost(root=str(root), environment=sandbox_environment())) as engine:
        await probe_from_task(engine, root, PYTHON, harmless=OWN_KERNEL, confinement=SANDBOXED)
        told = await launched(engine, "cat /proc/version", confinement=SANDBOXED)
        await ended(engine, told.allocation_id)
        kernel = (await log_of(engine, told.allocation_id)).decode()
    assert kernel
    assert kernel != HOST_KERNEL


@pytest.mark.parametrize("apart", [None, SANDBOXED], ids=["process", "sandbox"])
async def test_no_probe_reaches_the_host_over_the_network_and_each_would_without_its_guards(
    root: Path, apart: Confinement | None
) -> None:
    environment = {} if apart is None else sandbox_environment()
    with host_network() as network:
        target = LocalHost(root=str(root), python=network.python, environment=environment)
        async with HostEngine(target) as engine:
            serve = "import socket; s = socket.create_server(('', 7400)); print(flush=True)\nwhile True: s.accept()[0].sendall(b'hello')"
            other = await launched(engine, f'exec {PYTHON} -c "{serve}"', project="other")
            await until(engine, other.allocation_id, lambda seen: seen.log_bytes > 0)
            claim = json.loads((root / "runs" / other.allocation_id / "claim.json").read_text())
            _, address, gateway = claim["confinement"]["network"]["link"]
            around: Around = {"port": PORT, "host": HOST, "host_inside": HOST_INSIDE, "abstract": ABSTRACT}
            around.update(gateway=gateway, other_task=address, other_port=7400)
            free = control(around, network.enter)
            script = f"exec {PYTHON} - '{json.dumps(around)}' <<'END'\n{PROGRAM_TEXT}\nEND\n"
            order = await launched(engine, script, confinement=apart)
            await ended(engine, order.allocation_id)
            guarded = read((await log_of(engine, order.allocation_id)).decode())
    names = set(isolation_probes.NETWORK)
    assert [name for name in names if not free[name]] == []
    if apart is not None:
        free, guarded = ({name: told[name] for name in names} for told in (free, guarded))
    judge(free, guarded, len(names))
