"""Streams of component graphs in the form of Virne: a folder, or a .tar.gz of one, with ``p_net/p_net.gml`` and ``v_nets``."""

import re
import tarfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from yunhe.kernel.errors import InvalidInputError
from yunhe.scheduling.decision.graphs.model import Component, Graph, GraphLink, SubstrateNetwork, network

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]]|[^\s\[\]]+')


@dataclass(frozen=True)
class StreamEvent:
    """A request comes or goes."""

    time: float
    arrives: bool
    request: int


@dataclass(frozen=True)
class WorkloadStream:
    """A network, the graphs asked for, and when they come and go."""

    name: str
    network: SubstrateNetwork
    graphs: dict[int, Graph]
    lifetimes: dict[int, float]
    events: tuple[StreamEvent, ...]


def read_stream(path: Path) -> WorkloadStream:
    """Read one stream, or say what is wrong with it."""
    try:
        found = _read_folder(path) if path.is_dir() else _read_packed(path)
    except (
        KeyError,
        OSError,
        StopIteration,
        TypeError,
        ValueError,
        tarfile.TarError,
        yaml.YAMLError,
    ) as error:
        raise InvalidInputError(
            f"{path.name} is no stream of component graphs: {type(error).__name__}: {error}.",
            remedy="It needs p_net/p_net.gml (cpu, bw), v_nets/v_nets/*.gml (cpu, bw, lifetime) and v_nets/events.yaml.",
        ) from None
    unknown = sorted({event.request for event in found.events} - found.graphs.keys())
    if unknown or not found.graphs:
        raise InvalidInputError(
            f"{path.name} has events of requests that are not there: {', '.join(map(str, unknown[:5])) or 'all'}.",
            remedy="Give each request its own file below v_nets/v_nets.",
        )
    return found


def _read_folder(path: Path) -> WorkloadStream:
    return _assemble(path.name, lambda name: (path / name).read_text(), _names(path))


def _read_packed(path: Path) -> WorkloadStream:
    with tarfile.open(path) as archive:
        members = {_inner(member.name): member for member in archive.getmembers() if member.isfile()}

        def read(name: str) -> str:
            file = archive.extractfile(members[name])
            if file is None:
                raise FileNotFoundError(name)
            return file.read().decode()

        return _assemble(path.name.removesuffix(".tar.gz"), read, sorted(members))


def _names(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def _inner(name: str) -> str:
    return name.removeprefix("./").partition("/")[2]


def _assemble(name: str, read: Callable[[str], str], files: list[str]) -> WorkloadStream:
    physical = parse_gml(read("p_net/p_net.gml"))
    graphs: dict[int, Graph] = {}
    lifetimes: dict[int, float] = {}
    for file in files:
        if file.startswith("v_nets/v_nets/") and file.endswith(".gml"):
            virtual = parse_gml(read(file))
            number = int(virtual["id"])
            graphs[number] = _graph(number, virtual)
            lifetimes[number] = float(virtual["lifetime"])
    listed: list[dict[str, Any]] = yaml.load(read("v_nets/events.yaml"), Loader=yaml.CSafeLoader)
    listed.sort(key=lambda event: int(event["id"]))
    events = tuple(StreamEvent(float(e["time"]), int(e["type"]) == 1, int(e["v_net_id"])) for e in listed)
    return WorkloadStream(name, _network(physical), graphs, lifetimes, events)


def _network(gml: dict[str, Any]) -> SubstrateNetwork:
    nodes = {str(node["id"]): (float(node["cpu"]), 0.0) for node in gml["node"]}
    links = [(str(edge["source"]), str(edge["target"]), float(edge["bw"])) for edge in gml["edge"]]
    return network(nodes, links)


def _graph(number: int, gml: dict[str, Any]) -> Graph:
    return Graph(
        name=str(number),
        components=tuple(Component(name=str(n["id"]), cpu=float(n["cpu"])) for n in gml["node"]),
        links=tuple(
            GraphLink(source=str(e["source"]), target=str(e["target"]), bandwidth=float(e["bw"]))
            for e in gml.get("edge", [])
        ),
    )


def parse_gml(text: str) -> dict[str, Any]:
    """Read the graph of a GML file; ``node`` and ``edge`` are always lists."""
    tokens = iter(_TOKEN.findall(text))
    document = _block(tokens)
    return document["graph"]


def _block(tokens: Iterator[str]) -> dict[str, Any]:
    block: dict[str, Any] = {}
    for key in tokens:
        if key == "]":
            break
        word = next(tokens)
        value: Any = _block(tokens) if word == "[" else word.strip('"')
        if key in ("node", "edge"):
            block.setdefault(key, []).append(value)
        else:
            block[key] = value
    return block
