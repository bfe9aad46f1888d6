"""Hosts of others: a third party's account without privileges, an edge box with the light agent, and live figures of each."""

import json
import os
import socket
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from integration.control.plugins.platform_process import PlatformProcess
from integration.control.plugins.processes import until
from integration.control.pools.sites import options, ssh_config
from integration.entrypoints.cli.conftest import Shell
from integration.infrastructure.host.sshd import MEMBER_UID, SshServer, ssh_server
from support.agent_roots import daemon_pid, end_agent
from support.repository import REPOSITORY
from yunhe.infrastructure.host.package import agent_file

pytestmark = pytest.mark.drives("sshd")
LIGHT_MIB = 32
"""What the agent of an edge box may hold of its memory."""
PERIODS = 3
SOON_S = 60.0
CLOSE_MIB = 150
"""How far a figure of memory may be from the machine's own while other tests run; less than the task holds."""
STEADY_BYTES_PER_S = 8_000_000


@pytest.fixture(scope="module")
def server() -> Generator[SshServer]:
    with ssh_server() as server:
        yield server


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Generator[Shell]:
    home = tmp_path_factory.mktemp("third") / "home"
    home.mkdir()
    with PlatformProcess(home) as platform:
        shell = Shell(home.parent / "user", REPOSITORY)
        assert shell("login", platform.url, typed=f"{platform.key}\n").returncode == 0
        yield shell


def add_words(server: SshServer, user: str, root: Path | None = None) -> tuple[str, ...]:
    root = root or server.root_of(user)
    how = options(ssh_config=ssh_config(server), root=root, python="/usr/bin/python3")
    key = ("--port", "2222", "--identity", str(server.directory / "key"))
    return ("pool", "add", "ssh", server.target(user).destination, *how, *key)


def ok(shell: Shell, *words: str | Path) -> str:
    done = shell.inside(*words)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def figures(shell: Shell, pool: str) -> dict[str, tuple[float, float]]:
    """Return what is measured on the pool's node: each figure with its age."""
    shown = json.loads(ok(shell, "pool", "show", pool, "--output", "json"))
    return {
        fact["name"]: (fact["value"], fact["age_s"])
        for fact in shown["facts"]
        if fact["source"] == "measured"
    }


@pytest.mark.feature(
    "C37",
    file="src/yunhe/control/pools/store.py",
    old="if about.description.isolation is Isolation.ONE_PROJECT:",
    new="if about.description.isolation is not Isolation.ONE_PROJECT:",
)
def test_a_third_party_s_account_without_privileges_is_a_pool_like_one_s_own(
    shell: Shell, server: SshServer, tmp_path: Path
) -> None:
    """The commands are those of own pools, told by the same words in the same order; none asks who owns the host."""
    for name, user in (("own", "root"), ("theirs", "member")):
        assert shell(*add_words(server, user), "--name", name, timeout_s=90).returncode == 0
        ok(shell, "pool", "set", name, "--speed", "1.5", "--label", f"owner={name}")
    transcripts = {name: _life(shell, name, tmp_path) for name in ("own", "theirs")}
    assert transcripts["own"] == transcripts["theirs"]
    pools = {pool["spec"]["name"]: pool for pool in json.loads(ok(shell, "pool", "ls", "--output", "json"))}
    pid = daemon_pid(server.root_of("member"))
    assert pid is not None
    assert Path(f"/proc/{pid}").stat().st_uid == MEMBER_UID
    assert (
        pools["theirs"]["nodes"][0]["total"]["cpu_millis"] == pools["own"]["nodes"][0]["total"]["cpu_millis"]
    )
    assert pools["theirs"]["spec"].get("only_project") == "default", "one account cannot keep projects apart"
    assert "only_project" not in pools["own"]["spec"]
    for name in ("own", "theirs"):
        ok(shell, "pool", "rm", "-y", name)


