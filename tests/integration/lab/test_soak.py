"""The soak of the lab runs a real platform and leaves its samples, also when it is ended early."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
SAMPLES = 8


@pytest.mark.timeout(120)
def test_a_soak_that_is_told_to_end_drains_and_judges_what_it_has_sampled(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("the soak's agent needs root")
    kept = tmp_path / "samples.jsonl"
    command = [sys.executable, "-m", "lab.soak", "--sqlite", "--every", "1", "--rate", "2", "--samples", kept]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as soak:
        until = time.monotonic() + 60
        while time.monotonic() < until and (not kept.exists() or _count(kept) < SAMPLES):
            time.sleep(0.1)
        soak.send_signal(signal.SIGTERM)
        printed, _ = soak.communicate(timeout=60)
    samples = [json.loads(line) for line in kept.read_text().splitlines()]
    assert len(samples) >= SAMPLES
    jobs = samples[-1]["jobs"]
    assert samples[-1]["rows orchestration_job"] == pytest.approx(jobs, abs=2)
    assert jobs / samples[-1]["time_s"] == pytest.approx(2, rel=0.4)
    for name in (
        "server RSS MiB",
        "agent PSS MiB",
        "bridges anonymous MiB",
        "server descriptors",
        "agent threads",
        "database MiB",
    ):
        assert samples[-1][name] > 0, name
    assert f"ended: {{'succeeded': {jobs}" in printed or f"ended: {{'succeeded': {jobs + 1}" in printed
    assert "Nothing grows but the rows of jobs." in printed
    assert soak.returncode == 0


def _count(path: Path) -> int:
    return len(path.read_text().splitlines())
