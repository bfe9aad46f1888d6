"""Place every stream of a folder in the order of its events and print what share was accepted.

python -m lab.component_graphs --data FOLDER [--tries 30] [--seed 0] [--placements FILE]
"""

import argparse
import csv
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from yunhe.scheduling.decision.graphs.model import Embedded, GraphDecision
from yunhe.scheduling.decision.graphs.place import Search
from yunhe.simulator.graphs import replay
from yunhe.simulator.streams import StreamEvent, WorkloadStream, read_stream

DEFAULT_DATA = Path(__file__).resolve().parents[3] / "shared" / "data" / "virne-streams"
COLUMNS = ("stream", "event", "time", "request", "accepted", "reason", "nodes", "paths")


class Writer(Protocol):
    """What rows are written with."""

    def writerow(self, row: list[object], /) -> object:
        """Write one row."""
        ...


def main() -> None:
    """Run the experiment."""
    parser = argparse.ArgumentParser(prog="python -m lab.component_graphs", description=__doc__)
    parser.add_argument("--data", type=Path, default=DEFAULT_DATA, help="folder with streams")
    parser.add_argument("--tries", type=int, default=Search().tries)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--placements", type=Path, help="write every arrival as CSV, for another program to check"
    )
    arguments = parser.parse_args()
    paths = find_streams(arguments.data)
    if not paths:
        parser.error(f"no stream in {arguments.data}: expected *.tar.gz or folders with p_net/p_net.gml")
    print(
        f"{'stream':10} {'tries':>5} {'requests':>8} {'accepted':>9} {'revenue':>8} {'r/c':>6} {'ms p50':>7} {'ms p99':>7}"
    )
    with _writer(arguments.placements) as writer:
        for path in paths:
            for tries in sorted({1, arguments.tries}):
                run(read_stream(path), tries, arguments.seed, writer if tries == arguments.tries else None)


@contextmanager
def _writer(path: Path | None) -> Generator[Writer | None]:
    if path is None:
        yield None
        return
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(COLUMNS)
        yield writer


def find_streams(folder: Path) -> list[Path]:
    """Return every stream in a folder: packed ones, and folders with a network in them."""
    packed = sorted(folder.glob("*.tar.gz"))
    plain = sorted(path.parent.parent for path in folder.glob("*/p_net/p_net.gml"))
    return [*packed, *plain]


def run(stream: WorkloadStream, tries: int, seed: int, writer: Writer | None) -> float:
    """Replay one stream, print its line, and return the accepted share."""

    def note(number: int, event: StreamEvent, answer: GraphDecision) -> None:
        if writer is not None:
            writer.writerow(_row(stream, (number, event.time, event.request), answer))

    found = replay(stream, tries=tries, seed=seed, listener=note)
    print(
        f"{found.stream:10} {tries:5} {found.requests:8} {found.accepted_share:9.3f} {found.revenue_share:8.3f}"
        f" {found.revenue_to_cost:6.3f} {found.ms_p50:7.2f} {found.ms_p99:7.2f}",
        flush=True,
    )
    return found.accepted_share


def _row(stream: WorkloadStream, event: tuple[int, float, int], answer: object) -> list[object]:
    number, at, request = event
    if not isinstance(answer, Embedded):
        return [stream.name, number, at, request, 0, getattr(answer, "constraint", ""), "", ""]
    names = stream.network.names
    ends = stream.network.ends
    walks = [
        "|".join(f"{names[int(ends[k][0])]}-{names[int(ends[k][1])]}" for k in path) for path in answer.paths
    ]
    return [stream.name, number, at, request, 1, "", ";".join(answer.nodes), ";".join(walks)]


if __name__ == "__main__":
    main()
