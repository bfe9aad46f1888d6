"""`yunhe explain` over a hundred live pools: at a glance, and at once."""

import io
import time
from collections.abc import Generator
from pathlib import Path

import pytest
from bench.explain import add_pools, submit
from bench.server_process import ServerProcess, free_port, server
from rich.console import Console

from integration.cli.conftest import Shell
from yunhe.entrypoints.cli.connection import pools_by_id
from yunhe.entrypoints.cli.show_jobs import explanation_page
from yunhe.entrypoints.client import Client
from yunhe.scheduling.orchestration.jobs import Job

GLANCE_LINES = 20


@pytest.fixture(scope="module")
def hundred(tmp_path_factory: pytest.TempPathFactory) -> Generator[tuple[ServerProcess, dict[str, Job]]]:
    home = tmp_path_factory.mktemp("hundred")
    with server(home, free_port()) as served, Client(served.url, served.key) as client:
        add_pools(client)
        yield served, submit(client)


def explain(served: ServerProcess, tmp_path: Path, *words: str) -> tuple[str, float]:
    extra = {"YUNHE_URL": served.url, "YUNHE_KEY": served.key}
    shell = Shell(tmp_path, tmp_path, extra)
    began = time.process_time()
    done = shell.inside("explain", *words)
    assert done.returncode == 0, done.stderr
    return done.stdout, time.process_time() - began


@pytest.mark.parametrize("which", ["placed", "waiting"])
def test_a_hundred_pools_are_explained_on_one_screen_with_half_a_second_of_work(
    hundred: tuple[ServerProcess, dict[str, Job]], tmp_path: Path, which: str
) -> None:
    served, jobs = hundred
    answers = [explain(served, tmp_path, jobs[which].id) for _ in range(5)]
    # Of processor time, which other tests beside this one do not lengthen; ``bench.explain`` has the clock on the wall.
    assert min(seconds for _, seconds in answers) < 0.5
    page = answers[0][0]
    assert len(page.splitlines()) <= GLANCE_LINES
    assert "pools: no room" in page
    assert "3 pools: no new work taken" in page
    if which == "placed":
        assert "✔" in page
        assert "more pools would do: score" in page
    else:
        assert "none of 100 pools can take it now" in page
        assert "48 cores asked, 32 free" in page
        assert "smallest change that would start it now: ask for 32 cores: pool-" in page


def test_every_pool_is_named_on_request(
    hundred: tuple[ServerProcess, dict[str, Job]], tmp_path: Path
) -> None:
    served, jobs = hundred
    page, _ = explain(served, tmp_path, jobs["waiting"].id, "--all")
    assert all(f"pool-{number:03d}" in page for number in range(100))


def test_the_page_fits_on_a_screen_of_80_columns_and_24_lines(
    hundred: tuple[ServerProcess, dict[str, Job]],
) -> None:
    served, jobs = hundred
    with Client(served.url, served.key) as client:
        for job in jobs.values():
            console = Console(file=io.StringIO(), width=80, highlight=False)
            console.print(explanation_page(client.explain(job.id), pools_by_id(client), now=time.time()))
            assert isinstance(console.file, io.StringIO)
            assert len(console.file.getvalue().splitlines()) <= GLANCE_LINES
