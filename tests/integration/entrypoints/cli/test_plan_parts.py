"""What can be decided and not yet carried out: ``plan`` says where each part would go, ``run`` refuses and takes nothing."""

from collections.abc import Generator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from integration.entrypoints.api.serving import Served, add_fake_pool, serving
from integration.entrypoints.cli.conftest import Shell
from yunhe.entrypoints.cli.terminal.follow import NOTHING_FITS
from yunhe.kernel.errors import InvalidInputError
from yunhe.kernel.ids import ProjectId
from yunhe.trading.applications.model import Submission
from yunhe.trading.demand.parse import parse_yaml

NODES = "run: 'true'\nnum_nodes: 3\nresources: {cpus: 2}\n"
SERVICE = "run: 'true'\nservice: {replicas: 4}\nresources: {cpus: 2}\n"
GRAPH = """
run: "true"
components:
  - {name: web, resources: {cpus: 3}}
  - {name: db, resources: {cpus: 4}}
  - {name: cache}
links:
  - {from: web, to: db, bandwidth: 1Gbps}
  - {from: web, to: cache, same_node: true}
"""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Generator[Served]:
    with serving(tmp_path_factory.mktemp("parts")) as served:
        with served.client() as client:
            add_fake_pool(client, "alpha", cpus="4", memory="8GB", nodes="3")
            add_fake_pool(client, "beta", cpus="2", memory="8GB")
        yield served


@pytest.fixture
def shell(served: Served, tmp_path: Path) -> Shell:
    return Shell(tmp_path, tmp_path, {"YUNHE_URL": served.url, "YUNHE_KEY": served.key})


def planned(shell: Shell, folder: Path, text: str, *more: str) -> str:
    (folder / "app.yaml").write_text(text)
    done = shell.inside("plan", *more, folder / "app.yaml")
    assert done.returncode in {0, NOTHING_FITS}, done.stderr
    assert (done.returncode == NOTHING_FITS) == (
        "✗" in done.stdout or '"type": "graph-waiting"' in done.stdout or '"type": "waiting"' in done.stdout
    )
    return done.stdout


def as_json(shell: Shell, folder: Path, text: str) -> dict[str, Any]:
    return msgspec.json.decode(planned(shell, folder, text, "--output", "json"))


def test_nodes_go_to_one_pool_each_member_to_a_node_of_its_own(shell: Shell, tmp_path: Path) -> None:
    plan = as_json(shell, tmp_path, NODES)
    assert plan["type"] == "placed"
    assert len({one["node_id"] for one in plan["assignments"]}) == 3
    assert len({one["pool_id"] for one in plan["assignments"]}) == 1
    page = planned(shell, tmp_path, NODES)
    assert "Its 3 members would go, all or none:" in page
    assert sorted(line.split()[2] for line in page.splitlines() if line.startswith("  member ")) == [
        f"alpha/fake-{number}" for number in (1, 2, 3)
    ]
    assert "planned only" in page
    many = planned(shell, tmp_path, NODES.replace("3", "9"))
    assert "No pool can take it now." in many
    assert "smallest change" in many


def test_replicas_go_to_as_many_pools_as_it_takes(shell: Shell, tmp_path: Path) -> None:
    plan = as_json(shell, tmp_path, SERVICE)
    assert plan["type"] == "placed"
    assert len({one["node_id"] for one in plan["assignments"]}) == 4
    assert len({one["pool_id"] for one in plan["assignments"]}) == 2
    page = planned(shell, tmp_path, SERVICE)
    assert "beta/fake-1" in page
    assert "alpha/fake-1" in page


def test_components_go_where_they_fit_and_their_links_say_what_they_use(shell: Shell, tmp_path: Path) -> None:
    plan = as_json(shell, tmp_path, GRAPH)
    assert plan["type"] == "graph-placed"
    at = {one["name"]: one["node_id"] for one in plan["parts"]}
    assert at["web"] == at["cache"] != at["db"]
    page = planned(shell, tmp_path, GRAPH)
    assert "web → db" in page
    assert "1000 Mbit/s" in page
    assert "inside alpha" in page
    assert "the node itself" in page
    assert "planned only" in page


def test_what_stands_in_the_way_of_a_graph_is_told(shell: Shell, tmp_path: Path) -> None:
    page = planned(shell, tmp_path, GRAPH.replace("cpus: 4", "cpus: 5"))
    assert "no node can take db, even alone" in page
    assert "5 cores asked, 4 free" in page
    assert "smallest change that would place db: ask for 4 cores" in page
    crowded = planned(shell, tmp_path, GRAPH.replace("cpus: 3", "cpus: 4"))
    assert "web and cache needs more than any node it may use has free" in crowded
    apart = GRAPH.replace("cpus: 3", "cpus: 3, pool: alpha").replace("cpus: 4", "cpus: 2, pool: beta")
    assert "link bandwidth: no way wide enough" in planned(shell, tmp_path, apart)


@pytest.mark.parametrize(
    ("text", "field"),
    [(NODES, "num_nodes"), (SERVICE, "service"), (GRAPH, "components")],
    ids=["nodes", "service", "graph"],
)
def test_run_refuses_it_at_every_door_and_takes_nothing(
    served: Served, shell: Shell, tmp_path: Path, text: str, field: str
) -> None:
    (tmp_path / "app.yaml").write_text(text)
    done = shell.inside("run", "--yes", tmp_path / "app.yaml")
    assert done.returncode == 1, done.stdout
    assert f"{field}: is planned only: yunhe plan decides and explains it" in " ".join(done.stderr.split())
    task = parse_yaml(text, plan=True)
    with served.client() as client:
        with pytest.raises(InvalidInputError, match="nothing was accepted") as refused:
            client.submit(Submission(task=task, project_id=ProjectId("default")))
        assert field in {problem.field for problem in refused.value.fields}
        assert list(client.jobs()) == []
