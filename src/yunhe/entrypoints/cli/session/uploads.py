"""What a task sends along: its working directory and its files, as one archive per directory they belong in."""

import hashlib
import posixpath
from collections.abc import Iterable, Sequence

import msgspec
import typer
from rich.text import Text

from yunhe.entrypoints.cli.session.task_files import local
from yunhe.entrypoints.cli.terminal.follow import INTERRUPTED
from yunhe.entrypoints.cli.terminal.progress import byte_bar
from yunhe.entrypoints.cli.terminal.screen import bytes_text, err
from yunhe.entrypoints.client import Client
from yunhe.entrypoints.client.async_client import BATCH_BYTES, BATCHES_IN_A_ROW
from yunhe.entrypoints.client.ignoring import LeftOut
from yunhe.entrypoints.client.tree import (
    WHOLE,
    Chunk,
    Source,
    Tree,
    TreeEntry,
    at_once,
    body_of,
    read_tree,
    scan,
    unread_bytes,
)
from yunhe.kernel.ids import BlobId, ProjectId
from yunhe.runtime.settings import default_home
from yunhe.trading.applications.model import Submission, UploadedMount
from yunhe.trading.demand.amounts import inner_path
from yunhe.trading.demand.model import Task

Sources = dict[str, list[Source]]
"""Directory of the job → what belongs there: a directory's contents, or a file under a name."""


def submissions_of(
    client: Client, project_id: ProjectId, tasks: Iterable[Task], *, all_files: bool = False
) -> list[Submission]:
    """Send what *tasks* need and return them ready to submit; what the project has is not sent again."""
    sent: dict[tuple[object, ...], BlobId] = {}
    submissions: list[Submission] = []
    for task in tasks:
        mounts: list[UploadedMount] = []
        sources = sources_of(task)
        for path, content in sources.items():
            which = (path == ".", *content)
            if which not in sent:
                entries, left_out = _scan(task, path, content, all_files=all_files)
                _tell(left_out, content)
                sent[which] = _sent(client, project_id, content, entries)
            mounts.append(UploadedMount(path=path, blob_id=sent[which]))
        told = {
            path: _named(content) for path, content in sources.items() if path != "." or task.workdir is None
        }
        task_with_names = msgspec.structs.replace(task, file_mounts=told)
        submissions.append(Submission(task=task_with_names, project_id=project_id, mounts=tuple(mounts)))
    return submissions


def tell_left_out(tasks: Iterable[Task], *, all_files: bool) -> None:
    """Say what would not be sent of what tasks name and is here."""
    told: set[tuple[Source, ...]] = set()
    for task in tasks:
        for path, content in sources_of(task).items():
            here = tuple(source for source in content if source[1].exists())
            if here not in told:
                _tell(_scan(task, path, here, all_files=all_files)[1], here)
                told.add(here)


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


def _scan(
    task: Task, path: str, content: Sequence[Source], *, all_files: bool
) -> tuple[list[TreeEntry], LeftOut]:
    """Return what is in *content*; what a repository ignores above a directory counts for the workdir alone."""
    return scan(content, all_files=all_files, of_repository=path == "." and task.workdir is not None)


def _tell(left_out: LeftOut, content: Sequence[Source]) -> None:
    if left_out.files:
        more = "more than " * left_out.uncounted
        count = f"{more}{left_out.files} file{'s' * (left_out.files != 1)}, {bytes_text(left_out.size_bytes)}"
        err().print(
            Text(f"left out of {_named(content)}: {left_out.names()} ({count}); --all-files sends everything")
        )


def _named(content: Sequence[Source]) -> str:
    return ", ".join(str(source) for _, source in content)


def _sent(
    client: Client, project_id: ProjectId, content: Sequence[Source], entries: list[TreeEntry]
) -> BlobId:
    cache = default_home() / "cache" / f"{hashlib.sha256(_cache_key(content)).hexdigest()[:32]}.digests"
    unread = unread_bytes(entries, cache) if err().is_terminal else 0
    with byte_bar("reading", _named(content), unread) as advance:
        tree = read_tree(entries, cache, advance)
    return _send(client, project_id, tree, _named(content))


def _cache_key(content: Sequence[Source]) -> bytes:
    return "\0".join(f"{name}\0{source.resolve()}" for name, source in content).encode(
        errors="surrogateescape"
    )


def _send(client: Client, project_id: ProjectId, tree: Tree, name: str) -> BlobId:
    """Send what the project lacks, and return the archive."""
    made = client.put_together(project_id, tree.digests)
    if made.blob_id is not None:
        return made.blob_id
    total = sum(chunk.size_bytes for batch in tree.batches(made.missing, BATCH_BYTES) for chunk in batch)
    sent = 0
    with byte_bar("sending", name, total) as advance:
        try:
            while made.blob_id is None:
                for size in _send_some(client, project_id, tree, made.missing):
                    advance(size)
                    sent += size
                made = client.put_together(project_id, tree.digests)
        except KeyboardInterrupt:
            err().print(
                Text(
                    f"Stopped; {bytes_text(sent)} of {bytes_text(total)} were sent and nothing was submitted."
                    " Run it again: what was sent is not sent again."
                )
            )
            raise typer.Exit(INTERRUPTED) from None
    return made.blob_id


def _send_some(client: Client, project_id: ProjectId, tree: Tree, missing: Sequence[str]) -> Iterable[int]:
    """Send chunks that are missing, several requests at once; yield the size of what has arrived."""

    def send(batch: Sequence[Chunk]) -> int:
        client.put_chunks(project_id, body_of(batch))
        return sum(chunk.size_bytes for chunk in batch)

    yield from at_once(send, tree.batches(missing, BATCH_BYTES)[:BATCHES_IN_A_ROW])
