"""SkyPilot's ``file_mounts``, ``volumes`` and ``workdir`` → ours: local files are sent, the rest is held back."""

import re
import shlex
from typing import cast

from yunhe.trading.demand.amounts import inner_path
from yunhe.trading.demand.reader import Document
from yunhe.trading.demand.skypilot.cases import STORE_FIELDS
from yunhe.trading.demand.skypilot.notes import FieldNotes

_ADDRESS = re.compile(r"[a-z][a-z0-9+.-]*://", re.IGNORECASE)
_MODES = ("mount", "copy", "mount_cached")


def translated_mounts(notes: FieldNotes, value: object) -> Document:
    """Return the mounts that are local files; notes say what becomes of the others."""
    mounts: Document = {}
    for target, source in notes.mapping("file_mounts", value).items():
        path = f"file_mounts.{target}"
        if isinstance(source, dict):
            _store(notes, path, target, notes.mapping(path, source, STORE_FIELDS), mounts)
        elif isinstance(source, str) and _ADDRESS.match(source):
            notes.say("file_mounts.remote", path, source)
        else:
            _local(notes, path, target, source, mounts)
    return mounts


def _local(
    notes: FieldNotes, path: str, target: str, source: object, mounts: Document, case: str = "local"
) -> None:
    if _is_outside(target):
        notes.say(
            "file_mounts.absolute", path, source, target=target if target.startswith("/") else f"/{target}"
        )
        return
    notes.say(f"file_mounts.{case}", path, source)
    mounts[target] = source


def _is_outside(target: str) -> bool:
    if not target.startswith(("/", "~")):
        return False
    try:
        inner_path(target)
    except ValueError:
        return True
    return False


def _store(notes: FieldNotes, path: str, target: str, entries: Document, mounts: Document) -> None:
    mode = str(entries.get("mode") or "mount").lower()
    if mode not in _MODES:
        notes.refuse(f"{path}.mode", "must be MOUNT, COPY or MOUNT_CACHED", entries["mode"])
        return
    source = entries.get("source")
    local = isinstance(source, str) and not _ADDRESS.match(source) and "$" not in source
    if str(entries.get("store") or "").lower() == "volume":
        notes.say("file_mounts.volume", path, entries)
    elif mode == "copy" and local:
        _local(notes, path, target, source, mounts, "copy")
    else:
        notes.say("file_mounts.store", path, entries)


def translated_volumes(notes: FieldNotes, value: object) -> None:
    """Hold back named volumes, one by one."""
    for target, volume in notes.mapping("volumes", value).items():
        notes.say("volumes", f"volumes.{target}", volume)


def translated_workdir(notes: FieldNotes, value: object, out: Document) -> str:
    """Return what to run before ``setup`` so that the job starts in the working directory."""
    if not isinstance(value, dict):
        notes.say("workdir", "workdir", value)
        out["workdir"] = value
        return ""
    entries = notes.mapping("workdir", cast("object", value), ("url", "ref"))
    if not isinstance(entries.get("url"), str) or not entries["url"]:
        notes.refuse("workdir.url", "must be the address of a repository", entries.get("url"))
        return ""
    notes.say("workdir.git", "workdir", entries)
    url, ref = shlex.quote(str(entries["url"])), shlex.quote(str(entries.get("ref") or "HEAD"))
    return f"git init -q . && git fetch -q --depth 1 -- {url} {ref} && git checkout -q FETCH_HEAD || exit 1\n"
