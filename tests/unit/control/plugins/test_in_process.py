"""Kinds in process are known by their manifests alone."""

import subprocess
import sys

from yunhe.control.plugins.in_process import in_process, installed_manifests
from yunhe.infrastructure.fake.kind import FakeKind


def test_every_installed_kind_has_a_whole_manifest_and_an_entry_that_makes_it() -> None:
    kinds = in_process()
    assert {"local", "ssh"} <= set(kinds.manifests)
    for name in kinds.manifests:
        assert kinds.kind(name) is kinds.kind(name)


def test_the_fake_is_not_offered_but_can_be_given() -> None:
    assert "fake" not in in_process().manifests
    given = FakeKind()
    kinds = in_process({"fake": given})
    assert list(kinds.manifests) == ["fake"]
    assert kinds.kind("fake") is given


def test_reading_manifests_runs_no_code_of_a_kind() -> None:
    code = (
        "import sys; from yunhe.control.plugins.in_process import in_process; print(*in_process().manifests);"
        "assert not [m for m in sys.modules if m.startswith('yunhe.infrastructure.')"
        " and not m.startswith('yunhe.infrastructure.contract')]"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert set(ran.stdout.split()) == set(installed_manifests()) - {"fake"}
