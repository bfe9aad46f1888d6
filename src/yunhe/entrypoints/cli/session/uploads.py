"""What a task sends along: its working directory and its files, as one archive per directory they belong in."""

import posixpath
import shutil
import tempfile
from pathlib import Path

import msgspec

from yunhe.entrypoints.cli.session.task_files import local
from yunhe.entrypoints.cli.terminal.screen import spinner
from yunhe.entrypoints.client import Client
from yunhe.kernel.ids import BlobId, ProjectId
from yunhe.trading.applications.model import Submission, UploadedMount
from yunhe.trading.demand.amounts import inner_path
from yunhe.trading.demand.model import Task

WHOLE = ""
"""The name of a source whose contents are meant, not the source itself."""

Sources = dict[str, list[tuple[str, Path]]]
"""Directory of the job → what belongs there: a directory's contents, or a file under a name."""


def submission_of(client: Client, project_id: ProjectId, task: Task) -> Submission:
    """Send what *task* needs and return it ready to submit; what the server has is not sent again."""
    mounts: list[UploadedMount] = []
    sources = sources_of(task)
    for path, content in sources.items():
        with spinner(f"sending {', '.join(str(source) for _, source in content)}"):
            mounts.append(UploadedMount(path=path, blob_id=_sent(client, project_id, content)))
    told = {
        path: ", ".join(str(source) for _, source in content)
        for path, content in sources.items()
        if path != "." or task.workdir is None
    }
    return Submission(
        task=msgspec.structs.replace(task, file_mounts=told), project_id=project_id, mounts=tuple(mounts)
    )


def sources_of(task: Task) -> Sources:
    """Return what goes where. Archives are unpacked into directories, so a file goes to the one it lies in."""
    sources: Sources = {}
    if task.workdir is not None:
        sources["."] = [(WHOLE, local(task.workdir))]
    for target, text in task.file_mounts.items():
        path, source = inner_path(target), local(text)
        if source.is_dir():
            sources.setdefault(path, []).append((WHOLE, source))
        else:
            folder, name = posixpath.split(path)
            sources.setdefault(folder or ".", []).append((name, source))
    return sources


def _sent(client: Client, project_id: ProjectId, content: list[tuple[str, Path]]) -> BlobId:
    if len(content) == 1 and content[0][0] == WHOLE:
        return client.upload_directory(project_id, content[0][1])
    with tempfile.TemporaryDirectory(prefix="yunhe-") as folder:
        staging = Path(folder)
        for name, source in content:
            if name == WHOLE:
                shutil.copytree(source, staging, symlinks=True, dirs_exist_ok=True)
            else:
                shutil.copy2(source, staging / name)
        return client.upload_directory(project_id, staging)
