"""Submit → first log line through the API, on this machine and over SSH; p50 of 20 each, limits 1 s and 2 s.

Run as root with ``python -m bench.first_log``; the SSH rows need openssh-server and are left out without it.
"""

import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from bench.server_process import free_port, server
from integration.infrastructure.host.sshd import ssh_server
from integration.scheduling.orchestration.stage import over_ssh
from support.agent_roots import agent_root
from yunhe.control.pools.model import PoolSpec
from yunhe.entrypoints.client import Client
from yunhe.trading.applications.model import Submission
from yunhe.trading.demand.model import ResourceSpec, Task

ROUNDS = 20
LIMITS_S = {"local": 1.0, "ssh": 2.0}


def main() -> None:
    """Print a line for each way to reach a host."""
    with ExitStack() as stack:
        home = Path(tempfile.mkdtemp(prefix="yunhe-bench-"))
        stack.callback(shutil.rmtree, home, ignore_errors=True)
        served = stack.enter_context(server(home, free_port(), engines="hosts"))
        client = stack.enter_context(Client(served.url, served.key))
        for spec in stack.enter_context(_pools()):
            list(client.add_pool(spec))
            _first_line_s(client, spec.name)  # the connection and the project's directory are made once
            times = sorted(_first_line_s(client, spec.name) for _ in range(ROUNDS))
            limit, p50 = LIMITS_S[spec.kind], statistics.median(times)
            verdict = "ok" if p50 < limit else "OVER"
            print(
                f"{spec.name:12} p50 {p50 * 1000:4.0f} ms, max {times[-1] * 1000:4.0f} ms of {ROUNDS}   {verdict}, limit {limit:g} s"
            )
            if p50 >= limit:
                sys.exit(1)


@contextmanager
def _pools() -> Generator[list[PoolSpec]]:
    with ExitStack() as stack:
        root = stack.enter_context(agent_root())
        specs = [PoolSpec(name="this-machine", kind="local", options={"root": str(root)})]
        if os.geteuid() == 0 and shutil.which("sshd", path="/usr/sbin:/usr/bin"):
            far = stack.enter_context(ssh_server())
            specs += [over_ssh(far, user) for user in ("root", "member")]
        else:
            print("ssh          left out: needs root and openssh-server")
        yield specs


def _first_line_s(client: Client, pool: str) -> float:
    """Return seconds from the submission to the first byte of output."""
    task = Task(run="echo first", resources=ResourceSpec(cpus=0.1, memory="64MB", pool=pool))
    began = time.perf_counter()
    job = client.submit(Submission(task=task))
    for piece in client.logs(job.id, follow=True):
        if not piece.data.startswith(b"first"):
            raise AssertionError(piece.data)
        break
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
