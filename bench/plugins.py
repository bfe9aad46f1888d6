"""A hundred plugin processes: how fast the state of all their pools is told, how old it is, what it costs."""

import os
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.server_process import ServerProcess, free_port, server
from yunhe.control.plugins.registry import HEARTBEAT_S
from yunhe.control.pools.model import Pool, PoolSpec, PoolState
from yunhe.entrypoints.client import Client
from yunhe.trading.accounts.model import KeyScope, Role

COUNT = 100
QUERIES = 100
QUERY_EVERY_S = 0.1
START_EVERY_S = 0.05
SETTLE_S = 5.0
START_WITHIN_S = 120.0
TARGET_P95_S = 0.2
SOURCES = Path(__file__).resolve().parent.parent / "examples" / "go-plugin"


@dataclass(frozen=True)
class Report:
    """What was measured, all in one run."""

    plugins: int
    queries: int
    p50_s: float
    p95_s: float
    oldest_s: float
    """The greatest age of any pool's state in any answer."""
    server_cpu: float
    """Cores used while measuring."""
    server_mib: float
    plugins_cpu: float
    plugins_mib: float
    start_s: float


def main() -> None:
    """Measure, and print one table."""
    report = measure()
    print(f"{report.plugins} plugin processes, one pool each, ready after {report.start_s:.0f} s")
    print(f"{report.queries} queries of the state of every pool, one each {QUERY_EVERY_S:g} s")
    print(
        f"  p50 {report.p50_s * 1000:.0f} ms   p95 {report.p95_s * 1000:.0f} ms   target < {TARGET_P95_S * 1000:.0f} ms"
    )
    print(f"  oldest state in any answer {report.oldest_s:.2f} s   heartbeat {HEARTBEAT_S:g} s")
    print(f"  server {report.server_cpu:.2f} cores, {report.server_mib:.0f} MiB")
    print(f"  plugins together {report.plugins_cpu:.2f} cores, {report.plugins_mib:.0f} MiB")


def measure(count: int = COUNT, queries: int = QUERIES) -> Report:
    """Start *count* plugins and ask again and again how their pools are."""
    with tempfile.TemporaryDirectory(prefix="yunhe-bench-") as folder:
        home = Path(folder)
        program = build(home)
        with server(home / "home", free_port()) as platform, Client(platform.url, platform.key) as client:
            began = time.perf_counter()
            with plugins(program, home, platform, _keys(client, count)) as processes:
                _add_pools(client, home, count)
                start_s = time.perf_counter() - began
                time.sleep(SETTLE_S)
                return _ask(client, platform, [process.pid for process in processes], queries, start_s)


def build(folder: Path) -> Path:
    """Build the example plugin in Go."""
    go = shutil.which("go") or shutil.which("go", path="/usr/local/go/bin")
    if go is None:
        raise SystemExit("go is not installed: the example plugin cannot be built")
    program = folder / "go-plugin"
    subprocess.run(
        [go, "build", "-trimpath", "-ldflags=-s -w", "-o", str(program), "."],
        cwd=SOURCES,
        env={**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "-buildvcs=false"},
        check=True,
    )
    return program


def _keys(client: Client, count: int) -> list[str]:
    """Return a key for each plugin: one registers with a key that is good for its name alone.

    They are of several owners: nobody may have very many made within an hour.
    """
    owners = [f"owner-{number}" for number in range(4)]
    for owner in owners:
        client.set_member("default", owner, Role.VIEWER)
    return [
        client.create_key(_name(number), user=owners[number % 4], scope=KeyScope(plugin=_name(number))).text
        for number in range(count)
    ]


@contextmanager
def plugins(
    program: Path, folder: Path, platform: ServerProcess, keys: list[str]
) -> Generator[list[subprocess.Popen[bytes]]]:
    """Run a plugin for each key, each of its own name, until the block ends; they are started one after another."""
    text = (SOURCES / "plugin.toml").read_text()
    processes: list[subprocess.Popen[bytes]] = []
    try:
        with (folder / "plugins.log").open("ab") as output:
            for number, key in enumerate(keys):
                manifest = folder / f"{_name(number)}.toml"
                manifest.write_text(text.replace('name = "go-plugin"', f'name = "{_name(number)}"', 1))
                environment = {
                    **os.environ,
                    "GOMAXPROCS": "1",
                    "YUNHE_PLUGIN_MANIFEST": str(manifest),
                    "YUNHE_URL": platform.url,
                    "YUNHE_PLUGIN_KEY": key,
                    "YUNHE_PLUGIN_INSTANCE": f"i-{number}",
                }
                processes.append(
                    subprocess.Popen([str(program)], env=environment, stdout=output, stderr=output)
                )
                time.sleep(START_EVERY_S)
        yield processes
    finally:
        for process in processes:
            process.kill()
        for process in processes:
            process.wait()


def _add_pools(client: Client, folder: Path, count: int) -> None:
    give_up_at = time.perf_counter() + START_WITHIN_S
    while sum(one.name.startswith("many-") for one in client.plugins()) < count:
        if time.perf_counter() > give_up_at:
            raise TimeoutError("not every plugin has registered")
        time.sleep(0.2)
    for number in range(count):
        spec = PoolSpec(name=_name(number), kind=_name(number), target=str(folder / _name(number)))
        told = list(client.add_pool(spec))
        if not isinstance(told[-1], Pool):
            raise TypeError(f"pool {spec.name} was not added")


def _ask(client: Client, platform: ServerProcess, pids: list[int], queries: int, start_s: float) -> Report:
    took: list[float] = []
    oldest = 0.0
    began, server_cpu_s, plugins_cpu_s = time.perf_counter(), platform.cpu_s(), _cpu_s(pids)
    for number in range(queries):
        time.sleep(max(0.0, began + number * QUERY_EVERY_S - time.perf_counter()))
        asked = time.perf_counter()
        pools = client.pools()
        took.append(time.perf_counter() - asked)
        now = time.time()
        if len(pools) != len(pids) or any(pool.state is not PoolState.READY for pool in pools):
            raise AssertionError("not every pool is ready")
        oldest = max(oldest, *(now - (pool.seen_at or 0.0) for pool in pools))
    wall_s = time.perf_counter() - began
    return Report(
        plugins=len(pids),
        queries=queries,
        p50_s=statistics.median(took),
        p95_s=statistics.quantiles(took, n=20)[-1],
        oldest_s=oldest,
        server_cpu=(platform.cpu_s() - server_cpu_s) / wall_s,
        server_mib=platform.memory_mib()[1],
        plugins_cpu=(_cpu_s(pids) - plugins_cpu_s) / wall_s,
        plugins_mib=sum(_resident_mib(pid) for pid in pids),
        start_s=start_s,
    )


def _name(number: int) -> str:
    return f"many-{number:03d}"


def _cpu_s(pids: list[int]) -> float:
    ticks = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def _resident_mib(pid: int) -> float:
    """Return the proportional set size: what is shared between the processes counts once."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024


if __name__ == "__main__":
    main()
