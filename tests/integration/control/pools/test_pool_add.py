"""``yunhe pool add`` at a terminal, against real engines: each way it can fail is told apart, and leaves nothing.

A plugin of another vendor fails before its own checks can run where it is not let in or is gone; then the platform
answers for it. Its wrong version shows when it is started, which is the step before: ``yunhe plugin add``.
"""

import sqlite3
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, closing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from engines.kubernetes.cluster import Cluster
from engines.ray_cluster import ray_cluster
from integration.control.plugins.platform_process import PlatformProcess
from integration.control.plugins.processes import until
from integration.control.pools.sites import (
    ADD,
    Cause,
    Site,
    kubernetes_site,
    plugin_site,
    ray_site,
    slurm_site,
    ssh_site,
)
from integration.control.pools.terminal import COLUMNS, Screen, at_a_terminal
from integration.entrypoints.cli.conftest import Shell
from support.repository import REPOSITORY

pytestmark = pytest.mark.timeout(600)
ENGINES = (
    "ssh",
    pytest.param("plugin", marks=pytest.mark.drives("Go plugin")),
    pytest.param("slurm", marks=[pytest.mark.engine, pytest.mark.drives("slurm")]),
    pytest.param("ray", marks=[pytest.mark.engine, pytest.mark.drives("Ray")]),
    pytest.param("kubernetes", marks=[pytest.mark.engine, pytest.mark.drives("kubernetes")]),
)


class Desk:
    """An operator, an engine before them, and what each command said."""

    def __init__(self, shell: Shell, home: Path, engine: str, site: Site) -> None:
        self.shell, self.engine, self.site = shell, engine, site
        self._home = home
        self._said: dict[Cause, Screen] = {}

    def refusal(self, cause: Cause) -> Screen:
        """Return what the command that fails for *cause* left on the terminal."""
        if cause not in self.site.refused:
            pytest.skip(f"{cause} cannot happen to {self.engine}")
        if cause not in self._said:
            words = self.site.refused[cause].words
            name = ("--name", self.pool(cause)) if words[:2] == ADD else ()
            self._said[cause] = at_a_terminal(self.shell, *words, *name)
        return self._said[cause]

    def pool(self, cause: Cause) -> str:
        return f"{self.engine}-{cause.replace(' ', '-')}"

    def stored(self) -> str:
        """Return everything the platform has written down but for the audit log, where attempts are meant to stay."""
        (path,) = self._home.glob("*.db")
        with closing(sqlite3.connect(path)) as database:
            lines = [
                line for line in database.iterdump() if not line.startswith('INSERT INTO "account_audit"')
            ]
            return "\n".join(lines)

    def known(self, pool: str) -> tuple[float, dict[str, dict[str, Any]]]:
        """Return when a pool's first node was last seen, and what is known of it."""
        shown = msgspec.json.decode(self.shell.inside("pool", "show", pool, "--output", "json").stdout)
        node = shown["pool"]["nodes"][0]["id"].partition("/")[2]
        return shown["pool"]["nodes"][0]["seen_at"], {
            fact["name"]: fact for fact in shown["facts"] if fact.get("node") == node
        }

    def pools(self) -> list[str]:
        listed = self.shell("pool", "ls", "--output", "json")
        return [pool["spec"]["name"] for pool in msgspec.json.decode(listed.stdout)]


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Generator[PlatformProcess]:
    home = tmp_path_factory.mktemp("onboarding") / "home"
    home.mkdir()
    with PlatformProcess(home) as platform:
        yield platform


@pytest.fixture(scope="module", params=ENGINES)
def desk(
    request: pytest.FixtureRequest, platform: PlatformProcess, tmp_path_factory: pytest.TempPathFactory
) -> Generator[Desk]:
    engine: str = request.param
    folder = tmp_path_factory.mktemp(engine)
    shell = Shell(folder / "user", REPOSITORY)
    assert shell("login", platform.url, typed=f"{platform.key}\n").returncode == 0
    sites: dict[str, Callable[[], AbstractContextManager[Site]]] = {
        "ssh": ssh_site,
        "plugin": lambda: plugin_site(platform, folder),
        "slurm": lambda: slurm_site(folder),
        "ray": lambda: ray_site(folder),
        "kubernetes": lambda: kubernetes_site(_cluster(request), folder),
    }
    with sites[engine]() as site:
        yield Desk(shell, platform.home, engine, site)


def _cluster(request: pytest.FixtureRequest) -> Cluster:
    return request.getfixturevalue("kubernetes_cluster")


@pytest.mark.parametrize("cause", Cause)
def test_the_cause_and_its_remedy_are_named_and_nothing_is_left(desk: Desk, cause: Cause) -> None:
    screen, expected = desk.refusal(cause), desk.site.refused[cause]
    assert screen.code == 1, screen.text
    problem, arrow, remedy = screen.text.rpartition("  → ")
    assert arrow, screen.text
    assert all(word in problem for word in expected.problem), screen.text
    assert all(word in remedy for word in expected.remedy), screen.text
    if expected.step:
        assert f" ✗ {expected.step}" in screen.lines, "a step stands on a line of its own"
        assert f'the check "{expected.step}" failed' in problem, screen.text
    assert (desk.pool(cause) if expected.words[:2] == ADD else expected.words[-1]) not in desk.stored()
    assert desk.pool(cause) not in desk.pools()


