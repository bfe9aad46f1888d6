"""Archives sent along with tasks: addressed by their SHA-256, streamed to the store, never whole in memory."""

import re

from litestar import Request, Response, Router, head, put
from litestar.params import FromPath

from yunhe.entrypoints.api.caller import ApiRequest, TheCaller
from yunhe.entrypoints.wire import Uploaded
from yunhe.kernel.errors import FieldProblem, InvalidInputError
from yunhe.kernel.ids import ProjectId
from yunhe.trading.accounts.model import Action
from yunhe.trading.applications.model import archive_id

_SHA256 = re.compile(r"[0-9a-f]{64}")


@head("/projects/{project:str}/uploads/{sha256:str}")
async def has_upload(project: FromPath[str], sha256: FromPath[str], caller: TheCaller) -> Response[None]:
    """Answer 200 with the archive's ``Yunhe-Blob-Id`` when the project has it already, else 404."""
    await caller.authorize(Action.RUN, ProjectId(project), "upload")
    known = await caller.platform.applications.has_upload(ProjectId(project), _digest(sha256))
    if not known:
        return Response(None, status_code=404)
    return Response(None, headers={"Yunhe-Blob-Id": archive_id(ProjectId(project), sha256)})


@put("/projects/{project:str}/uploads/{sha256:str}")
async def upload(
    project: FromPath[str], sha256: FromPath[str], caller: TheCaller, request: ApiRequest
) -> Uploaded:
    """Keep a gzip-compressed tar to mount later; the body is checked against the SHA-256 in the path."""
    await caller.authorize(Action.RUN, ProjectId(project), "upload")
    digest = _digest(sha256)
    return Uploaded(await caller.platform.applications.upload(ProjectId(project), digest, request.stream()))


def _digest(text: str) -> str:
    if _SHA256.fullmatch(text) is None:
        raise InvalidInputError(
            "The address does not end in a SHA-256.",
            remedy="Give the archive's digest as 64 lower-case hexadecimal digits.",
            fields=(FieldProblem("sha256", "is not 64 hexadecimal digits", text[:80]),),
        )
    return text


def router(limit_bytes: int) -> Router:
    """Return the routes, with bodies up to *limit_bytes*."""
    return Router(
        "/",
        route_handlers=[has_upload, upload],
        tags=["uploads"],
        request_class=Request,
        request_max_body_size=limit_bytes,
    )
