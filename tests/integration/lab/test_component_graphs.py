"""The lab on component graphs: what it writes can be rechecked by a program that shares nothing with it."""

import csv
import os
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def gml(kind: dict[str, object], nodes: list[int], edges: list[tuple[int, int, int]]) -> str:
    lines = ["graph [", *(f"  {key} {value}" for key, value in kind.items())]
    lines += [f'  node [ id {i} label "{i}" cpu {cpu} ]' for i, cpu in enumerate(nodes)]
    lines += [f"  edge [ source {a} target {b} bw {bw} ]" for a, b, bw in edges]
    return "\n".join([*lines, "]"])


NODES, EDGES = [10, 10, 10, 10], [(0, 1, 10), (1, 2, 10), (2, 3, 10), (0, 3, 4)]
REQUESTS = [([6, 6], [(0, 1, 8)]), ([6, 6], [(0, 1, 8)]), ([6, 6], [(0, 1, 8)]), ([30, 1], [(0, 1, 1)])]
EVENTS = [(0, True), (1, True), (2, True), (0, False), (2, True), (3, True)]


def test_its_placements_hold_when_recomputed_and_departures_are_honoured(tmp_path: Path) -> None:
    stream = tmp_path / "small"
    (stream / "p_net").mkdir(parents=True)
    (stream / "v_nets" / "v_nets").mkdir(parents=True)
    (stream / "p_net" / "p_net.gml").write_text(gml({}, NODES, EDGES))
    for number, (cpus, links) in enumerate(REQUESTS):
        text = gml({"id": number, "arrival_time": 0, "lifetime": 5}, cpus, links)
        (stream / "v_nets" / "v_nets" / f"v_net-{number:05d}.gml").write_text(text)
    (stream / "v_nets" / "events.yaml").write_text(
        "".join(
            f"- id: {i}\n  time: {i}.0\n  type: {int(comes)}\n  v_net_id: {request}\n"
            for i, (request, comes) in enumerate(EVENTS)
        )
    )
    out = tmp_path / "placements.csv"
    command = [
        sys.executable,
        "-m",
        "lab.component_graphs",
        "--data",
        str(tmp_path),
        "--placements",
        str(out),
    ]
    subprocess.run(command, cwd=ROOT, env=os.environ | {"PYTHONPATH": "src"}, check=True, timeout=110)
    with out.open() as file:
        lines = {int(line["event"]): line for line in csv.DictReader(file)}
    recheck(lines)
    assert [lines[i]["accepted"] for i in sorted(lines)] == ["1", "1", "0", "1", "0"]
    assert lines[5]["reason"] == "node demand"


def recheck(lines: dict[int, dict[str, str]]) -> None:
    cpu = list(NODES)
    bandwidth = {frozenset((a, b)): bw for a, b, bw in EDGES}
    held: dict[int, list[tuple[object, int]]] = defaultdict(list)
    for event, (request, comes) in enumerate(EVENTS):
        if not comes:
            for where, amount in held.pop(request, []):
                if isinstance(where, int):
                    cpu[where] += amount
                else:
                    bandwidth[where] += amount  # pyright: ignore[reportArgumentType]
            continue
        if lines[event]["accepted"] == "0":
            continue
        cpus, links = REQUESTS[request]
        nodes = [int(node) for node in lines[event]["nodes"].split(";")]
        assert len(set(nodes)) == len(nodes)
        for node, need in zip(nodes, cpus, strict=True):
            cpu[node] -= need
            held[request].append((node, need))
            assert cpu[node] >= 0
        for (a, b, need), path in zip(links, lines[event]["paths"].split(";"), strict=True):
            at = nodes[a]
            for hop in path.split("|"):
                ends = frozenset(int(end) for end in hop.split("-"))
                (at,) = ends - {at}
                bandwidth[ends] -= need
                held[request].append((ends, need))
                assert bandwidth[ends] >= 0
            assert at == nodes[b]
