"""What an operator sees and can do of a pool that does not answer, at the command line."""

from collections.abc import Generator
from pathlib import Path

import msgspec
import pytest

from integration.control.plugins.processes import until
from integration.entrypoints.api.serving import Served, add_fake_pool, serving
from integration.entrypoints.cli.conftest import Shell
from yunhe.infrastructure.contract.kind import Target
from yunhe.infrastructure.fake.faults import Fault
from yunhe.kernel.money import Prices
from yunhe.trading.applications.model import Submission
from yunhe.trading.demand.model import ResourceSpec, Task


@pytest.fixture
def served(tmp_path: Path) -> Generator[Served]:
    with serving(tmp_path / "home") as served:
        with served.client() as client:
            add_fake_pool(client, "web")
        yield served


@pytest.fixture
def shell(served: Served, tmp_path: Path) -> Shell:
    return Shell(tmp_path, tmp_path, {"YUNHE_URL": served.url, "YUNHE_KEY": served.key})


def cut_off(served: Served, name: str = "web") -> None:
    """Let nothing come back from a pool any more."""
    faults = served.engines.site(Target(address=name)).faults
    for verb in ("inventory", "observe", "describe", "account", "catalogue"):
        faults.inject(verb, *[Fault.UNHEARD] * 10_000)


def standing(shell: Shell) -> str:
    (pool,) = msgspec.json.decode(shell.inside("pool", "ls", "--output", "json").stdout)
    return f"{pool['state']}{', drained' if pool.get('drained') else ''}"


def test_a_drained_pool_that_dies_is_shown_dead_and_is_not_called_ready_when_it_may_work_again(
    served: Served, shell: Shell
) -> None:
    assert "takes no new work" in shell.inside("pool", "drain", "web").stderr
    assert "ready, drained" in shell.inside("pool", "ls").stdout
    cut_off(served)
    until(lambda: standing(shell) == "offline, drained")
    said = shell.inside("pool", "drain", "web", "--off").stderr
    assert "web is offline: " in said
    assert standing(shell) == "offline"
    assert "web is offline: " in shell.inside("pool", "drain", "web").stderr
    assert standing(shell) == "offline, drained"


def test_a_pool_that_does_not_answer_is_removed_by_the_command_that_the_refusal_names(
    served: Served, shell: Shell
) -> None:
    cut_off(served)
    refused = shell.inside("pool", "rm", "-y", "web")
    assert refused.returncode == 1
    assert "does not say whether it still runs" in refused.stderr
    command = "yunhe pool rm --force web"
    assert command in " ".join(refused.stderr.split())
    assert shell.inside(*command.split()[1:], "-y").returncode == 0
    assert msgspec.json.decode(shell.inside("pool", "ls", "--output", "json").stdout) == []


def test_a_busy_pool_is_removed_by_the_command_that_the_refusal_names(served: Served, shell: Shell) -> None:
    with served.client() as client:
        job = client.submit(Submission(task=Task(run="sleep 600", resources=ResourceSpec(cpus=1))))
        until(lambda: client.job(job.id).state == "running")
    refused = shell.inside("pool", "rm", "-y", "web")
    assert refused.returncode == 1
    assert "still runs 1 of our jobs" in refused.stderr
    assert "yunhe pool rm --force web" in " ".join(refused.stderr.split())
    assert shell.inside("pool", "rm", "--force", "-y", "web").returncode == 0


def test_a_page_of_one_pool_tells_account_sizes_prices_and_what_it_cannot_do_and_why(
    served: Served, shell: Shell
) -> None:
    with served.client() as client:
        add_fake_pool(client, "priced", cpus="4", price_micros="1500000")
        client.set_prices("priced", Prices(cpu_core_hour_micros=50_000))
    page = shell.inside("pool", "show", "priced").stdout
    assert "ready" in page
    assert "account: anybody" in page
    assert "fake-1" in page
    assert "¥1.50" in page, "what its owner asks"
    assert "¥0.0500" in page, "what it charges"
    assert "this fake was made without services." in page
    assert "nobody has said what this pool charges" in shell.inside("pool", "show", "web").stdout
    told = msgspec.json.decode(shell.inside("pool", "show", "priced", "--output", "json").stdout)
    assert told["pool"]["account"]["identity"] == "anybody"
    assert told["pool"]["catalogue"]["specs"][0]["price_micros_per_hour"] == 1_500_000
    assert told["prices"]["tiers"]
    assert shell.inside("pool", "show", "nobody").returncode == 1
