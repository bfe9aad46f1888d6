"""A name that two classes have is told with both places."""

import sys
from pathlib import Path

import pytest

from tools import class_names


def check(folder: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(sys, "argv", ["class_names.py", str(folder)])
    return class_names.main()


def test_two_classes_of_one_name_fail_even_where_they_are_private_or_nested(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.py").write_text("class _Idle: ...\nclass A: ...\n")
    (tmp_path / "b.py").write_text("class B:\n    class _Idle: ...\n")
    assert check(tmp_path, monkeypatch) == 1
    assert "_Idle is defined 2 times: rename all but one of a.py:1, b.py:2" in capsys.readouterr().out


def test_names_that_differ_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.py").write_text("class A: ...\nclass B: ...\n")
    assert check(tmp_path, monkeypatch) == 0