def _life(shell: Shell, pool: str, folder: Path) -> list[str]:
    """Go through every verb of pools and jobs on one pool; return what a person sees of each that must not differ."""
    task = folder / "task.yaml"
    task.write_text(
        "name: same\nresources: {cpus: 0.5, memory: 64MB}\noutputs: [out.txt]\n"
        f"where: [owner={pool}]\nrun: |\n  echo hello\n  echo result > out.txt\n"
    )
    told = [ok(shell, "run", "-y", task)]
    ok(shell, "cp", "same:out.txt", folder / pool)
    told.append((folder / pool).read_text())
    facts = json.loads(ok(shell, "pool", "show", pool, "--output", "json"))["facts"]
    names = {fact["name"] for fact in facts if not fact["name"].startswith("file_system")}
    told.append(" ".join(sorted(names)))
    node = json.loads(ok(shell, "pool", "ls", "--output", "json"))
    (name,) = {
        one["id"].partition("/")[2] for each in node if each["spec"]["name"] == pool for one in each["nodes"]
    }
    for words in (
        ("cordon", pool, name),
        ("cordon", pool, name, "--off"),
        ("drain", pool),
        ("drain", pool, "--off"),
    ):
        ok(shell, "pool", *words)
    assert shell("pool", "check", pool).returncode == 0
    assert pool in ok(shell, "pool", "tree", pool)
    job = json.loads(ok(shell, "run", "-y", "-d", "--pool", pool, "--output", "json", "--", "sleep", "60"))
    until(lambda: _job(shell, job["id"])["state"] == "running")
    told.append(shell("exec", job["id"], "--", "echo", "beside").stdout)
    ok(shell, "stop", "-y", job["id"])
    until(lambda: _job(shell, job["id"])["state"] == "stopped")
    assert told[0] == "hello\n"
    assert told[1:] == ["result\n", told[2], "beside\n"]
    return told


def _job(shell: Shell, job_id: str) -> dict[str, str]:
    return next(
        job for job in json.loads(ok(shell, "ps", "--all", "--output", "json")) if job["id"] == job_id
    )


