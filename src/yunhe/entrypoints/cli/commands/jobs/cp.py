"""``yunhe cp``: what a job left, or has so far."""

import tempfile
from pathlib import Path
from typing import Annotated

import typer

from yunhe.entrypoints.cli.session.connection import connected, find_job
from yunhe.entrypoints.cli.session.extract import extract
from yunhe.entrypoints.cli.terminal.screen import PlainApp, bytes_text, err, spinner
from yunhe.kernel.errors import InvalidInputError, NotFoundError
from yunhe.scheduling.orchestration.jobs.states import FINAL
from yunhe.trading.demand.amounts import inner_path

app = PlainApp()


@app.command()
def cp(
    source: Annotated[str, typer.Argument(metavar="JOB:PATH", help="A job and a path in its directory.")],
    destination: Annotated[Path, typer.Argument(metavar="DEST", help="A local file or directory.")],
) -> None:
    """Fetch a job's outputs once it has ended, or any of its files while it runs.

    Without a path, everything the job left as outputs. Nothing is ever written outside DEST.

    Examples:
      yunhe cp word-count:counts.txt .
      yunhe cp job_06d1t8k2m4: results/
      yunhe cp train:checkpoints/*.pt .
    """
    called, colon, path = source.partition(":")
    if not colon or not called:
        raise InvalidInputError(
            f"{source!r} does not name a job and a path.",
            remedy="Fetch with `yunhe cp JOB:PATH DEST`; send files with the task's workdir or file_mounts.",
        )
    wanted = _checked(path) if path else ""
    with connected() as client, tempfile.TemporaryDirectory(prefix="yunhe-") as folder:
        job = find_job(client, called)
        archive = Path(folder) / "fetched.tar.gz"
        with spinner(f"fetching {source}"):
            if job.state in FINAL:
                client.outputs(job.id, archive)
            else:
                client.files(job.id, [wanted or "*"], archive)
        written = extract(archive, wanted, destination)
        if not written:
            kept = "among its outputs" if job.state in FINAL else "in its directory"
            raise NotFoundError(
                f"{job.name} has no {path or 'file'} {kept}.",
                remedy="List what to keep under outputs in the task; `yunhe cp JOB: DEST` fetches all of it.",
            )
    size = sum(file.stat().st_size for file in written if file.is_file())
    err().print(f"✓ {len(written)} file{'s' * (len(written) > 1)}, {bytes_text(size)} → {destination}")


def _checked(path: str) -> str:
    try:
        return inner_path(path)
    except ValueError as error:
        raise InvalidInputError(f"{path}: {error}.", remedy="Give a path in the job's directory.") from None
