"""What anybody may ask: whether it is up, what it is made of, how it is called."""

import re

import httpx
import pytest
from jsonschema import Draft202012Validator

from integration.entrypoints.api.serving import Served
from yunhe.entrypoints.client import Client, ServerUnreachableError
from yunhe.kernel.errors import NotFoundError
from yunhe.runtime.modules import SUBMODULES, start_order


def test_a_server_that_is_up_is_ready_without_a_key(served: Served) -> None:
    with served.client("") as client:
        ready = client.ready()
    assert ready.ready
    assert list(ready.modules) == list(start_order())
    assert httpx.get(f"{served.url}/health", trust_env=False).json()["ready"] is True


def test_every_sub_module_is_in_the_table_and_the_built_ones_are_hosted(served: Served) -> None:
    with served.client("") as client:
        rows = client.modules()
    assert {row.submodule for row in rows} == set(SUBMODULES)
    assert len({row.module for row in rows}) == 10
    assert {row.submodule for row in rows if row.hosted} == set(start_order())
    assert all(row.built for row in rows if row.hosted)


def test_the_openapi_document_describes_every_route(served: Served) -> None:
    document = httpx.get(f"{served.url}/openapi.json", trust_env=False).json()
    assert document["openapi"].startswith("3.1")
    paths = document["paths"]
    assert {"/v1/jobs", "/v1/jobs/batch", "/v1/pools/{pool}/prices", "/v1/ledger", "/ready"} <= set(paths)
    for path, operations in paths.items():
        for operation in operations.values():
            assert operation["description"], path
            assert set(re.findall(r"{(\w+)}", path)) == {
                parameter["name"]
                for parameter in operation.get("parameters", ())
                if parameter["in"] == "path"
            }
    schemas = document["components"]["schemas"]
    for reference in set(
        re.findall(
            r"#/components/schemas/([\w]+)", httpx.get(f"{served.url}/openapi.json", trust_env=False).text
        )
    ):
        assert reference in schemas
    for schema in schemas.values():
        Draft202012Validator.check_schema(schema)


def test_an_answer_is_valid_by_its_own_schema(served: Served) -> None:
    document = httpx.get(f"{served.url}/openapi.json", trust_env=False).json()
    answer = httpx.get(
        f"{served.url}/v1/me", headers={"Authorization": f"Bearer {served.key}"}, trust_env=False
    )
    schema = {"$ref": "#/components/schemas/Principal", "components": document["components"]}
    Draft202012Validator(schema).validate(answer.json())
    refusal = httpx.get(f"{served.url}/v1/me", trust_env=False).json()
    Draft202012Validator({**schema, "$ref": "#/components/schemas/Problem"}).validate(refusal)


def test_the_docs_page_needs_nothing_from_elsewhere(served: Served) -> None:
    page = httpx.get(f"{served.url}/docs", trust_env=False)
    assert page.headers["Content-Type"].startswith("text/html")
    assert not re.search(r"(src|href)=.?(https?:)?//", page.text)


def test_the_task_schema_is_published(served: Served) -> None:
    with served.client("") as client:
        schema = client.task_schema()
    Draft202012Validator.check_schema(schema)
    Draft202012Validator(schema).validate({"run": "echo hi", "resources": {"cpus": "2+"}})
    assert list(Draft202012Validator(schema).iter_errors({"rum": "x"}))


def test_a_request_keeps_the_id_its_caller_gave(served: Served) -> None:
    given = httpx.get(f"{served.url}/health", headers={"X-Request-Id": "mine-1"}, trust_env=False)
    assert given.headers["X-Request-Id"] == "mine-1"
    odd = httpx.get(f"{served.url}/health", headers={"X-Request-Id": "a b\tc"}, trust_env=False)
    assert odd.headers["X-Request-Id"].startswith("req_")


def test_what_is_not_there_is_a_problem(served: Served) -> None:
    with served.client() as client, pytest.raises(NotFoundError):
        client.job("job_0")


def test_a_server_that_is_not_there_is_said_to_be_unreachable() -> None:
    with (
        Client("http://127.0.0.1:9", patience_s=0.1) as client,
        pytest.raises(ServerUnreachableError, match="yunhe up"),
    ):
        client.ready()
