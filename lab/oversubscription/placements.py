"""Every placement as rows, so that another program can recompute every violation from the raw trace.

``dataset,method,stated,window_start,window_end,instance,instance_cores,host,host_cores``: times are seconds of
the trace's own clock (unix seconds where it has dates), the window is ``[window_start, window_end)``, and a
method that knows no probability has an empty ``stated``. A host is overloaded in a 300 s slot when the
sum of ``share used × instance_cores`` over its instances exceeds ``host_cores``.

The violation of a method on a set is its overloaded host-slots over all host-slots of its windows, nothing left out: where
the collector was down within a window, the placement is written once for each span that is judged, with the span for window.
The experiment on a given number of hosts is written too, its methods named ``… on N hosts``.
"""

import csv
import gzip
import io
from pathlib import Path
from types import TracebackType
from typing import Self, TextIO

from yunhe.flexible.replay import Window
from yunhe.flexible.trace import Ints

COLUMNS = (
    "dataset",
    "method",
    "stated",
    "window_start",
    "window_end",
    "instance",
    "instance_cores",
    "host",
    "host_cores",
)


class PlacementFile:
    """A CSV file being written, compressed where its name ends in ``.gz``."""

    def __init__(self, path: Path) -> None:
        self._file: TextIO = (
            io.TextIOWrapper(gzip.GzipFile(path, "wb", compresslevel=3), newline="")
            if path.suffix == ".gz"
            else path.open("w", newline="")
        )
        self._writer = csv.writer(self._file)
        self._writer.writerow(COLUMNS)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self._file.close()

    def write(
        self, method: tuple[str, str, float | None], window: Window, placement: Ints, cores: float
    ) -> None:
        """Write one placement; *method* is the set's name, the method's, and what was stated."""
        data, name, stated = method
        said = "" if stated is None else f"{stated:g}"
        sizes = window.history.request
        self._writer.writerows(
            (data, name, said, start_s, end_s, instance, f"{size:g}", int(host), f"{cores:g}")
            for start_s, end_s in window.judged_s
            for instance, size, host in zip(window.instances, sizes, placement, strict=True)
            if host >= 0
        )
