"""What is missing is installed where it can be, and named where it cannot."""

import sys
from pathlib import Path

import pytest

from tools import system_packages
from tools.system_packages import Package


@pytest.fixture
def apt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An apt-get that notes what it is asked and installs all but ``hopeless``."""
    (tmp_path / "bin").mkdir()
    script = tmp_path / "bin" / "apt-get"
    script.write_text(
        '#!/bin/sh\nfor last; do :; done\necho "$last" >> "$APT/calls"\n'
        'case $last in\nhopeless) echo "E: no package" >&2; exit 100;;\nupdate) ;;\n*) : > "$APT/$last";;\nesac\n'
    )
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    monkeypatch.setenv("APT", str(tmp_path))
    monkeypatch.setattr(system_packages.os, "geteuid", lambda: 0)
    monkeypatch.setattr(system_packages, "NO_SERVICES", tmp_path / "policy-rc.d")
    monkeypatch.setattr(sys, "argv", ["system_packages.py", "test"])
    return tmp_path


def profile(monkeypatch: pytest.MonkeyPatch, folder: Path, *names: str) -> None:
    packages = tuple(Package(name, str(folder / name), "a test") for name in names)
    monkeypatch.setitem(system_packages.PROFILES, "test", packages)


def test_only_what_is_missing_is_installed_after_one_update(
    apt: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (apt / "there").touch()
    profile(monkeypatch, apt, "there", "wanted", "also")
    assert system_packages.main() == 0
    assert (apt / "calls").read_text().split() == ["update", "wanted", "also"]
    assert capsys.readouterr().out.splitlines()[-1] == "system packages: 3 of 3 there"
    assert not (apt / "policy-rc.d").exists()


def test_a_package_that_cannot_be_had_is_a_visible_skip_and_does_not_stop_the_rest(
    apt: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    profile(monkeypatch, apt, "hopeless", "wanted")
    assert system_packages.main() == 0
    assert capsys.readouterr().out.splitlines()[1:] == [
        "skipped: hopeless, needed for a test (E: no package)",
        "system packages: 1 of 2 there",
    ]


def test_nothing_is_tried_without_root(
    apt: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(system_packages.os, "geteuid", lambda: 1000)
    profile(monkeypatch, apt, "wanted")
    assert system_packages.main() == 0
    assert "skipped: wanted, needed for a test (not root)" in capsys.readouterr().out
    assert not (apt / "calls").exists()


def test_a_rule_the_system_has_for_services_is_left_alone(apt: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (apt / "policy-rc.d").write_text("theirs")
    profile(monkeypatch, apt, "wanted")
    assert system_packages.main() == 0
    assert (apt / "policy-rc.d").read_text() == "theirs"


@pytest.mark.parametrize(
    ("name", "text", "archive"),
    [
        (
            "sources.list.d/debian.sources",
            "Types: deb\n# a remark\nURIs: http://mirror.example/debian\nSuites: trove trove-updates\nSigned-By: /keys/d.gpg\n",
            "[signed-by=/keys/d.gpg] http://mirror.example/debian",
        ),
        (
            "sources.list",
            "deb-src http://mirror.example/x trove main\ndeb [arch=amd64] http://mirror.example/y trove main\n",
            "[arch=amd64] http://mirror.example/y",
        ),
        ("sources.list", "deb http://mirror.example/y other main\n", ""),
    ],
)
def test_the_archive_of_another_suite_is_the_one_the_system_uses(
    apt: Path, monkeypatch: pytest.MonkeyPatch, name: str, text: str, archive: str
) -> None:
    (apt / "sources.list.d").mkdir()
    (apt / name).write_text(text)
    monkeypatch.setattr(system_packages, "SOURCES", apt)
    assert system_packages.archive_of("trove") == archive


def test_a_package_of_another_suite_is_unpacked_and_the_system_is_left_as_it_is(
    apt: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (apt / "release").write_text("NAME=x\nVERSION_CODENAME=trove\n")
    (apt / "sources.list").write_text("deb http://mirror.example/y trove main\n")
    monkeypatch.setattr(system_packages, "SOURCES", apt)
    monkeypatch.setattr(system_packages, "RELEASE", apt / "release")
    monkeypatch.setattr(system_packages, "UNPACKED", apt / "unpacked")
    script = apt / "bin" / "apt-get"
    script.write_text(f'#!/bin/sh\necho "$@" >> "$APT/calls"\n: > "$PWD/odd.deb"\n{script.read_text()}')
    dpkg = apt / "bin" / "dpkg"
    dpkg.write_text(
        '#!/bin/sh\nmkdir -p "$3/usr/bin"; printf "#!/bin/sh\\n" > "$3/usr/bin/odd"; chmod 755 "$3/usr/bin/odd"\n'
    )
    dpkg.chmod(0o755)
    monkeypatch.chdir(apt)
    monkeypatch.setitem(system_packages.PROFILES, "test", (Package("odd", "odd", "a test", "backports"),))
    assert system_packages.main() == 0
    assert system_packages.find("odd") == str(apt / "unpacked" / "usr" / "bin" / "odd")
    assert "install" not in (apt / "calls").read_text().split()
