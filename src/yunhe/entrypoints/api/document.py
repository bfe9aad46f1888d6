"""The API described: an OpenAPI document from the same types the handlers take, a page to read it, the task's schema."""

import importlib.resources
from typing import Any

import msgspec
from litestar import Request, Router, get
from litestar.openapi import OpenAPIConfig
from litestar.openapi.plugins import OpenAPIRenderPlugin
from litestar.openapi.spec import Components, SecurityScheme

from yunhe import __version__
from yunhe.entrypoints.api.problems import PROBLEM_JSON
from yunhe.entrypoints.wire import Problem
from yunhe.trading.demand import schema

_REF = "#/components/schemas/{name}"


class DocsPage(OpenAPIRenderPlugin):
    """A page that shows the document and needs nothing from elsewhere."""

    def render(self, request: Request[Any, Any, Any], openapi_schema: dict[str, Any]) -> bytes:
        """Return the page."""
        return importlib.resources.files(__package__ or "").joinpath("docs.html").read_bytes()


CONFIG = OpenAPIConfig(
    title="Yunhe",
    version=__version__,
    description="Connect pools, decide where work runs, run it, bill what was used.",
    path="/docs",
    render_plugins=[DocsPage(path="/")],
    use_handler_docstrings=True,
    components=Components(security_schemes={"key": SecurityScheme(type="http", scheme="bearer")}),
)


@get("/openapi.json", include_in_schema=False, sync_to_thread=False)
def openapi(request: Request[Any, Any, Any]) -> dict[str, Any]:
    """Return the OpenAPI document."""
    return with_problems(request.app.openapi_schema.to_schema())


@get("/v1/schema/task", sync_to_thread=False)
def task_schema() -> dict[str, object]:
    """Return the JSON schema of a task, for editors and checkers."""
    return schema.task_schema()


def with_problems(document: dict[str, Any]) -> dict[str, Any]:
    """Return the OpenAPI document with every error as the problem it is answered with."""
    _, schemas = msgspec.json.schema_components((Problem,), ref_template=_REF)
    document["components"].setdefault("schemas", {}).update(schemas)
    content = {PROBLEM_JSON: {"schema": {"$ref": _REF.format(name="Problem")}}}
    for path in document["paths"].values():
        for operation in path.values():
            answers = {code: answer for code, answer in operation["responses"].items() if code < "400"}
            answers["default"] = {
                "description": "What went wrong and what to do about it",
                "content": content,
            }
            operation["responses"] = answers
    return document


router = Router("/", route_handlers=[openapi, task_schema], tags=["platform"])
