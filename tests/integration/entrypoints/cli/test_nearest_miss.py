"""Whoever asks for what no pool can give is told which pool came nearest and what it lacked, wherever they look."""

import time
from collections.abc import Generator
from pathlib import Path

import msgspec
import pytest

from integration.entrypoints.api.serving import Served, add_fake_pool, serving
from integration.entrypoints.cli.conftest import Shell

POOLS = {"alpha": ("2", "4GB"), "beta": ("16", "8GB"), "gamma": ("12", "64GB"), "omega": ("24", "1GB")}
"""So named that the order of the alphabet is never that of nearness."""
DECIDED_WITHIN_S = 10.0

CASES = [
    pytest.param(
        ("--cpus", "20", "--memory", "32"),
        ["gamma", "omega", "beta", "alpha"],
        "20 cores asked, 12 free",
        "ask for 12 cores: gamma has them free",
        id="cores",
    ),
    pytest.param(
        ("--cpus", "24", "--memory", "1280MB"),
        ["omega", "beta", "gamma", "alpha"],
        "1.25 GiB asked, 1 GiB free",
        "ask for 1 GiB of memory: omega has it free",
        id="memory",
    ),
    pytest.param(
        ("--cpus", "100", "--memory", "300"),
        ["gamma", "omega", "beta", "alpha"],
        "100 cores asked, 12 free, 300 GiB asked, 64 GiB free",
        "ask for 12 cores and 64 GiB of memory: gamma has that free",
        id="both",
    ),
    pytest.param(
        ("--gpus", "A100:2"),
        [],
        "2 × A100 asked, 0 free",
        "nothing known would start it now",
        id="a-device-nobody-has",
    ),
]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Generator[Served]:
    with serving(tmp_path_factory.mktemp("nearest")) as served:
        with served.client() as client:
            for name, (cpus, memory) in POOLS.items():
                add_fake_pool(client, name, cpus=cpus, memory=memory)
        yield served


@pytest.fixture
def shell(served: Served, tmp_path: Path) -> Shell:
    return Shell(tmp_path, tmp_path, {"YUNHE_URL": served.url, "YUNHE_KEY": served.key})


@pytest.mark.parametrize(("asked", "order", "lacked", "way_out"), CASES)
def test_the_nearest_pool_and_what_it_lacked_are_told_before_and_after_the_job_is_taken(
    shell: Shell, asked: tuple[str, ...], order: list[str], lacked: str, way_out: str
) -> None:
    planned = shell.inside("plan", *asked, "--", "true")
    taken = shell.inside("run", "--detach", "--yes", "--output", "json", *asked, "--", "true")
    assert (planned.returncode, taken.returncode) == (3, 0), planned.stderr + taken.stderr
    job = msgspec.json.decode(taken.stdout)["id"]
    explained = _until(shell, ("explain", job), "came nearest")
    for page in (planned.stdout, explained):
        refusals = [line.split()[0] for line in page.splitlines() if "   no   " in line]
        assert sorted(refusals) == sorted(POOLS)
        if order:
            assert refusals == order, page
            assert f"came nearest: {order[0]}; {lacked}" in page
        else:
            assert f"; {lacked}" in page
        assert way_out in page
    _until(shell, ("ps", "--output", "json"), lacked)
    assert shell.inside("stop", job).returncode == 0


def _until(shell: Shell, words: tuple[str, ...], said: str) -> str:
    """Return what a command says once it says *said*: the decision is written a moment after the job is taken."""
    until = time.monotonic() + DECIDED_WITHIN_S
    while said not in (page := shell.inside(*words).stdout):
        assert time.monotonic() < until, page
        time.sleep(0.1)
    return page
