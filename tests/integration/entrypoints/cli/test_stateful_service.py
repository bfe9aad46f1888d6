"""A database as a job: it is given more and less of the machine under load, and nobody who is connected notices."""

import json
import re
import shutil
import socket
import subprocess
import time
from pathlib import Path

import pytest

from integration.control.plugins.processes import until
from integration.entrypoints.cli.conftest import YUNHE, Platform, Shell
from support.postgres import program
from yunhe.kernel.resources import Resources
from yunhe.scheduling.orchestration.jobs.states import JobState

SMALL, LARGE = 0.2, 1.2
"""Cores before and after, by turns."""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Database:
    """A PostgreSQL that runs as a job, as its clients see it: they are beside it, in its network."""

    def __init__(self, shell: Shell, port: int) -> None:
        self._shell = shell
        self._server = ("-h", "127.0.0.1", "-p", str(port), "-U", "yunhe")

    def words(self, program: str, *words: str) -> tuple[str, ...]:
        """Return the command that runs a client."""
        return ("exec", "database", "--", program, *self._server, *words)

    def ask(self, question: str) -> str:
        return self._shell(*self.words("psql", "-d", "postgres", "-Atc", question)).stdout.strip()

    def clients(self) -> set[str]:
        """Return the process that serves each connection of the load, and when the connection was made."""
        asked = "SELECT pid, extract(epoch FROM backend_start) FROM pg_stat_activity WHERE application_name = 'pgbench'"
        done = self._shell(*self.words("psql", "-d", "postgres", "-Atc", asked))
        assert done.returncode == 0, done.stderr
        return set(done.stdout.splitlines())


def task(port: int) -> str:
    initdb, postgres = program("initdb"), program("postgres")
    return f"""
name: database
resources: {{cpus: {SMALL}, memory: 512MB}}
setup: {initdb} -D data -A trust -U yunhe > initdb.log
run: exec {postgres} -D data -p {port} -c listen_addresses=127.0.0.1 -c unix_socket_directories= -c fsync=off
"""


def rates(progress: str) -> list[tuple[float, float]]:
    """Return when and how many transactions a second the load made, second by second."""
    found = re.findall(r"^progress: ([\d.]+) s, ([\d.]+) tps", progress, re.MULTILINE)
    return [(float(at), float(tps)) for at, tps in found]


@pytest.mark.drives("PostgreSQL as a job")
@pytest.mark.feature(
    "F08",
    file="src/yunhe/agent/runs/node.py",
    old="        try:\n            self.apply_limits(allocation)\n        except OSError as fault:",
    new="        try:\n            self.register.save(allocation)\n        except OSError as fault:",
)
def test_a_database_is_resized_under_load_by_the_same_process_and_no_connection_is_lost(
    platform: Platform, tmp_path: Path
) -> None:
    if not (shutil.which("pgbench") and program("initdb")):
        pytest.skip("PostgreSQL is not installed")
    admin, port = platform.admin, free_port()
    (tmp_path / "database.yaml").write_text(task(port))
    assert admin("run", "-y", "-d", tmp_path / "database.yaml").returncode == 0
    database = Database(admin, port)
    try:
        until(lambda: database.ask("SELECT 1") == "1", within_s=60)
        loaded = admin(*database.words("pgbench", "-i", "-s", "1", "-q", "postgres"), timeout_s=120)
        assert loaded.returncode == 0, loaded.stderr
        main = (_postmaster(admin), database.ask("SELECT pg_postmaster_start_time()"))
        load = subprocess.Popen(
            [*YUNHE, *database.words("pgbench", "-n", "-S", "-c", "4", "-T", "30", "-P", "1", "postgres")],
            cwd=admin.cwd,
            env=admin.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        until(lambda: len(database.clients()) == 4)
        clients, at = database.clients(), list[float]()
        with admin.client() as client:
            (job,) = client.jobs(name="database", states=[JobState.RUNNING])
            for cores in (LARGE, SMALL):
                time.sleep(4)
                client.resize(job.id, Resources(cpu_millis=round(cores * 1000), memory_mib=768))
                at.append(time.time() - min(float(one.partition("|")[2]) for one in clients))
        assert database.clients() == clients, "each connection is served by the process it began with"
        said, _ = load.communicate(timeout=60)
        assert load.returncode == 0, said
        assert "number of failed transactions: 0" in said
        assert (_postmaster(admin), database.ask("SELECT pg_postmaster_start_time()")) == main
        shown = json.loads(admin("ps", "--output", "json").stdout)
        (seen,) = [one for one in shown if one["name"] == "database"]
        assert len(seen["attempts"]) == 1
        assert seen["attempts"][0]["resources"] == {"cpu_millis": SMALL * 1000, "memory_mib": 768}
        small = [tps for second, tps in rates(said) if second < at[0] - 1]
        large = [tps for second, tps in rates(said) if at[0] + 1 < second < at[1]]
        print(
            f"transactions per second: {sum(small) / len(small):.0f} with {SMALL} cores, {sum(large) / len(large):.0f} with {LARGE}"
        )
        assert sum(large) / len(large) > 1.5 * sum(small) / len(small), said
    finally:
        admin("stop", "-y", "database")


def _postmaster(admin: Shell) -> str:
    done = admin("exec", "database", "--", "head", "-1", "data/postmaster.pid")
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()
