"""What of a directory is not sent: what ``.gitignore`` and ``.yunheignore`` name, and what can be made again."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

if TYPE_CHECKING:  # loaded where there is a file to read: most commands need none
    from pathspec import GitIgnoreSpec

IGNORE_FILES = (".gitignore", ".yunheignore")
"""In this order: what the second says takes precedence."""
USUAL = frozenset({".git", "__pycache__", ".venv", "node_modules", ".DS_Store"})
"""Left out unless a rule takes it back in."""
MOST_COUNTED = 10_000
"""So many files that are left out are looked at; of more, only that there are more."""
_NAMED = 3


class LeftOut(msgspec.Struct):
    """What is not sent."""

    paths: list[str] = []
    """Files, and directories with all that is in them; a directory ends in a slash."""
    files: int = 0
    size_bytes: int = 0
    uncounted: bool = False
    """Whether there are more files than were counted."""

    def add(self, path: str, source: Path, *, is_dir: bool) -> None:
        """Count a file, or a directory with all that is in it."""
        self.paths.append(f"{path}/" if is_dir else path)
        for state in _states(source) if is_dir else iter([source.lstat()]):
            if self.files >= MOST_COUNTED:
                self.uncounted = True
                return
            self.files += 1
            self.size_bytes += state.st_size

    def names(self) -> str:
        """Return the first of what was left out, in a few words."""
        more = len(self.paths) - _NAMED
        return ", ".join(self.paths[:_NAMED]) + (f" and {more} more" if more > 0 else "")


class _Rules(NamedTuple):
    base: str
    spec: "GitIgnoreSpec"


class Ignoring:
    """The rules that hold in one directory; those of deeper directories come on top."""

    def __init__(self, rules: tuple[_Rules, ...] = ()) -> None:
        self._rules = rules

    def inside(self, directory: str) -> "Ignoring":
        """Return the rules that hold in *directory*, with those of its own files."""
        lines = [line for name in IGNORE_FILES for line in _lines(Path(directory, name))]
        if not lines:
            return self
        from pathspec import GitIgnoreSpec  # noqa: PLC0415 - as said above

        return Ignoring((*self._rules, _Rules(directory, GitIgnoreSpec.from_lines(lines))))

    def leaves_out(self, path: str, *, is_dir: bool) -> bool:
        """Return whether *path* is not sent; the deepest rule that says something decides."""
        for base, spec in reversed(self._rules):
            found = spec.check_file(path[len(base) + 1 :] + "/" * is_dir).include
            if found is not None:
                return found
        return path.rpartition("/")[2] in USUAL


def rules_above(directory: Path) -> Ignoring:
    """Return the rules of the repository that *directory* lies in; none where it leaves the directory itself out."""
    above = [directory, *directory.parents]
    root = next((number for number, one in enumerate(above) if (one / ".git").exists()), 0)
    rules = Ignoring()
    for number in range(root, 0, -1):
        rules = rules.inside(str(above[number]))
        if rules.leaves_out(str(above[number - 1]), is_dir=True):
            return Ignoring()
    return rules


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(errors="surrogateescape").splitlines()
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return []


def _states(directory: Path) -> Iterator[os.stat_result]:
    for folder, _, names in os.walk(directory):
        for name in names:
            yield Path(folder, name).lstat()
