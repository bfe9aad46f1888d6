"""Snapshots from files: what is empty stays unknown, and what nobody would read is refused by line and column."""

from pathlib import Path

import pytest

from yunhe.kernel.errors import InvalidInputError
from yunhe.kernel.ids import JobId, ProjectId
from yunhe.kernel.resources import Resources
from yunhe.scheduling.decision.decide import decide
from yunhe.scheduling.decision.model import Alternative, Demand, Placed, Policy
from yunhe.scheduling.perception.files import read_snapshot

POOLS = '[{"id": "a", "name": "a"}, {"id": "b", "name": "b"}]'
NODES = "node,pool,cpu_millis,memory_mib\nn1,a,4000,8192\nn2,b,4000,8192\n"


def world(folder: Path, **files: str) -> Path:
    """Write a small world, with *files* beside or instead of its own; ``x_csv`` is ``x.csv``."""
    for name, text in ({"pools_json": POOLS, "nodes_csv": NODES} | files).items():
        (folder / name.replace("_", ".")).write_text(text)
    return folder


def ask(policy: Policy = Policy.BALANCED) -> Demand:
    return Demand(
        job_id=JobId("job"),
        project_id=ProjectId("default"),
        alternatives=(Alternative(Resources(cpu_millis=3000, memory_mib=1024)),),
        policy=policy,
    )


def test_a_world_is_read_from_files_and_wrong_rows_are_all_named(tmp_path: Path) -> None:
    (tmp_path / "pools.json").write_text(
        '[{"id": "a", "name": "a", "energy": {"watts_per_core": 5}, "speed": 1.5}, {"id": "b", "name": "b"}]'
    )
    (tmp_path / "nodes.csv").write_text(
        "node,pool,cpu_millis,memory_mib,accelerators,accelerator_memory_mib,cpu_millis_free,isa,labels\n"
        "n1,a,4000,8192,a100=2,40960,,amd64,disk=ssd\n"
        "n2,b,2000,4096,,,1000,arm64,\n"
    )
    (tmp_path / "links.csv").write_text(
        "source,target,bandwidth_mbps,latency_ms,price_per_gib\na,b,1000,12,0.05\n"
    )
    (tmp_path / "datasets.json").write_text('[{"name": "d", "size_mib": 1024, "replicas": ["a"]}]')
    (tmp_path / "carbon.csv").write_text("pool,at,g_per_kwh\na,3600,400\na,0,300\n")
    (tmp_path / "spot.csv").write_text("pool,date,ratio\nb,2026-01-02,0.5\nb,2026-01-01,0.3\n")
    here = read_snapshot(tmp_path)
    assert here.cpu_free_millis.tolist() == [4000, 1000]
    assert here.device_memory_free_mib.tolist() == [40960, 40960]
    assert here.network.price_per_gib.tolist() == [0.05]
    assert here.pools[0].energy is not None
    assert here.pools[0].energy.carbon_g_per_kwh == (300.0, 400.0)
    assert here.pools[1].spot is not None
    assert here.pools[1].spot.price_ratio_history == (0.3, 0.5)
    (tmp_path / "links.csv").write_text("source,target,bandwidth_mbps\na,b,fast\na,b,-1\n")
    with pytest.raises(InvalidInputError) as refused:
        read_snapshot(tmp_path)
    assert [problem.field for problem in refused.value.fields] == [
        "links.csv:2: bandwidth_mbps",
        "links.csv:3: bandwidth_mbps",
    ]


def test_only_the_free_amounts_that_are_given_are_taken_as_such(tmp_path: Path) -> None:
    nodes = "node,pool,cpu_millis,memory_mib,accelerators,cpu_millis_free,accelerators_free\nn,a,4000,8192,t4=2,1000,t4=0.5\n"
    here = read_snapshot(world(tmp_path, nodes_csv=nodes))
    assert (here.cpu_free_millis.tolist(), here.memory_free_mib.tolist()) == ([1000], [8192])
    assert int(here.device_free_milli.sum()) == 500


def test_carbon_without_watts_stays_unknown_and_greenest_does_not_take_it_for_clean(tmp_path: Path) -> None:
    pools = (
        '[{"id": "a", "name": "a"},'
        ' {"id": "b", "name": "b", "energy": {"watts_per_core": 5, "carbon_g_per_kwh": [20]}}]'
    )
    carbon = "pool,at,g_per_kwh\na,0,900\n"
    here = read_snapshot(world(tmp_path, pools_json=pools, carbon_csv=carbon))
    assert here.pools[0].energy is not None
    assert here.pools[0].energy.watts_per_core is None
    decision = decide(ask(Policy.GREENEST), here)
    assert isinstance(decision, Placed)
    assert decision.assignments[0].pool_id == "b"


