"""The same files run on a host, on Kubernetes, on Slurm and on Ray, and everything a user sees is the same.

With ``YUNHE_RECORD=1`` the golden transcript is written anew from what the host does; read the change before it is kept.
"""

import os
from pathlib import Path

import pytest

from scenarios.same_task.pools import Platform
from scenarios.same_task.recorder import Recorder
from scenarios.same_task.transcript import GOLDEN, compare, differences, read, render

pytestmark = [
    pytest.mark.engine,
    pytest.mark.drives("host", "kubernetes", "slurm", "Ray"),
    pytest.mark.timeout(900),
]


CONFIGURED = ("engine", "output 2", "output 3", "output 4", "output 5")
"""What the first file configures: no engine may argue for another value of it."""


@pytest.mark.feature(
    "C41",
    file="src/yunhe/infrastructure/kubernetes/objects/pods.py",
    old='"memory": f"{resources.memory_mib}Mi" if resources.memory_mib else "",',
    new='"memory": f"{2 * resources.memory_mib}Mi" if resources.memory_mib else "",',
)
@pytest.mark.feature(
    "C41",
    file="src/yunhe/infrastructure/slurm/site/submission.py",
    old='math.ceil(asked.get("cpu_millis", 0) / 1000)',
    new='1 + asked.get("cpu_millis", 0) // 1000',
)
def test_one_file_has_one_transcript_on_every_engine(platform: Platform, tmp_path: Path) -> None:
    seen = Recorder(platform).record()
    for engine, transcript in seen.items():
        (tmp_path / f"{engine}.txt").write_text(render(transcript))
    if os.environ.get("YUNHE_RECORD"):
        GOLDEN.write_text(render(seen["host"]))
    for line in CONFIGURED:
        assert len({transcript["finishes"][line] for transcript in seen.values()}) == 1, line
    problems = compare(read(GOLDEN.read_text()), seen, differences())
    assert not problems, "\n".join([*problems, f"the transcripts are in {tmp_path}"])
