"""What has grown too large is named, and what has not passes."""

import sys
from pathlib import Path

import pytest

from tools import sizes


def measure(folder: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(sys, "argv", ["sizes.py", str(folder)])
    return sizes.main()


def function_of(lines: int) -> str:
    return "def f():\n" + "    x = 1\n" * (lines - 1)


@pytest.mark.parametrize(
    ("source", "status"),
    [
        ("x = 1\n" * 600, 0),
        ("x = 1\n" * 601, 1),
        (function_of(80), 0),
        (function_of(81), 1),
        ("class A:\n" + "    x = 1\n" * 200, 0),
        ("async " + function_of(81), 1),
    ],
)
def test_a_file_over_600_lines_or_a_function_over_80_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, status: int
) -> None:
    (tmp_path / "a.py").write_text(source)
    assert measure(tmp_path, monkeypatch) == status


def test_a_migration_may_list_as_many_tables_as_there_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "migrations").mkdir()
    (tmp_path / "migrations" / "a.py").write_text(function_of(200))
    assert measure(tmp_path, monkeypatch) == 0


@pytest.mark.parametrize(("modules", "status"), [(16, 0), (17, 1)])
def test_a_package_of_more_than_16_modules_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, modules: int, status: int
) -> None:
    for name in ["__init__", "__main__", *(f"m{number}" for number in range(modules))]:
        (tmp_path / f"{name}.py").write_text("")
    assert measure(tmp_path, monkeypatch) == status


def test_the_five_largest_are_printed_largest_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for lines in range(1, 8):
        (tmp_path / f"f{lines}.py").write_text("x = 1\n" * lines)
    measure(tmp_path, monkeypatch)
    names = [line.split()[1] for line in capsys.readouterr().out.splitlines() if ".py" in line]
    assert names == ["f7.py", "f6.py", "f5.py", "f4.py", "f3.py"]
