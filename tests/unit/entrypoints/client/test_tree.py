"""The same files are the same chunks, few chunks change with few bytes, and none reaches out of its directory."""

import gzip
import io
import os
import tarfile
import time
from pathlib import Path
from random import Random

import pytest

from yunhe.entrypoints.client import tree as tree_module
from yunhe.entrypoints.client.tree import (
    LARGE_BYTES,
    MOST_CUT_BYTES,
    WHOLE,
    Tree,
    body_of,
    read_tree,
    scan,
    unread_bytes,
)
from yunhe.kernel.errors import InvalidInputError
from yunhe.kernel.units import MIB


def tree_of(source: Path, cache: Path | None = None) -> Tree:
    return read_tree(scan([(WHOLE, source)])[0], cache)


def opened(tree: Tree) -> tarfile.TarFile:
    packed = b"".join(chunk.member() for chunk in tree.chunks)
    return tarfile.open(fileobj=io.BytesIO(gzip.decompress(packed)))


def make_tree(root: Path) -> Path:
    (root / "sub").mkdir(parents=True)
    (root / "run.sh").write_text("echo hi\n")
    (root / "run.sh").chmod(0o755)
    (root / "sub" / "data.txt").write_text("1\n")
    (root / "link").symlink_to("sub/data.txt")
    (root / ".git").mkdir()
    (root / ".git" / "HEAD").write_text("ref\n")
    return root


def test_equal_trees_made_at_other_times_and_places_have_equal_chunks(tmp_path: Path) -> None:
    one = make_tree(tmp_path / "one")
    two = make_tree(tmp_path / "two")
    for path in (two / "run.sh", two / "sub"):
        os.utime(path, (1, 1))
    (two / "sub" / "data.txt").chmod(0o600)
    assert tree_of(one).digests == tree_of(two).digests


def test_a_changed_byte_or_mode_changes_the_chunks(tmp_path: Path) -> None:
    tree = make_tree(tmp_path / "tree")
    first = tree_of(tree).digests
    (tree / "run.sh").chmod(0o644)
    second = tree_of(tree).digests
    (tree / "sub" / "data.txt").write_text("2\n")
    assert len({first, second, tree_of(tree).digests}) == 3


def test_an_archive_has_the_files_and_not_the_repository(tmp_path: Path) -> None:
    with opened(tree_of(make_tree(tmp_path / "tree"))) as tar:
        assert tar.getnames() == ["link", "run.sh", "sub", "sub/data.txt"]
        assert tar.getmember("run.sh").mode == 0o755
        assert {member.uid for member in tar.getmembers()} == {0}


def test_one_file_is_packed_under_its_name_or_another(tmp_path: Path) -> None:
    script = make_tree(tmp_path / "tree") / "run.sh"
    with opened(tree_of(script)) as tar:
        assert tar.getnames() == ["run.sh"]
    with opened(read_tree(scan([(WHOLE, script.parent), ("b.sh", script)])[0])) as tar:
        assert tar.getnames() == ["b.sh", "link", "run.sh", "sub", "sub/data.txt"]


def test_a_link_that_leads_out_is_refused(tmp_path: Path) -> None:
    tree = make_tree(tmp_path / "tree")
    (tree / "sub" / "out").symlink_to("../../secret")
    with pytest.raises(InvalidInputError, match="leads out"):
        tree_of(tree)


def test_what_does_not_exist_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="does not exist"):
        tree_of(tmp_path / "nowhere")


def changed_bytes(before: Tree, after: Tree) -> int:
    known = {chunk.digest for chunk in before.chunks}
    return sum(chunk.size_bytes for chunk in after.chunks if chunk.digest not in known)


@pytest.mark.parametrize("inserted", [False, True], ids=["changed", "inserted"])
def test_a_byte_of_a_large_file_changes_a_chunk_or_two_of_it(tmp_path: Path, inserted: bool) -> None:
    data = Random(1).randbytes(20 * MIB)
    (tmp_path / "large").write_bytes(data)
    before = tree_of(tmp_path)
    (tmp_path / "large").write_bytes(data[:9_000_000] + b"!" + data[9_000_000 + (not inserted) :])
    after = tree_of(tmp_path)
    header_bytes = 2 * 1536  # the header with the size, and the end
    assert 0 < changed_bytes(before, after) <= 2 * MOST_CUT_BYTES + header_bytes
    assert max(chunk.size_bytes for chunk in after.chunks) <= MOST_CUT_BYTES
    with opened(after) as tar:
        large = tar.extractfile("large")
        assert large is not None
        assert large.read() == (tmp_path / "large").read_bytes()


