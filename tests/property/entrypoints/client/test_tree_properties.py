"""Whatever the tree, what is unpacked is what was there."""

import gzip
import io
import os
import tarfile
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from yunhe.entrypoints.client import tree as tree_module
from yunhe.entrypoints.client.tree import WHOLE, read_tree, scan

NAMES = st.text(
    st.characters(codec="utf-8", exclude_characters="/\0", exclude_categories=("Cs",)),
    min_size=1,
    max_size=40,
).filter(lambda name: name not in {".", ".."} and len(name.encode()) < 120)
PATHS = st.lists(NAMES, min_size=1, max_size=3).map("/".join)
SIZES = st.one_of(st.integers(0, 2000), st.sampled_from([511, 512, 513, 4095, 4096, 4097, 9000, 40_000]))
FILES = st.dictionaries(PATHS, st.tuples(SIZES, st.booleans(), st.integers(0, 2**32)), max_size=12)


def lay_out(
    root: Path, files: dict[str, tuple[int, bool, int]], folders: list[str], links: list[str]
) -> None:
    for name, (size, runs, seed) in files.items():
        path = root / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes((seed.to_bytes(8, "big") * (size // 8 + 1))[:size])
        except OSError:  # a file is where a folder would have to be, or the other way round
            continue
        path.chmod(0o755 if runs else 0o644)
    for name in folders:
        try:
            (root / name).mkdir(parents=True, exist_ok=True)
        except OSError:
            continue
    for number, name in enumerate(links):
        if (root / name).exists():
            (root / f"link {number}").unlink(missing_ok=True) if (
                root / f"link {number}"
            ).is_symlink() else None
            if not os.path.lexists(root / f"link {number}"):
                (root / f"link {number}").symlink_to(name)


def listing(root: Path) -> dict[str, tuple[str, bytes | str, bool]]:
    found: dict[str, tuple[str, bytes | str, bool]] = {}
    for path in root.rglob("*"):
        name = str(path.relative_to(root))
        if path.is_symlink():
            found[name] = ("link", str(path.readlink()), False)
        elif path.is_dir():
            found[name] = ("folder", b"", False)
        else:
            found[name] = ("file", path.read_bytes(), bool(path.stat().st_mode & 0o100))
    return found


@settings(max_examples=60, deadline=None)
@given(files=FILES, folders=st.lists(PATHS, max_size=3), links=st.lists(PATHS, max_size=2))
def test_what_is_unpacked_is_what_was_there(
    files: dict[str, tuple[int, bool, int]], folders: list[str], links: list[str]
) -> None:
    before = tree_module.LARGE_BYTES, tree_module.MOST_PACK_BYTES, tree_module.LEAST_PACK_BYTES
    cuts = tree_module.LEAST_CUT_BYTES, tree_module.MEAN_CUT_BYTES, tree_module.MOST_CUT_BYTES
    tree_module.LARGE_BYTES, tree_module.MOST_PACK_BYTES, tree_module.LEAST_PACK_BYTES = 4096, 8192, 2048
    tree_module.LEAST_CUT_BYTES, tree_module.MEAN_CUT_BYTES, tree_module.MOST_CUT_BYTES = 256, 512, 3000
    try:
        with tempfile.TemporaryDirectory() as folder:
            source, target = Path(folder, "source"), Path(folder, "target")
            source.mkdir()
            lay_out(source, files, folders, [*files, *links][:2])
            entries, _ = scan([(WHOLE, source)], all_files=True)
            tree = read_tree(entries)
            packed = gzip.decompress(b"".join(chunk.member() for chunk in tree.chunks))
            with tarfile.open(fileobj=io.BytesIO(packed)) as tar:
                tar.extractall(target, filter="tar")
            assert listing(target) == listing(source)
    finally:
        tree_module.LARGE_BYTES, tree_module.MOST_PACK_BYTES, tree_module.LEAST_PACK_BYTES = before
        tree_module.LEAST_CUT_BYTES, tree_module.MEAN_CUT_BYTES, tree_module.MOST_CUT_BYTES = cuts
