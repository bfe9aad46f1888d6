"""`yunhe explain` over a hundred live pools: at a glance, and at once."""

import io
import subprocess
import sys
import time
from collections.abc import Generator
from pathlib import Path

import pytest
from bench.explain import add_pools, submit
from bench.server_process import ServerProcess, free_port, server
from rich.console import Console

from integration.entrypoints.cli.conftest import Shell
from yunhe.entrypoints.cli.session.connection import pools_by_id
from yunhe.entrypoints.cli.views.jobs import explanation_page
from yunhe.entrypoints.client import Client
from yunhe.scheduling.orchestration.jobs.model import Job

GLANCE_LINES = 20
LIGHT = {"annotated_doc", "msgspec", "rich", "shellingham", "typer", "typing_extensions", "yunhe"}
"""What every command loads; each more costs every command a part of its first second."""
LOADED = """
import sys
before = set(sys.modules)
sys.argv = ["yunhe", *sys.argv[1:]]
from yunhe.entrypoints.cli.main import main
try:
    main()
except SystemExit as ended:
    code = ended.code
loaded = {name.partition(".")[0] for name in set(sys.modules) - before}
sys.stderr.write("\\n" + " ".join(loaded - (sys.stdlib_module_names - {"asyncio"})))
sys.exit(code)
"""


@pytest.fixture(scope="module")
def hundred(tmp_path_factory: pytest.TempPathFactory) -> Generator[tuple[ServerProcess, dict[str, Job]]]:
    home = tmp_path_factory.mktemp("hundred")
    with server(home, free_port()) as served, Client(served.url, served.key) as client:
        add_pools(client)
        yield served, submit(client)


def user_of(served: ServerProcess, tmp_path: Path) -> Shell:
    return Shell(tmp_path, tmp_path, {"YUNHE_URL": served.url, "YUNHE_KEY": served.key})


def explain(served: ServerProcess, tmp_path: Path, *words: str) -> str:
    done = user_of(served, tmp_path).inside("explain", *words)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("which", ["placed", "waiting"])
def test_a_hundred_pools_are_explained_on_one_screen(
    hundred: tuple[ServerProcess, dict[str, Job]], tmp_path: Path, which: str
) -> None:
    served, jobs = hundred
    page = explain(served, tmp_path, jobs[which].id)
    assert len(page.splitlines()) <= GLANCE_LINES
    assert "pools: no room" in page
    assert "3 pools: no new work taken" in page
    if which == "placed":
        assert "✔" in page
        assert "best of 45 that fit: ¥" in page
        assert "more pools would do: score" in page
    else:
        assert "none of 100 pools can take it now" in page
        assert "48 cores asked, 32 free" in page
        assert "smallest change that would start it now: ask for 32 cores: pool-" in page


def test_every_pool_is_named_on_request(
    hundred: tuple[ServerProcess, dict[str, Job]], tmp_path: Path
) -> None:
    served, jobs = hundred
    page = explain(served, tmp_path, jobs["waiting"].id, "--all")
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


@pytest.mark.parametrize(
    ("words", "more"),
    [
        ("explain {placed}", set[str]()),
        ("explain {waiting}", set[str]()),
        ("ps --all", set[str]()),
        ("logs {placed}", set[str]()),
        ("pool ls", set[str]()),
        ("run --yes --detach -- true", {"yaml", "cython_runtime", "_cython"}),
    ],
)
def test_a_short_command_loads_only_what_parses_decodes_and_prints(
    hundred: tuple[ServerProcess, dict[str, Job]], tmp_path: Path, words: str, more: set[str]
) -> None:
    served, jobs = hundred
    arguments = words.format(**{which: job.id for which, job in jobs.items()}).split()
    done = subprocess.run(
        [sys.executable, "-c", LOADED, *arguments],
        env=user_of(served, tmp_path).environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    loaded = {
        "_cython" if name.startswith("_cython") else name for name in done.stderr.splitlines()[-1].split()
    }
    assert "msgspec" in loaded, "the command was to run"
    assert loaded - LIGHT <= more
