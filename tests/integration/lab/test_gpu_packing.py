"""The lab on GPU packing: what it writes can be rechecked by a program that shares nothing with it."""

import csv
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from random import Random

ROOT = Path(__file__).resolve().parents[3]
NODE_FIELDS = ("sn", "cpu_milli", "memory_mib", "gpu", "model")
POD_FIELDS = ("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli", "gpu_spec")


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def write(path: Path, fields: tuple[str, ...], lines: list[tuple[object, ...]]) -> None:
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(fields)
        writer.writerows(lines)


def recheck(nodes: list[dict[str, str]], pods: list[dict[str, str]], placed: list[dict[str, str]]) -> float:
    """Return the share of GPU allocated when demand first reaches all there is, or fail where a line cannot be."""
    cpu = {node["sn"]: int(node["cpu_milli"]) for node in nodes}
    memory = {node["sn"]: int(node["memory_mib"]) for node in nodes}
    model = {node["sn"]: node["model"] for node in nodes}
    left = {node["sn"]: [1000] * int(node["gpu"]) for node in nodes}
    known = {pod["name"]: pod for pod in pods}
    total = 1000 * sum(len(devices) for devices in left.values())
    demand = allocated = 0
    share = -1.0
    for number, line in enumerate(placed):
        pod = known[line["pod"]]
        assert int(line["seq"]) == number
        assert all(line[name] == pod[name] for name in POD_FIELDS[1:5])
        asked, each = int(pod["num_gpu"]), int(pod["gpu_milli"])
        demand += asked * each
        if line["node"]:
            sn, gpus = line["node"], [int(gpu) for gpu in line["gpus"].split(";") if gpu]
            assert len(set(gpus)) == len(gpus) == asked
            assert not pod["gpu_spec"] or not asked or model[sn] in pod["gpu_spec"].split("|")
            cpu[sn] -= int(pod["cpu_milli"])
            memory[sn] -= int(pod["memory_mib"])
            for gpu in gpus:
                left[sn][gpu] -= each
                assert left[sn][gpu] >= 0
            assert cpu[sn] >= 0
            assert memory[sn] >= 0
            allocated += asked * each
        if share < 0 and demand >= total:
            share = allocated / total
    # The protocol: every pod once in some order, then copies, until demand is 130 % of what there is.
    assert Counter(line["pod"] for line in placed[: len(pods)]) == Counter(pod["name"] for pod in pods)
    assert demand >= 1.3 * total or len(placed) == len(pods)
    return share


def run(folder: Path, *options: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "lab.gpu_packing", "--data", folder, "--seeds", "1", *options],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": "src"},
        check=True,
        timeout=110,
        capture_output=True,
        text=True,
    )
    return next(line.split()[1] for line in done.stdout.splitlines() if line.startswith("small"))


def test_its_placements_hold_when_recomputed_and_stay_below_the_bound(tmp_path: Path) -> None:
    rng = Random(1)
    nodes = [(f"n{i}", 32_000, 131_072, 4, rng.choice(("T4", "V100"))) for i in range(12)]
    shapes = [(1, 200), (1, 500), (1, 1000), (2, 1000), (0, 0)]
    pods = [
        (f"p{i}", rng.choice((1000, 4000, 9000)), 4096, *rng.choice(shapes), rng.choice(("", "", "T4|P100")))
        for i in range(60)
    ]
    write(tmp_path / "openb_node_list_gpu_node.csv", NODE_FIELDS, [*nodes])
    write(tmp_path / "openb_pod_list_small.csv", POD_FIELDS, [*pods])
    out = tmp_path / "placements.csv"
    printed = run(tmp_path, "--placements", str(out))
    share = recheck(
        rows(tmp_path / "openb_node_list_gpu_node.csv"),
        rows(tmp_path / "openb_pod_list_small.csv"),
        rows(out),
    )
    assert float(printed) == round(100 * share, 2)
    assert 50 < float(printed) <= float(run(tmp_path, "--bound"))


def test_the_bound_knows_that_parts_do_not_share_a_device_and_that_cores_run_out(tmp_path: Path) -> None:
    write(
        tmp_path / "openb_node_list_gpu_node.csv",
        NODE_FIELDS,
        [(f"n{i}", 8000, 65_536, 2, "T4") for i in range(4)],
    )
    for cpu, most in ((1000, "60.00"), (8000, "30.00")):
        pods = [(f"p{i}", cpu, 1024, 1, 600, "") for i in range(40)]
        write(tmp_path / "openb_pod_list_small.csv", POD_FIELDS, [*pods])
        assert run(tmp_path, "--bound") == most