def test_scores_of_others_reservations_and_typical_asks_are_read_and_weigh(tmp_path: Path) -> None:
    plain = read_snapshot(world(tmp_path))
    first = decide(ask(), plain)
    assert isinstance(first, Placed)
    taken = first.assignments[0].pool_id
    other = ({"a", "b"} - {str(taken)}).pop()
    external = f"name,pool,valid_until,cost,seconds\nmarket,{taken},100,50,\nold,{other},0,900,\n"
    scored = decide(ask(), read_snapshot(world(tmp_path, external_csv=external)))
    assert isinstance(scored, Placed)
    assert scored.assignments[0].pool_id == other, (
        "what is said of the first outweighs; what has expired does not"
    )
    (tmp_path / "external.csv").unlink()
    node = {"a": "n1", "b": "n2"}[str(taken)]
    reserved = f"job,pool,node,cpu_millis,memory_mib,expires_at\nj1,{taken},{node},2000,1024,100\nj2,{other},,4000,1,0\n"
    here = read_snapshot(world(tmp_path, reservations_csv=reserved))
    held = decide(ask(), here)
    assert isinstance(held, Placed)
    assert held.assignments[0].pool_id == other
    typical = "cpu_millis,memory_mib,accelerators,share\n8000,1024,t4=1,0.5\n4000,,t4=0.5,0.5\n"
    asks = read_snapshot(world(tmp_path, typical_csv=typical)).surroundings.typical
    assert [(ask.resources.accelerators[0].milli, ask.share) for ask in asks] == [(1000, 0.5), (500, 0.5)]


@pytest.mark.parametrize(
    ("files", "field", "words"),
    [
        ({"pools_json": '[{"id": "a", "name": "a", "spede": 2}]', "nodes_csv": ""}, "[0].spede", "speed"),
        ({"nodes_csv": "node,pool,cpu_millis\nn,a,8x00\n"}, "nodes.csv:2: cpu_millis", "8x00"),
        ({"nodes_csv": "node,pool,cpu_milis\nn,a,1\n"}, "nodes.csv: cpu_milis", "cpu_millis"),
        ({"nodes_csv": "node,pool,labels\nn,a,ssd\n"}, "nodes.csv:2: labels", "ssd"),
        ({"nodes_csv": "node,pool,accelerators\nn,a,t4=many\n"}, "nodes.csv:2: accelerators", "many"),
        ({"nodes_csv": "node,pool\nn,zz\n"}, "nodes.csv:2: pool", "zz"),
        ({"nodes_csv": "node,pool\nn,a\nn,b\n"}, "nodes.csv", "n"),
        ({"nodes_csv": "node,pool\nn,a,9,9\n"}, "nodes.csv:2", "more cells"),
        ({"carbon_csv": "pool,at,g_per_kwh\nzz,0,1\n"}, "carbon.csv:2: pool", "zz"),
        ({"links_csv": "source,target,loss\na,b,2\n"}, "links.csv:2: loss", "2"),
        ({"links_csv": "source,target,both_ways\na,b,maybe\n"}, "links.csv:2: both_ways", "maybe"),
        ({"external_csv": "name,pool,valid_until\nx,a,\n"}, "external.csv:2: valid_until", "empty"),
        ({"spot_csv": "pool,date,ratio\na,2026-01-01,-1\n"}, "spot.csv:2: ratio", "-1"),
    ],
)
def test_what_cannot_be_read_is_named_by_line_and_column(
    tmp_path: Path, files: dict[str, str], field: str, words: str
) -> None:
    with pytest.raises(InvalidInputError) as refused:
        read_snapshot(world(tmp_path, **files))
    found = {problem.field: repr(problem) for problem in refused.value.fields}
    assert field in found, found
    assert words in found[field]


def test_a_file_in_another_encoding_is_no_fault_of_ours(tmp_path: Path) -> None:
    world(tmp_path)
    (tmp_path / "sites.csv").write_bytes("site,region\nMünchen,de\n".encode("latin-1"))
    with pytest.raises(InvalidInputError, match=r"sites\.csv"):
        read_snapshot(tmp_path)
