"""The same files make the same archive, and none reaches out of its directory."""

import os
import tarfile
from pathlib import Path

import pytest

from yunhe.entrypoints.client import pack
from yunhe.kernel.errors import InvalidInputError


def make_tree(root: Path) -> Path:
    (root / "sub").mkdir(parents=True)
    (root / "run.sh").write_text("echo hi\n")
    (root / "run.sh").chmod(0o755)
    (root / "sub" / "data.txt").write_text("1\n")
    (root / "link").symlink_to("sub/data.txt")
    (root / ".git").mkdir()
    (root / ".git" / "HEAD").write_text("ref\n")
    return root


def test_equal_trees_made_at_other_times_and_places_have_equal_digests(tmp_path: Path) -> None:
    one = make_tree(tmp_path / "one")
    two = make_tree(tmp_path / "two")
    for path in (two / "run.sh", two / "sub"):
        os.utime(path, (1, 1))
    (two / "sub" / "data.txt").chmod(0o600)
    assert pack(one, tmp_path / "1.tgz").digest == pack(two, tmp_path / "2.tgz").digest


def test_a_changed_byte_or_mode_changes_the_digest(tmp_path: Path) -> None:
    tree = make_tree(tmp_path / "tree")
    first = pack(tree, tmp_path / "1.tgz").digest
    (tree / "run.sh").chmod(0o644)
    second = pack(tree, tmp_path / "2.tgz").digest
    (tree / "sub" / "data.txt").write_text("2\n")
    assert len({first, second, pack(tree, tmp_path / "3.tgz").digest}) == 3


def test_an_archive_has_the_files_and_not_the_repository(tmp_path: Path) -> None:
    archive = pack(make_tree(tmp_path / "tree"), tmp_path / "a.tgz")
    with tarfile.open(archive.path) as tar:
        assert tar.getnames() == ["link", "run.sh", "sub", "sub/data.txt"]
        assert tar.getmember("run.sh").mode == 0o755
        assert {member.uid for member in tar.getmembers()} == {0}


def test_one_file_is_packed_under_its_name(tmp_path: Path) -> None:
    archive = pack(make_tree(tmp_path / "tree") / "run.sh", tmp_path / "a.tgz")
    with tarfile.open(archive.path) as tar:
        assert tar.getnames() == ["run.sh"]


def test_a_link_that_leads_out_is_refused(tmp_path: Path) -> None:
    tree = make_tree(tmp_path / "tree")
    (tree / "sub" / "out").symlink_to("../../secret")
    with pytest.raises(InvalidInputError, match="leads out"):
        pack(tree, tmp_path / "a.tgz")


def test_what_does_not_exist_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="does not exist"):
        pack(tmp_path / "nowhere", tmp_path / "a.tgz")
