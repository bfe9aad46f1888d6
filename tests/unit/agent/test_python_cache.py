"""Python environments on a node: what is the same, who builds, what is kept and what goes first."""

import os
from pathlib import Path

import pytest

from yunhe.agent.pythons.build import key_of, names_files
from yunhe.agent.pythons.cache import HeldPython, PythonCache, seal

MIB = 2**20
UID = os.getuid()


def build(cache: PythonCache, key: str, size_bytes: int = MIB) -> HeldPython:
    """Build an environment with a program and so many bytes, and publish it."""
    held = cache.take(key, UID)
    assert held is not None
    assert not held.ready
    place = Path(held.path)
    (place / "bin").mkdir()
    (place / "bin" / "python").write_bytes(b"x" * size_bytes)
    assert cache.publish(held, seal(held.path, UID))
    return held


def test_a_key_differs_with_all_that_shapes_an_environment_and_with_nothing_else() -> None:
    environment = {"PIP_INDEX_URL": "http://a", "PATH": "/bin", "EPOCHS": "3"}
    first = key_of("p1", "3.12", b"numpy", environment, ["EPOCHS", "PIP_INDEX_URL"])
    assert first == key_of(
        "p1", "3.12", b"numpy", {**environment, "EPOCHS": "4"}, ["EPOCHS", "PIP_INDEX_URL"]
    )
    others = {
        key_of("p2", "3.12", b"numpy", environment, ["EPOCHS", "PIP_INDEX_URL"]),
        key_of("p1", "3.11", b"numpy", environment, ["EPOCHS", "PIP_INDEX_URL"]),
        key_of("p1", "3.12", b"numpy # new", environment, ["EPOCHS", "PIP_INDEX_URL"]),
        key_of("p1", "3.12", b"numpy", {**environment, "PIP_INDEX_URL": "http://b"}, ["PIP_INDEX_URL"]),
        key_of("p1", "3.12", b"numpy", environment, ["PATH", "PIP_INDEX_URL"]),
    }
    assert len(others) == 5
    assert first not in others


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("numpy==2.0", False),
        ("--index-url https://example.org", False),
        ("pkg @ https://example.org/pkg.whl", False),
        ("-e .", True),
        ("  -r more.txt", True),
        ("./dist/pkg.whl", True),
        ("/srv/pkg.whl", True),
        ("pkg @ file:///srv/pkg.whl", True),
        ("--find-links dist", True),
    ],
)
def test_a_line_that_names_files_is_known(line: str, named: bool) -> None:
    assert names_files(f"numpy\n{line}\n".encode()) is named


def test_one_builds_and_others_wait_until_it_is_whole_or_given_up(tmp_path: Path) -> None:
    cache = PythonCache(str(tmp_path), 10 * MIB)
    first = cache.take("key", UID)
    assert first is not None
    assert cache.take("key", UID) is None
    cache.discard(first)
    second = build(cache, "key")
    third = cache.take("key", UID)
    assert third is not None
    assert (third.ready, third.path) == (True, second.path)


def test_what_was_used_longest_ago_goes_first_and_what_is_held_stays(tmp_path: Path) -> None:
    cache = PythonCache(str(tmp_path), 3 * MIB + 200_000)
    held = {key: build(cache, key) for key in ("a", "b", "c")}
    for key in ("b", "c"):
        held[key].release()
    for age, key in enumerate(("c", "b", "a")):
        os.utime(tmp_path / "pythons" / key / "ready.json", (0, age))
    used = cache.take("c", UID)
    assert used is not None
    used.release()
    build(cache, "d").release()
    assert sorted(path.name for path in (tmp_path / "pythons").iterdir()) == ["a", "c", "d", "lock"]
    assert [Path(path).exists() for path in cache.removed] == [True]


def test_what_cannot_fit_is_not_shared_and_nothing_goes_for_it(tmp_path: Path) -> None:
    cache = PythonCache(str(tmp_path), 2 * MIB)
    build(cache, "a").release()
    large = cache.take("b", UID)
    assert large is not None
    assert not cache.publish(large, 3 * MIB)
    cache.discard(large)
    assert sorted(path.name for path in (tmp_path / "pythons").iterdir()) == ["a", "lock"]


def test_an_environment_without_its_interpreter_is_built_anew(tmp_path: Path) -> None:
    cache = PythonCache(str(tmp_path), 10 * MIB)
    first = build(cache, "key")
    first.release()
    (Path(first.path) / "bin").chmod(0o700)
    (Path(first.path) / "bin" / "python").unlink()
    again = build(cache, "key")
    assert again.path != first.path
    assert not Path(first.path).exists()


def test_what_nobody_holds_and_no_record_names_is_swept(tmp_path: Path) -> None:
    cache = PythonCache(str(tmp_path), 10 * MIB)
    whole, half, built = build(cache, "whole"), cache.take("half", UID), cache.take("built", UID)
    assert half is not None
    assert built is not None
    whole.release()
    half.release()
    cache.sweep()
    assert sorted(path.name for path in (tmp_path / "pythons").iterdir()) == ["built", "lock", "whole"]
    assert Path(built.path).is_dir()


def test_a_file_with_a_second_name_is_not_given_away(tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    theirs.write_text("mine too")
    place = tmp_path / "place"
    place.mkdir()
    (place / "link").hardlink_to(theirs)
    with pytest.raises(OSError, match="not a file of its own"):
        seal(str(place), UID)
    assert theirs.stat().st_mode & 0o200