@pytest.mark.parametrize("cause", Cause)
def test_a_refusal_is_told_once_and_in_whole_sentences(desk: Desk, cause: Cause) -> None:
    screen = desk.refusal(cause)
    assert screen.text.count("→") == 1, screen.text
    assert ".." not in screen.text
    assert "Traceback" not in screen.text
    told = next(index for index, line in enumerate(screen.lines) if line.startswith("✗ "))
    assert screen.lines[told].endswith(".")
    assert all(len(line) <= COLUMNS for line in screen.lines[:told]), screen.text


def test_no_two_causes_have_the_same_message_or_remedy(desk: Desk) -> None:
    told = [desk.refusal(cause).text.rpartition("  → ") for cause in desk.site.refused]
    problems = {
        next(line for line in problem.splitlines() if line.startswith("✗ ")) for problem, _, _ in told
    }
    assert len(problems) == len({remedy for _, _, remedy in told}) == len(told), told


def test_a_program_is_told_the_same_as_a_person(desk: Desk) -> None:
    expected = desk.site.refused[Cause.CREDENTIALS]
    done = desk.shell(*expected.words, "--name", desk.pool(Cause.CREDENTIALS), "--output", "json")
    assert done.returncode == 1
    problem = msgspec.json.decode(done.stderr)
    assert all(word in problem["detail"] for word in expected.problem)
    assert all(word in problem["remedy"] for word in expected.remedy)
    if expected.step:
        told = msgspec.json.decode(done.stdout)
        assert told["pool"] is None
        assert (told["checks"][-1]["step"], told["checks"][-1]["ok"]) == (expected.step, False)


def test_one_command_adds_it_where_nothing_is_wrong_also_under_a_name_that_was_refused(desk: Desk) -> None:
    name = desk.pool(Cause.UNREACHABLE)
    desk.refusal(Cause.UNREACHABLE)
    added = desk.shell(*desk.site.accepted, "--name", name, timeout_s=120)
    try:
        assert added.returncode == 0, added.stderr
        assert "✗" not in added.stderr
        assert name in desk.pools()
    finally:
        desk.shell("pool", "rm", "-y", name)


OWN_WORDS = {
    "ssh": {"isa", "kernel", "cpu_model", "cpu_flags", "booted_at", "received_bytes_per_s"},
    "slurm": {"isa", "kernel", "booted_at", "labels"},
    "kubernetes": {"isa", "kernel", "labels"},
    "ray": {"booted_at", "received_bytes_per_s"},
    "plugin": set[str](),
}
"""What a node of each kind reports of itself beside its amounts."""


@pytest.mark.feature(
    "T23",
    file="src/yunhe/control/pools/store.py",
    old="connected = sa.select(POOLS.c.id).where(POOLS.c.state != PoolState.CONNECTING)",
    new="connected = sa.select(POOLS.c.id).where(POOLS.c.state == PoolState.CONNECTING)",
)
def test_one_call_connects_lists_monitors_and_makes_deployable(desk: Desk) -> None:
    """One command; then it is in the list, its figures are new each period, and a job runs there to its end."""
    name = f"joined-{desk.engine}"
    added = desk.shell(*desk.site.accepted, "--name", name, timeout_s=120)
    assert added.returncode == 0, added.stderr
    try:
        assert name in desk.pools()
        looks = {desk.known(name)[0]}
        until(lambda: looks.add(desk.known(name)[0]) or len(looks) >= 3, within_s=30)
        _, facts = desk.known(name)
        assert {"cpu_millis", "cpu_used_millis", "memory_free_mib", *OWN_WORDS[desk.engine]} <= facts.keys()
        assert all(fact["age_s"] <= fact["bound_s"] for fact in facts.values())
        done = desk.shell(
            "run", "-y", "--pool", name, "--cpus", "0.5", "--", "echo", "deployed", timeout_s=120
        )
        assert (done.returncode, done.stdout) == (0, "deployed\n"), done.stderr
    finally:
        desk.shell("pool", "rm", "-y", "--force", name)


@pytest.mark.engine
@pytest.mark.drives("Ray")
def test_a_ray_cluster_that_asks_for_no_token_says_so(platform: PlatformProcess, tmp_path: Path) -> None:
    """Ray without authentication has no wrong credentials; that anybody may use it is said instead."""
    shell = Shell(tmp_path / "user", REPOSITORY)
    assert shell("login", platform.url, typed=f"{platform.key}\n").returncode == 0
    (tmp_path / "token").write_text("needless")
    with ray_cluster(workers=0) as cluster:
        option = ("--option", f"token_file={tmp_path}/token")
        for more in ((), option):
            added = shell(*ADD, "ray", cluster.url, *more, "--name", "open", timeout_s=120)
            assert added.returncode == 0, added.stderr
            assert "token accepted  none is asked for" in added.stderr
            shell("pool", "rm", "-y", "open")
