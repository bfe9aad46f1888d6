"""The control plane for Kubernetes tests is found where it should be, and its absence is said plainly."""

import re
from pathlib import Path

import pytest

from tools import control_plane
from tools.control_plane import NoControlPlaneError, kubernetes_version, programs, target


def test_every_staging_module_is_of_the_same_release_as_kubernetes() -> None:
    text = (control_plane.SOURCE / "go.mod").read_text()
    replaced = re.findall(r"^\s*(k8s\.io/\S+) => (k8s\.io/\S+) v0\.(\S+)$", text, re.MULTILINE)
    assert len(replaced) == 29
    assert {(theirs == ours, f"1.{release}") for theirs, ours, release in replaced} == {
        (True, kubernetes_version())
    }


def test_a_folder_of_ready_programs_goes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(tmp_path))
    with pytest.raises(NoControlPlaneError, match="no etcd and kube-apiserver"):
        programs()
    for name in ("etcd", "kube-apiserver"):
        (tmp_path / name).touch()
    assert programs() == {name: [str(tmp_path / name)] for name in ("etcd", "kube-apiserver")}


def test_what_is_not_built_says_how_to_build_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(control_plane, "_go_version", lambda: "go1.0")
    with pytest.raises(NoControlPlaneError, match=r"tools/control_plane\.py"):
        programs()
    target().parent.mkdir(parents=True)
    target().touch()
    assert programs()["kube-scheduler"] == [str(target()), "kube-scheduler"]


def test_another_source_makes_another_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control_plane, "_go_version", lambda: "go1.0")
    before = target()
    for file in control_plane.SOURCE.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    (tmp_path / "main.go").write_text("package main // changed")
    monkeypatch.setattr(control_plane, "SOURCE", tmp_path)
    assert target() != before


def test_without_go_the_tool_says_so_and_does_not_fail(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    monkeypatch.setenv("PATH", "/nowhere")
    assert control_plane.main() == 0
    assert "skipped: the Kubernetes control plane (Go is not installed)" in capsys.readouterr().out
