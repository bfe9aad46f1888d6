"""The page of plugins says what the manifests say; a field that is not mapped is an error, and is named."""

import tomllib
from pathlib import Path

import pytest

from support.repository import REPOSITORY
from tools.plugin_reference import PAGE, manifest_paths, manifests, page
from yunhe.infrastructure.contract.manifest import Manifest, check_manifest, mappable_fields, read_manifest
from yunhe.kernel.errors import InvalidInputError

EXAMPLE = REPOSITORY / "examples" / "go-plugin" / "plugin.toml"


def changed(tmp_path: Path, old: str, new: str) -> Path:
    text = EXAMPLE.read_text()
    assert old in text
    path = tmp_path / "plugin.toml"
    path.write_text(text.replace(old, new))
    return path


def test_the_page_of_plugins_is_what_the_manifests_say_today() -> None:
    assert PAGE.read_text() == page(manifests()), "run python tools/plugin_reference.py"


@pytest.mark.feature(
    "C08",
    file="src/yunhe/infrastructure/contract/manifest.py",
    old='[FieldProblem("fields", "is not mapped", ours) for ours in known if ours not in mapped]',
    new="list[FieldProblem]()",
)
@pytest.mark.parametrize("path", manifest_paths(), ids=lambda path: path.parent.name)
def test_the_table_of_a_plugin_is_complete_and_a_field_left_unmapped_is_an_error(path: Path) -> None:
    table = page([read_manifest(path)])
    declared = tomllib.loads(path.read_text())
    for ours in mappable_fields():
        assert table.count(f"| `{ours}` |") == 1
        rest = [row for row in declared["fields"] if row["ours"] != ours]
        with pytest.raises(InvalidInputError) as refused:
            check_manifest({**declared, "fields": rest}, "this manifest")
        assert [(field.problem, field.value) for field in refused.value.fields] == [("is not mapped", ours)]


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ('ours = "Node.id", theirs = "host name"', 'ours = "Node.id"', "no note saying why"),
        ('ours = "Node.id"', 'ours = "Node.name"', "is no field of the contract"),
        ('ours = "Node.reason"', 'ours = "Node.ready"', "is mapped more than once"),
        (
            'gang = "Each allocation is launched by itself."\n',
            "",
            "neither among powers nor said to be missing",
        ),
        ('vendor = "Yunhe"', 'vendor = ""', "is empty"),
        ('command = ["./go-plugin"]\n', "", "give either entry"),
    ],
)
def test_a_manifest_that_leaves_something_open_is_refused(
    tmp_path: Path, old: str, new: str, problem: str
) -> None:
    with pytest.raises(InvalidInputError) as refused:
        read_manifest(changed(tmp_path, old, new))
    assert any(problem in field.problem for field in refused.value.fields)


@pytest.mark.parametrize("manifest", manifests(), ids=lambda manifest: manifest.name)
def test_a_missing_power_is_explained_in_a_sentence(manifest: Manifest) -> None:
    for sentence in manifest.missing.values():
        assert len(sentence.split()) >= 3
