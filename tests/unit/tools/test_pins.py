"""Every dependency is pinned by version and hash, no index is named, and the bill of materials has all of them."""

import re
import tomllib

from tools.bootstrap import PINNED, PROJECT, development_requirements
from tools.pins import CONSTRAINTS, REQUIREMENTS, ROOT, is_of, normal, read_pins
from tools.sbom import bill

PINS = read_pins(CONSTRAINTS.read_text())


def test_each_pin_has_hashes_and_no_index_is_named() -> None:
    text = REQUIREMENTS.read_text()
    assert read_pins(text) == PINS, "run `make pins`"
    blocks = re.split(r"(?m)^(?=[A-Za-z0-9])", text)[1:]
    assert len(blocks) == len(PINS)
    assert all(re.search(r"--hash=sha256:[0-9a-f]{64}", block) for block in blocks)
    assert "://" not in text


def test_everything_that_the_project_names_is_pinned() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    wanted = [*project["dependencies"], *extras["postgres"], *extras["parquet"], *development_requirements()]
    names = {normal(re.split(r"[^A-Za-z0-9._-]", one, maxsplit=1)[0]) for one in [*wanted, "hatchling"]}
    assert names <= set(PINS), "run `make pins`"


def test_dependencies_are_installed_by_hash_and_the_project_brings_none_along() -> None:
    assert "--require-hashes" in PINNED
    assert "--no-deps" in PROJECT
    assert "--no-build-isolation" in PROJECT


def test_files_of_other_packages_and_versions_are_not_taken() -> None:
    assert is_of("psycopg_binary-3.3.8-cp311-cp311-manylinux_2_17_x86_64.whl", "psycopg-binary", "3.3.8")
    assert is_of("h11-0.16.0.tar.gz", "h11", "0.16.0")
    assert not is_of("psycopg_binary-3.3.8-py3-none-any.whl", "psycopg", "3.3.8")
    assert not is_of("h11-0.16.0.1.tar.gz", "h11", "0.16.0")


def test_the_bill_of_materials_has_every_pin_and_who_needs_it() -> None:
    made = bill(PINS)
    assert (made["bomFormat"], made["specVersion"]) == ("CycloneDX", "1.5")
    components = {one["name"]: one for one in made["components"]}  # pyright: ignore[reportGeneralTypeIssues]
    assert {name: one["version"] for name, one in components.items()} == PINS
    refs = {one["bom-ref"] for one in components.values()}
    graph = {one["ref"]: one["dependsOn"] for one in made["dependencies"]}  # pyright: ignore[reportGeneralTypeIssues]
    assert refs <= set(graph)
    assert f"pkg:pypi/h11@{PINS['h11']}" in graph[f"pkg:pypi/uvicorn@{PINS['uvicorn']}"]
    assert all(needed in refs for those in graph.values() for needed in those)
