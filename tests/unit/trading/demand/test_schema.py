"""The published schema says what the parser does."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

from support.repository import REPOSITORY
from yunhe.trading.demand.model import ResourceSpec, Task
from yunhe.trading.demand.parse import parse_yaml
from yunhe.trading.demand.schema import task_schema

EXAMPLES = sorted((REPOSITORY / "examples").glob("*.yaml"))


def test_the_schema_is_itself_valid() -> None:
    Draft202012Validator.check_schema(task_schema())


def test_the_schema_has_exactly_the_fields_of_a_task() -> None:
    properties = task_schema()["properties"]
    assert isinstance(properties, dict)
    assert set(properties) == {*Task.__struct_fields__}
    assert set(properties["resources"]["properties"]) == {*ResourceSpec.__struct_fields__}


def test_every_field_is_described() -> None:
    properties = task_schema()["properties"]
    assert isinstance(properties, dict)
    described = {**properties, **properties["resources"]["properties"]}
    assert [name for name, schema in described.items() if not schema.get("description")] == []


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_every_example_is_valid(path: Path) -> None:
    text = path.read_text()
    assert not list(Draft202012Validator(task_schema()).iter_errors(yaml.safe_load(text)))
    assert parse_yaml(text).run


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"run": ""},
        {"run": "true", "nmae": "x"},
        {"run": "true", "tier": "hihg"},
        {"run": "true", "num_nodes": 0},
        {"run": "true", "service": {"replicas": 0}},
        {"run": "true", "components": [{"resources": {}}]},
        {"run": "true", "links": [{"from": "a", "to": "b", "latency": 10}]},
        {"run": "true", "retries": -1},
        {"run": "true", "outputs": ["/etc/passwd"]},
        {"run": "true", "file_mounts": {"../x": "y"}},
        {"run": "true", "resources": {"infra": "aws us-east-1"}},
        {"run": "true", "affinity": [{"group": "db", "over": "rack"}]},
        {"run": "true", "spread": {"at_most": 0}},
        {"run": "true", "reliability": 1.5},
        {"run": "true", "budget_per_hour": -1},
        {"run": "true", "max_latency": 20},
        {"run": "true", "resources": {"accelerators": {"A100": 1, "H100": 1}}},
    ],
)
def test_the_schema_refuses_too(document: Any) -> None:
    assert list(Draft202012Validator(task_schema()).iter_errors(document))
