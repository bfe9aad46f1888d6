"""What a job sends back is written where it was asked for, and nowhere else."""

import io
import tarfile
from pathlib import Path

import pytest

from yunhe.entrypoints.cli.session.extract import extract
from yunhe.kernel.errors import InvalidInputError


def archive(folder: Path, members: dict[str, str | tarfile.TarInfo]) -> Path:
    path = folder / "archive.tar.gz"
    with tarfile.open(path, "w:gz") as tar:
        for name, content in members.items():
            if isinstance(content, tarfile.TarInfo):
                tar.addfile(content)
            else:
                info = tarfile.TarInfo(name)
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content.encode()))
    return path


def link(name: str, target: str) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = tarfile.SYMTYPE, target
    return info


def tree(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}


MEMBERS: dict[str, str | tarfile.TarInfo] = {"out/a.txt": "A", "out/deep/b.txt": "B", "log.txt": "L"}


@pytest.mark.parametrize(
    ("wanted", "destination", "expected"),
    [
        ("", "new", {"new/out/a.txt": "A", "new/out/deep/b.txt": "B", "new/log.txt": "L"}),
        ("out", ".", {"out/a.txt": "A", "out/deep/b.txt": "B"}),
        ("out/deep", ".", {"deep/b.txt": "B"}),
        ("out/a.txt", ".", {"a.txt": "A"}),
        ("out/a.txt", "renamed.txt", {"renamed.txt": "A"}),
        ("*.txt", "got", {"got/log.txt": "L", "got/out/a.txt": "A", "got/out/deep/b.txt": "B"}),
        ("nothing", ".", {}),
    ],
)
def test_files_land_as_cp_would_put_them(
    tmp_path: Path, wanted: str, destination: str, expected: dict[str, str]
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    written = extract(archive(tmp_path, MEMBERS), wanted, home / destination)
    assert tree(home) == expected
    assert len(written) == len(expected)


@pytest.mark.parametrize("name", ["../evil", "/tmp/evil", "a/../../evil"])
def test_an_archive_that_would_write_elsewhere_is_refused_whole(tmp_path: Path, name: str) -> None:
    home = tmp_path / "home"
    home.mkdir()
    with pytest.raises(InvalidInputError):
        extract(archive(tmp_path, {"good.txt": "G", name: "E"}), "", home)
    assert tree(home) == {}


def test_links_are_never_written_nor_followed(tmp_path: Path) -> None:
    home, outside = tmp_path / "home", tmp_path / "outside"
    home.mkdir()
    outside.mkdir()
    (home / "here.txt").symlink_to(outside / "target.txt")
    members: dict[str, str | tarfile.TarInfo] = {"link": link("link", str(outside)), "here.txt": "H"}
    extract(archive(tmp_path, members), "", home)
    assert tree(outside) == {}
    assert tree(home) == {"here.txt": "H"}
    assert not (home / "link").exists()


def test_a_directory_link_at_the_destination_is_not_followed(tmp_path: Path) -> None:
    home, outside = tmp_path / "home", tmp_path / "outside"
    home.mkdir()
    outside.mkdir()
    (home / "out").symlink_to(outside)
    with pytest.raises(InvalidInputError):
        extract(archive(tmp_path, MEMBERS), "out", home)
    assert tree(outside) == {}


def test_many_files_do_not_fit_into_one(tmp_path: Path) -> None:
    (tmp_path / "one.txt").write_text("1")
    with pytest.raises(InvalidInputError):
        extract(archive(tmp_path, MEMBERS), "out", tmp_path / "one.txt")
    assert (tmp_path / "one.txt").read_text() == "1"