@pytest.mark.feature(
    "C34",
    file="src/yunhe/scheduling/decision/filter/rules.py",
    old="if not wanted or level in wanted:",
    new="if not wanted or level is not None:",
)
@pytest.mark.feature(
    "C34",
    file="src/yunhe/agent/daemon/machine.py",
    old='"memory_mib": memory_mib if memory_mib is not None else _meminfo()["MemTotal"] // 1024,',
    new='"memory_mib": _meminfo()["MemTotal"] // 1024,',
)
def test_an_edge_box_joins_with_the_light_agent_and_gets_the_work_of_the_edge(
    shell: Shell, server: SshServer, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    root = server.root_of("member").parent / "edge"
    words = (
        *add_words(server, "member", root),
        *options(cpus="0.5", memory="256MB"),
        *("--place", "cn-east/edge@31.2,121.5", "--label", "box=gateway"),
    )
    request.addfinalizer(lambda: end_agent(root))
    added = shell(*words, "--name", "gateway", timeout_s=90)
    assert added.returncode == 0, added.stderr
    (tmp_path / "edge.yaml").write_text(
        "name: sensor\nlevel: edge\nwhere: [box=gateway]\nresources: {cpus: 0.2, memory: 32MB}\nrun: echo at the edge\n"
    )
    assert ok(shell, "run", "-y", "--no-wait", tmp_path / "edge.yaml") == "at the edge\n"
    (tmp_path / "central.yaml").write_text("level: central\nresources: {cpus: 0.2}\nrun: 'true'\n")
    assert "is at level edge, central asked for" in shell.inside("plan", tmp_path / "central.yaml").stdout
    pid = daemon_pid(root)
    assert pid is not None
    held_mib = _resident_kib(pid) / 1024
    sent = len(agent_file().data) / 1024
    print(f"the agent: one file of {sent:.0f} KiB, {held_mib:.1f} MiB of memory, Python 3.8 and nothing else")
    assert held_mib <= LIGHT_MIB
    known = msgspec.json.decode(ok(shell, "pool", "show", "gateway", "--output", "json"))["facts"]
    reported = {fact["name"]: fact["value"] for fact in known if fact.get("node")}
    assert reported["isa"] in {"amd64", "arm64", "riscv64", "arm"}
    assert reported["kernel"] == os.uname().release
    assert (reported["cpu_millis"], reported["memory_mib"]) == (500, 256)
    ok(shell, "pool", "rm", "-y", "gateway")


def _resident_kib(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS"))


@pytest.mark.feature(
    "C20",
    file="src/yunhe/agent/daemon/machine.py",
    old="counted, self._counted = self._counted, (now, _counters())",
    new="counted = self._counted",
)
@pytest.mark.feature(
    "C20",
    file="src/yunhe/control/pools/store.py",
    old='        "used": msgspec.json.encode(node.used),\n        "ready"',
    new='        "used": msgspec.json.encode(node.total),\n        "ready"',
)
def test_cpu_memory_and_throughput_are_sampled_each_period_with_their_age(
    shell: Shell, server: SshServer, tmp_path: Path
) -> None:
    assert shell(*add_words(server, "root"), "--name", "live", timeout_s=90).returncode == 0
    taken: list[float] = []
    ages: list[float] = []
    while len(taken) < PERIODS:
        shown = json.loads(ok(shell, "pool", "show", "live", "--output", "json"))
        seen = shown["pool"]["nodes"][0]["seen_at"]
        assert all(fact["age_s"] <= fact["bound_s"] for fact in shown["facts"])
        ages += [fact["age_s"] for fact in shown["facts"] if fact["source"] == "measured"]
        if seen not in taken:
            taken.append(seen)
    assert max(ages) > 0.1, "a figure grows older until the next is taken"
    before = figures(shell, "live")
    assert {"cpu_used_millis", "memory_free_mib", "received_bytes_per_s", "sent_bytes_per_s"} <= before.keys()
    (tmp_path / "burn.yaml").write_text(BURN)
    job = json.loads(
        ok(shell, "run", "-y", "-d", "--pool", "live", "--output", "json", tmp_path / "burn.yaml")
    )
    until(lambda: "held\n" in shell.inside("logs", job["id"]).stdout, SOON_S)
    until(lambda: abs(figures(shell, "live")["memory_free_mib"][0] - _free_mib()) < CLOSE_MIB, SOON_S)
    until(lambda: figures(shell, "live")["cpu_used_millis"][0] > 700, SOON_S)
    with _steady_traffic(server.target("root").destination.partition("@")[2]):
        until(lambda: figures(shell, "live")["received_bytes_per_s"][0] > STEADY_BYTES_PER_S / 2, SOON_S)
    until(lambda: figures(shell, "live")["received_bytes_per_s"][0] < STEADY_BYTES_PER_S / 10, SOON_S)
    shell.inside("stop", "-y", job["id"])
    ok(shell, "pool", "rm", "-y", "--force", "live")


def _free_mib() -> int:
    lines = Path("/proc/meminfo").read_text().splitlines()
    return next(int(line.split()[1]) >> 10 for line in lines if line.startswith("MemAvailable"))


@contextmanager
def _steady_traffic(address: str) -> Generator[None]:
    """Send datagrams to *address* that nobody reads, until the block ends."""
    over = threading.Event()

    def send() -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sending:
            while not over.wait(0.05):
                for _ in range(STEADY_BYTES_PER_S // 20 // 50_000):
                    sending.sendto(bytes(50_000), (address, 9))

    thread = threading.Thread(target=send)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(10)


BURN = """
name: burn
resources: {cpus: 1, memory: 600MB}
run: |
  python3 -uc 'held = bytearray(300 * 2**20); print("held")
  while True: pass'
"""