def test_a_file_that_is_put_in_or_taken_out_changes_few_packs(tmp_path: Path) -> None:
    rng = Random(2)
    for number in range(3000):
        (tmp_path / f"{number:04d}.txt").write_bytes(rng.randbytes(1500))
    before = tree_of(tmp_path)
    (tmp_path / "1500b.txt").write_text("new")
    (tmp_path / "0700.txt").unlink()
    total = sum(chunk.size_bytes for chunk in before.chunks)
    assert len(before.chunks) > 10
    assert changed_bytes(before, tree_of(tmp_path)) < total / 3


def test_what_has_not_changed_is_not_read_again(tmp_path: Path) -> None:
    source, cache = tmp_path / "tree", tmp_path / "home" / "cache"
    source.mkdir()
    rng = Random(3)
    (source / "large").write_bytes(rng.randbytes(LARGE_BYTES))
    (source / "small").write_bytes(b"x" * 100)
    first = tree_of(source, cache)
    assert unread_bytes(scan([(WHOLE, source)])[0], cache) == LARGE_BYTES + 100  # made just now
    settled_at = (source / "small").stat().st_ctime + 2.1
    while time.time() < settled_at:
        time.sleep(0.05)
    assert tree_of(source, cache).digests == first.digests
    entries = scan([(WHOLE, source)])[0]
    assert unread_bytes(entries, cache) == 0
    assert read_tree(entries, cache, lambda _: pytest.fail("read")).digests == first.digests
    stamps = (source / "small").stat()
    (source / "small").write_bytes(b"y" * 100)
    os.utime(source / "small", ns=(stamps.st_atime_ns, stamps.st_mtime_ns))  # as a tool does that keeps times
    assert tree_of(source, cache).digests != first.digests
    assert cache.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("content", [b"", b"garbage", b"\xc1"])
def test_a_cache_that_cannot_be_read_is_as_none(tmp_path: Path, content: bytes) -> None:
    source, cache = make_tree(tmp_path / "tree"), tmp_path / "home"
    cache.mkdir()
    (cache / "file").write_bytes(content)
    assert tree_of(source, cache / "file").digests == tree_of(source).digests


def test_a_file_that_changes_while_it_is_sent_is_noticed(tmp_path: Path) -> None:
    source = make_tree(tmp_path / "tree")
    tree = tree_of(source)
    (source / "run.sh").write_text("echo ho\n")
    with pytest.raises(InvalidInputError, match="changed while it was sent"):
        body_of(tree.chunks)
    (source / "run.sh").write_text("")
    with pytest.raises(InvalidInputError, match="changed while it was sent"):
        body_of(tree.chunks)


def test_each_missing_chunk_is_sent_once(tmp_path: Path) -> None:
    data = Random(4).randbytes(3 * MIB)
    for name in ("a", "b"):
        (tmp_path / name).write_bytes(data)
    tree = tree_of(tmp_path)
    missing = [chunk.digest.hex() for chunk in tree.chunks]
    batches = tree.batches(missing, MIB)
    sent = [chunk.digest for batch in batches for chunk in batch]
    assert len(sent) == len(set(sent)) == len(set(missing))
    assert all(len(batch) == 1 or sum(chunk.size_bytes for chunk in batch) <= MIB for batch in batches)
    assert sum(chunk.size_bytes for batch in batches for chunk in batch) < 4 * MIB


def test_a_file_that_is_changed_in_place_keeps_its_cuts_and_one_whose_bytes_moved_is_cut_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tree_module, "_SETTLED_S", -3600.0)  # what was made just now is kept too
    source, cache, data = tmp_path / "tree", tmp_path / "home" / "cache", Random(5).randbytes(12 * MIB)
    source.mkdir()
    (source / "large").write_bytes(data)
    before = tree_of(source, cache)
    (source / "large").write_bytes(data[:5000] + b"!" + data[5001:])
    with monkeypatch.context() as patched:
        patched.setattr(tree_module, "_ends", pytest.fail)
        in_place = tree_of(source, cache)
    assert [chunk.size_bytes for chunk in in_place.chunks] == [chunk.size_bytes for chunk in before.chunks]
    assert len({chunk.digest for chunk in in_place.chunks} - {chunk.digest for chunk in before.chunks}) == 1
    (source / "large").write_bytes(b"!" + data[:-1])
    moved = tree_of(source, cache)
    assert changed_bytes(before, moved) <= 3 * MOST_CUT_BYTES
    with opened(moved) as tar:
        large = tar.extractfile("large")
        assert large is not None
        assert large.read() == b"!" + data[:-1]
