"""How long an order takes to run, unattended: told of each job, and as a distribution."""

import json
import re
import time
import urllib.request
from pathlib import Path

import msgspec
import pytest

from integration.control.plugins.processes import until
from integration.entrypoints.cli.conftest import Platform
from yunhe.entrypoints.cli.session.context import Config

UNATTENDED_S = 300.0
JOBS = 6
SAME_S = 0.5
"""By so much clocks that are read at once may differ; a job runs for longer than that."""
LATE_S = 10.0
"""So long a busy machine may take from starting a job to its first line."""
TASK = """
name: order
resources: {cpus: 1, memory: 64MB}
run: |
  date +%s.%N
  sleep 2
"""


def distribution(platform: Platform) -> tuple[int, int]:
    """Return how many jobs have come to run, and how many of them within five minutes."""
    config = msgspec.json.decode((platform.admin.home / "config.json").read_bytes(), type=Config)
    key = {"Authorization": f"Bearer {config.context().key}"}
    with urllib.request.urlopen(urllib.request.Request(f"{platform.url}/metrics", headers=key)) as answer:
        text = answer.read().decode()
    name = "yunhe_job_order_to_running_seconds"
    count = re.search(rf"^{name}_count ([\d.e+]+)$", text, re.MULTILINE)
    within = re.search(rf'^{name}_bucket{{le="300.0"}} ([\d.e+]+)$', text, re.MULTILINE)
    return (int(float(count[1])), int(float(within[1]))) if count and within else (0, 0)


ROW = {
    "file": "src/yunhe/scheduling/orchestration/jobs/store.py",
    "old": "round(min(ran) - row.submitted_at, 3)",
    "new": "round((row.ended_at or min(ran)) - row.submitted_at, 3)",
}


@pytest.mark.feature("S11", **ROW)
@pytest.mark.feature("N16", **ROW)
def test_each_order_tells_how_long_it_took_to_run_and_all_are_in_the_distribution(
    platform: Platform, tmp_path: Path
) -> None:
    admin = platform.admin
    (tmp_path / "order.yaml").write_text(TASK)
    counted, asked_at = distribution(platform), time.time()
    files = [tmp_path / "order.yaml"] * JOBS
    done = admin.inside("run", "-y", "-d", "--output", "json", *files)
    assert done.returncode == 0, done.stderr
    accepted_at = time.time()
    ordered = {job["id"] for job in json.loads(done.stdout)}
    assert len(ordered) == JOBS

    def told() -> dict[str, tuple[float, float | None]]:
        shown = json.loads(admin.inside("ps", "--all", "--output", "json").stdout)
        return {
            job["id"]: (job["submitted_at"], job.get("order_to_running_s"))
            for job in shown
            if job["id"] in ordered
        }

    until(lambda: all(seconds for _, seconds in told().values()), within_s=180)
    for job_id, (submitted_at, seconds) in told().items():
        printed_at = float(admin.inside("logs", job_id).stdout.split()[0])
        assert asked_at - SAME_S < submitted_at < accepted_at + SAME_S
        assert seconds is not None
        assert seconds < UNATTENDED_S
        started_at = submitted_at + seconds
        assert printed_at - LATE_S < started_at < printed_at + SAME_S, "as the job's own clock says"
    assert max(seconds or 0.0 for _, seconds in told().values()) > 1.9, "some had to wait for room"
    after = distribution(platform)
    assert after[0] - counted[0] == JOBS
    assert after[1] - counted[1] == JOBS
