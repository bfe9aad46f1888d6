"""What is billed against what the kernel told the task itself."""

import json
import re
import time
from pathlib import Path

import anyio
import pytest

from integration.infrastructure.host.orders import ended, launched, log_of, until
from support.agent_roots import kill_daemon
from yunhe.infrastructure.contract.model import Ending
from yunhe.infrastructure.host.engine import HostEngine

pytestmark = pytest.mark.anyio

TREE = """#!/usr/bin/python3
# Many short-lived children of children, until the parent's own account of the whole tree says enough.
import json, os, resource, subprocess, sys, time
def used():
    own, below = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return own.ru_utime + own.ru_stime + below.ru_utime + below.ru_stime
short = "i=0; while [ $i -lt 4000 ]; do i=$((i+1)); done; (i=0; while [ $i -lt 4000 ]; do i=$((i+1)); done)"
wanted, midway, children = float(os.environ["WANTED_S"]), None, 0
while used() < wanted:
    batch = [subprocess.Popen(["/bin/sh", "-c", short]) for _ in range(8)]
    children += len(batch)
    for child in batch:
        child.wait()
    if midway is None and used() >= wanted / 2:
        midway = used()
        print("midway", flush=True)
told = {"cpu_s": used(), "midway_s": midway, "children": children, "ended_at": time.time()}
print(json.dumps(told), flush=True)
"""


async def bill_of_a_tree(engine: HostEngine, root: Path, wanted_s: float) -> float:
    """Return how far the bill of a process tree, its agent killed midway, is from its own account of itself."""
    order = await launched(engine, TREE, cpu_millis=2000, envs={"WANTED_S": str(wanted_s)})
    within_s = 60 + 15 * wanted_s  # others may use the machine too
    with anyio.fail_after(within_s):
        await until(engine, order.allocation_id, lambda seen: seen.log_bytes > 0, within_s=within_s)
        kill_daemon(root)
        killed_at = time.time()
        await anyio.sleep(1)
        seen = await ended(engine, order.allocation_id, within_s=within_s)
    assert seen.exit_code == 0
    told = json.loads((await log_of(engine, order.allocation_id)).splitlines()[-1])
    assert told["children"] > 200
    assert 0.5 * wanted_s <= told["midway_s"] < 0.75 * wanted_s
    assert killed_at < told["ended_at"], "the agent was not killed midway"
    print(f"bill {seen.meters.cpu_us / 1e6:.3f} s, rusage {told['cpu_s']:.3f} s, {told['children']} children")
    minutes = [minute async for minute in engine.usage()]
    assert minutes, "the minutes of the tree were not kept"
    return abs(seen.meters.cpu_us / 1e6 / told["cpu_s"] - 1)


async def test_the_bill_of_a_process_tree_is_right_though_the_agent_died_midway(
    engine: HostEngine, root: Path
) -> None:
    assert await bill_of_a_tree(engine, root, 4.0) < 0.01


@pytest.mark.engine
@pytest.mark.timeout(600)
async def test_the_bill_of_thirty_core_seconds_is_within_half_a_percent(
    engine: HostEngine, root: Path
) -> None:
    assert await bill_of_a_tree(engine, root, 30.0) < 0.005


async def test_disk_use_is_counted_through_children_and_a_short_log_is_not_billed(engine: HostEngine) -> None:
    script = "sh -c 'dd if=/dev/zero of=f bs=1M count=8 conv=fsync 2>/dev/null'; head -c 900000 /dev/zero"
    order = await launched(engine, script)
    seen = await ended(engine, order.allocation_id)
    assert seen.log_bytes == 900_000, "more than a MiB is moved, and billed, in the task's own group"
    assert 8 << 20 <= seen.meters.written_bytes < (8 << 20) + 500_000


async def test_memory_is_integrated_over_the_seconds_it_was_held(engine: HostEngine) -> None:
    script = "#!/usr/bin/python3\nimport time\nheld = bytearray(60 << 20)\ntime.sleep(3)\n"
    order = await launched(engine, script)
    seen = await ended(engine, order.allocation_id)
    assert 60 <= seen.meters.memory_peak_mib <= 75
    assert 60 * 2000 <= seen.meters.memory_mib_ms <= 75 * 4000
    expected = 0 if (await engine.describe()).network_metered else None
    assert seen.meters.received_bytes == expected, "unmetered is not zero"


async def test_a_peak_between_two_samples_is_told(engine: HostEngine) -> None:
    script = "#!/usr/bin/python3\nheld = bytearray(120 << 20)\ndel held\n"
    order = await launched(engine, script)
    seen = await ended(engine, order.allocation_id)
    assert seen.meters.memory_peak_mib >= 120


async def test_what_the_kernel_ended_for_memory_has_its_limit_as_peak(engine: HostEngine) -> None:
    order = await launched(engine, "#!/usr/bin/python3\nheld = bytearray(800 << 20)\n")
    seen = await ended(engine, order.allocation_id)
    assert seen.ending is Ending.OUT_OF_MEMORY
    assert 255 <= seen.meters.memory_peak_mib <= 256


@pytest.mark.feature("I17", file="src/yunhe/agent/daemon/daemon.py", old="TICK_S = 1.0", new="TICK_S = 5.0")
@pytest.mark.feature(
    "I17",
    file="src/yunhe/agent/runs/node.py",
    old="        self.group(allocation).set_cores(allocation.cores)\n        self.changed(allocation.id)\n\n    def pause",
    new="        self.changed(allocation.id)\n\n    def pause",
)
async def test_cores_are_bound_live_and_every_second_is_measured(engine: HostEngine) -> None:
    script = "#!/usr/bin/python3\nimport os, time\nend = time.time() + 4\nseen = set()\n"
    script += "while time.time() < end:\n    seen.add(tuple(sorted(os.sched_getaffinity(0))))\nprint(seen)\n"
    order = await launched(engine, script, cpu_millis=500)
    await anyio.sleep(1.2)
    await engine.pin(order.allocation_id, 1, (0,))
    await anyio.sleep(1.0)
    await engine.pin(order.allocation_id, 1, ())
    seen = await ended(engine, order.allocation_id)
    cores = {
        int(number) for number in re.findall(r"\d+", (await log_of(engine, order.allocation_id)).decode())
    }
    assert b"(0,)" in await log_of(engine, order.allocation_id)
    assert len(cores) > 1, "it was bound to all cores before and after"
    minutes = [minute async for minute in engine.usage()]
    mine = [minute for minute in minutes if minute.allocation_id == order.allocation_id]
    assert sum(minute.samples for minute in mine) >= seen.meters.wall_ms // 1000, (
        "less than one sample a second"
    )
    assert sum(sum(minute.cpu_sketch) for minute in mine) >= 4
    assert max(minute.cpu_max_millis for minute in mine) > 200
