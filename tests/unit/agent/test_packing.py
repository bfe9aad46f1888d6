"""Patterns find what they mean, in time that grows with the tree and not with the pattern; depth stops nothing."""

import glob
import io
import os
import tarfile
import time
from pathlib import Path

import pytest

from yunhe.agent.files.packing import matches, pack
from yunhe.agent.files.removal import remove_tree
from yunhe.agent.protocol.refusals import TOO_LARGE, Refusal


def found(work: Path, *patterns: str) -> list[str]:
    return list(matches(str(work), frozenset(tuple(pattern.split("/")) for pattern in patterns)))


def make_tree(work: Path, *names: str) -> None:
    for name in names:
        (work / name).parent.mkdir(parents=True, exist_ok=True)
        (work / name).write_text(name)


@pytest.mark.parametrize(
    "pattern", ["*", "*.txt", "a/*", "**/*.txt", "a/**/d.txt", "**", "**/b/**", "a/b", "nothing", "?/[bc]"]
)
def test_patterns_match_as_a_shell_would(tmp_path: Path, pattern: str) -> None:
    make_tree(tmp_path, "x.txt", "a/y.txt", "a/b/z.txt", "a/b/c/d.txt", "b/q", "c.log")
    expected: set[str] = set()
    for name in glob.glob(pattern, root_dir=tmp_path, recursive=True):  # noqa: PTH207 - the oracle
        top = tmp_path / name.rstrip("/")
        expected |= {str(path.relative_to(tmp_path)) for path in (top, *top.rglob("*")) if path != tmp_path}
    names = found(tmp_path, pattern)
    assert set(names) == expected
    assert len(names) == len(set(names)), "something is packed twice"


def test_many_stars_take_no_longer_than_one(tmp_path: Path) -> None:
    for number in range(300):
        make_tree(tmp_path, *[f"{number % 7}/{number % 5}/{number % 3}/{number}/f{n}" for n in range(3)])
    began = time.process_time()
    assert found(tmp_path, "/".join(["**"] * 30 + ["nothing"])) == []
    assert time.process_time() - began < 5


def nest(folder: Path, depth: int) -> None:
    """Make *depth* directories, each in the one before."""
    here = os.open(folder, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir("d", dir_fd=here)
        below = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)


def test_a_tree_that_is_too_deep_is_refused_and_not_tried_again(tmp_path: Path) -> None:
    nest(tmp_path, 3000)
    try:
        with (tmp_path / "out").open("wb") as output, pytest.raises(Refusal) as refused:
            pack(str(tmp_path), ["d"], os.dup(output.fileno()))
        assert refused.value.code == TOO_LARGE
    finally:
        remove_tree(str(tmp_path / "d"))
    assert not (tmp_path / "d").exists()


def test_a_deep_tree_with_files_and_closed_directories_is_removed(tmp_path: Path) -> None:
    top = tmp_path / "top"
    make_tree(top, "a/b/c", "a/e/f", "g")
    (top / "link").symlink_to(tmp_path)
    nest(top, 2000)
    (top / "a" / "b").chmod(0)
    (tmp_path / "kept").write_text("kept")
    remove_tree(str(top))
    assert not top.exists()
    assert (tmp_path / "kept").read_text() == "kept"


def test_what_is_packed_is_what_is_there(tmp_path: Path) -> None:
    make_tree(tmp_path, "a/one", "a/two", "b/three")
    (tmp_path / "a" / "near").symlink_to("one")
    (tmp_path / "a" / "far").symlink_to("/etc/passwd")
    reader, writer = os.pipe()
    pack(str(tmp_path), ["a", "a/*"], writer)
    with os.fdopen(reader, "rb") as file, tarfile.open(fileobj=io.BytesIO(file.read()), mode="r:gz") as tar:
        assert tar.getnames() == ["a", "a/near", "a/one", "a/two"]
