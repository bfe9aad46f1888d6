"""What a task sends along: its working directory and its files, each as one archive."""

import posixpath
import shutil
import tempfile
from pathlib import Path

from yunhe.entrypoints.cli.screen import spinner
from yunhe.entrypoints.cli.task_files import local
from yunhe.entrypoints.client import Client
from yunhe.kernel.ids import ProjectId
from yunhe.trading.applications.model import UploadedMount
from yunhe.trading.demand.amounts import inner_path
from yunhe.trading.demand.model import Task


def sent_mounts(client: Client, project_id: ProjectId, task: Task) -> tuple[UploadedMount, ...]:
    """Send what *task* needs and return where each archive belongs; what the server has is not sent again."""
    wanted = [(".", local(task.workdir))] if task.workdir is not None else []
    wanted += [(inner_path(target), local(source)) for target, source in task.file_mounts.items()]
    mounts: list[UploadedMount] = []
    for path, source in wanted:
        with spinner(f"sending {source}"):
            mounts.append(_sent(client, project_id, path, source))
    return tuple(mounts)


def _sent(client: Client, project_id: ProjectId, path: str, source: Path) -> UploadedMount:
    if source.is_dir():
        return UploadedMount(path=path, blob_id=client.upload_directory(project_id, source))
    # An archive is unpacked into a directory, so a file travels in one, under the name it shall have.
    folder, name = posixpath.split(path)
    with tempfile.TemporaryDirectory(prefix="yunhe-") as staging:
        shutil.copy2(source, Path(staging) / name)
        return UploadedMount(path=folder or ".", blob_id=client.upload_directory(project_id, Path(staging)))
