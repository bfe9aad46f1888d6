"""What the default guards of a host cost: the same jobs with and without them, turn by turn.

``python -m bench.guards`` runs a compile job and a download over a link of 1 Gbit/s by two agents: one keeps namespaces, a
network of its own and the filter of system calls, the other is started where none of them can be had. It compares
CPU-seconds as billed, and the time from the launch to the first line of output.
"""

import argparse
import os
import statistics
import subprocess
import sys
from contextlib import ExitStack

import anyio

from bench.agent import judge, one_first_line, over
from integration.infrastructure.host.orders import ended, launched, order_for
from support.agent_roots import agent_root
from support.bare_agents import python_without
from support.host_networks import OUTSIDE, WEB_PORT, HostNetwork, host_network
from yunhe.infrastructure.host.engine import HostEngine
from yunhe.infrastructure.host.target import LocalHost

MOST_CPU = 1.05
MOST_LATER_MS = 50.0
DOWNLOAD_MIB = 250
COMPILE = "/usr/bin/python3 -m compileall -q -f -o 0 -d x --invalidation-mode unchecked-hash src >/dev/null"
PREPARE = "mkdir src; cp -r /usr/lib/python3*/[a-z]*.py /usr/lib/python3*/{asyncio,json,email,http,unittest,multiprocessing,ctypes,encodings} src/; "
JOBS = {
    "compile": f"{PREPARE}{COMPILE}",
    "download": f"curl -sf -o /dev/null http://{OUTSIDE}:{WEB_PORT}/data",
}


def shape(network: HostNetwork) -> None:
    """Give the link between the host and the outside 1 Gbit/s in both directions."""
    for enter, link in ((network.enter, "yhh"), (network.enter_outside, "yho")):
        add = [*enter, "tc", "{}", "add", "dev", link]
        root = ["root", "handle", "1:", "htb", "default", "10"]
        rate = ["classid", "1:10", "parent", "1:", "htb", "rate", "1gbit"]
        for kind, words in (("qdisc", root), ("class", rate)):
            subprocess.run([*(word.format(kind) for word in add), *words], check=True)


async def cpu_s(engine: HostEngine, script: str) -> float:
    """Return the CPU-seconds a job is billed."""
    order = await launched(engine, script)
    seen = await ended(engine, order.allocation_id, within_s=120)
    assert seen.exit_code == 0, seen.detail
    return seen.meters.cpu_us / 1e6


async def compare(rounds: int) -> None:
    """Run the jobs by both agents and print how they compare."""
    with ExitStack() as held:
        network = held.enter_context(host_network())
        shape(network)
        with (network.files / "data").open("wb") as file:
            file.truncate(DOWNLOAD_MIB << 20)
        bare = held.enter_context(python_without("unshare", "seccomp", python=network.python))
        roots = [held.enter_context(agent_root()) for _ in range(2)]
        guarded = LocalHost(root=str(roots[0]), python=network.python)
        unguarded = LocalHost(root=str(roots[1]), python=bare)
        async with HostEngine(guarded) as with_guards, HostEngine(unguarded) as without:
            told = (await with_guards.describe()).guards
            kept = [guard.kept for guard in told if "gVisor" not in guard.name]  # tasks have that if they ask
            lost = [guard for guard in (await without.describe()).guards if not guard.kept]
            assert all(kept), "the first agent must keep every guard"
            assert len(lost) >= 5, "the second must keep none of those that are compared"
            for name, script in JOBS.items():
                pairs = [
                    (await cpu_s(with_guards, script), await cpu_s(without, script)) for _ in range(rounds)
                ]
                ratios = [one / other for one, other in pairs]
                spent = [statistics.median(column) for column in zip(*pairs, strict=True)]
                print(
                    f"{name}: {spent[0]:.3f} CPU-seconds with guards, {spent[1]:.3f} without, {rounds} pairs"
                )
                judge(f"{name}, CPU-seconds with guards to without", statistics.median(ratios), MOST_CPU)
            times = [
                [
                    await one_first_line(engine, await order_for(engine, "echo first; sleep 30"))
                    for engine in (with_guards, without)
                ]
                for _ in range(rounds)
            ]
            later = [(one - other) * 1000 for one, other in times]
            first = [statistics.median(column) * 1000 for column in zip(*times, strict=True)]
            print(f"first line: {first[0]:.0f} ms with guards, {first[1]:.0f} ms without")
            judge("first line, ms later with guards", statistics.median(later), MOST_LATER_MS)


def main() -> None:
    """Run every comparison."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    if (
        os.geteuid() != 0
        or subprocess.run(["which", "curl", "tc", "nft"], capture_output=True, check=False).returncode
    ):
        sys.exit("needs root, curl, tc and nft")
    anyio.run(compare, parser.parse_known_args()[0].rounds)
    if over:
        sys.exit(f"over its limit: {', '.join(over)}")


if __name__ == "__main__":
    main()
