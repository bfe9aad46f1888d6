"""What ignore files name is left out as git would, and counted."""

import subprocess
from pathlib import Path

import pytest

from yunhe.entrypoints.client import ignoring
from yunhe.entrypoints.client.ignoring import LeftOut
from yunhe.entrypoints.client.tree import WHOLE, scan


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def names(root: Path, *, all_files: bool = False, of_repository: bool = False) -> tuple[set[str], LeftOut]:
    entries, left_out = scan([(WHOLE, root)], all_files=all_files, of_repository=of_repository)
    return {entry.name for entry in entries if Path(entry.path).is_file()}, left_out


TREE = {
    ".gitignore": "*.log\n/build/\nsecret.env\n!keep.log\n",
    "a.py": "",
    "a.log": "12345",
    "keep.log": "",
    "secret.env": "KEY=1",
    "build/x": "1",
    "sub/build/y": "1",
    "sub/b.log": "",
    "sub/.gitignore": "!b.log\n*.tmp\n",
    "sub/c.tmp": "",
    "c.tmp": "",
    ".venv/bin/python": "1",
    "sub/__pycache__/a.pyc": "1",
}


def test_what_is_sent_is_what_git_would_add(tmp_path: Path) -> None:
    write(tmp_path, TREE)
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    listed = subprocess.run(
        ["git", "-C", tmp_path, "ls-files", "-co", "--exclude-standard"],
        capture_output=True,
        text=True,
        check=True,
    )
    usual = {".venv/bin/python", "sub/__pycache__/a.pyc"}
    sent, left_out = names(tmp_path)
    assert sent == set(listed.stdout.split()) - usual
    assert "secret.env" not in sent
    assert {"a.log", "build/", "secret.env", "sub/c.tmp", ".git/", ".venv/"} <= set(left_out.paths)


def test_everything_is_sent_on_request(tmp_path: Path) -> None:
    sent, left_out = names(write(tmp_path, TREE), all_files=True)
    assert sent == set(TREE)
    assert left_out == LeftOut()


def test_yunheignore_takes_precedence_and_may_take_back_in(tmp_path: Path) -> None:
    write(tmp_path, TREE | {".yunheignore": "!secret.env\na.py\n!.venv/\n"})
    sent, _ = names(tmp_path)
    assert {"secret.env", ".venv/bin/python"} <= sent
    assert "a.py" not in sent


def test_what_is_left_out_is_counted_with_what_is_in_it(tmp_path: Path) -> None:
    write(tmp_path, {".gitignore": "data/\nx\n", "data/a": "123", "data/b/c": "45", "x": "6", "y": ""})
    _, left_out = names(tmp_path)
    assert (left_out.files, left_out.size_bytes) == (3, 6)
    assert sorted(left_out.paths) == ["data/", "x"]
    assert not left_out.uncounted


def test_no_more_is_counted_than_is_worth_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ignoring, "MOST_COUNTED", 3)
    write(tmp_path, {".gitignore": "data/\n", **{f"data/{number}": "" for number in range(9)}})
    _, left_out = names(tmp_path)
    assert (left_out.files, left_out.uncounted) == (3, True)


def test_rules_above_hold_in_a_workdir_unless_they_leave_it_out_itself(tmp_path: Path) -> None:
    write(tmp_path, {".gitignore": "*.log\nout/\n", "exp/a.py": "", "exp/a.log": "", "out/b.log": ""})
    (tmp_path / ".git").mkdir()
    assert names(tmp_path / "exp", of_repository=True)[0] == {"a.py"}
    assert names(tmp_path / "exp")[0] == {"a.py", "a.log"}
    assert names(tmp_path / "out", of_repository=True)[0] == {"b.log"}


def test_rules_above_a_folder_that_is_in_no_repository_do_not_hold(tmp_path: Path) -> None:
    write(tmp_path, {".gitignore": "*.log\n", "exp/a.log": ""})
    assert names(tmp_path / "exp", of_repository=True)[0] == {"a.log"}


def test_the_first_names_stand_for_the_rest() -> None:
    assert LeftOut(paths=["a"]).names() == "a"
    assert LeftOut(paths=["a", "b", "c", "d", "e"]).names() == "a, b, c and 2 more"
