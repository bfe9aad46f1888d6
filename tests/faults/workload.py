"""The jobs of a campaign: each writes a line when it starts and one when it ends, into a file of that attempt."""

from enum import StrEnum
from pathlib import Path

from yunhe.kernel.ids import BlobId
from yunhe.kernel.resources import Resources
from yunhe.trading.applications.model import Submission, UploadedMount
from yunhe.trading.demand.model import ResourceSpec, Task

RETRIES = 8
"""Enough that no job of a campaign runs out of them."""
WORD = "canal"
SAVES = """export lines
sh -c 'trap "sleep 0.5; echo saved > result; echo saved >> \\"$lines\\"; exit 0" TERM
echo ready >> "$lines"; while :; do sleep 0.2; done'"""
GROWN = Resources(cpu_millis=200, memory_mib=96)


class Kind(StrEnum):
    PLAIN = "plain"
    FILES = "files"
    """Has a file mounted, and ends only if it is there and whole."""
    OUTPUTS = "outputs"
    STOPPED = "stopped"
    """Runs until somebody stops it; then its program, which is below a shell, saves its work."""
    RESIZED = "resized"
    """Runs long enough to be resized."""


CYCLE = (
    Kind.PLAIN,
    Kind.FILES,
    Kind.STOPPED,
    Kind.OUTPUTS,
    Kind.RESIZED,
    Kind.PLAIN,
    Kind.FILES,
    Kind.PLAIN,
    Kind.OUTPUTS,
    Kind.PLAIN,
)


def kind_of(number: int) -> Kind:
    return CYCLE[number % len(CYCLE)]


def name_of(number: int) -> str:
    return f"job-{number:04d}"


def submission(number: int, lines: Path, archive: BlobId, seconds: float) -> Submission:
    kind = kind_of(number)
    script = [
        "#!/bin/sh",
        f'lines="{lines}/{name_of(number)}.$YUNHE_ALLOCATION_ID"',
        'echo start >> "$lines"',
        f"echo {name_of(number)}",
    ]
    if kind is Kind.FILES:
        script.append(f'[ "$(cat data/word)" = {WORD} ] || exit 9')
    if kind is Kind.OUTPUTS:
        script.append(f"echo {name_of(number)} > result")
    if kind is Kind.STOPPED:
        script.append(SAVES)
    script += [f"sleep {duration_s(kind, seconds):.2f}", 'echo end >> "$lines"']
    task = Task(
        name=name_of(number),
        run="\n".join(script) + "\n",
        retries=RETRIES,
        resources=ResourceSpec(cpus=0.1, memory="64MB"),
        outputs=("result",) if kind in (Kind.OUTPUTS, Kind.STOPPED) else (),
        file_mounts={"data": "data"} if kind is Kind.FILES else {},
    )
    mounts = (UploadedMount(path="data", blob_id=archive),) if kind is Kind.FILES else ()
    return Submission(task=task, mounts=mounts)


def duration_s(kind: Kind, seconds: float) -> float:
    return {Kind.STOPPED: 3600.0, Kind.RESIZED: 2.0 + seconds}.get(kind, seconds)


def lines_of(folder: Path) -> dict[str, list[str]]:
    """Return what every attempt has written, by allocation."""
    return {path.name.partition(".")[2]: path.read_text().split() for path in folder.iterdir()}
