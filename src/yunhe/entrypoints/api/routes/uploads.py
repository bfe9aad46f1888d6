"""Archives sent along with tasks: in chunks that the project lacks, or whole; streamed, never whole in memory."""

import re
from collections.abc import AsyncIterator

from litestar import Request, Response, Router, head, post, put
from litestar.params import FromPath

from yunhe.entrypoints.api.caller import ApiRequest, TheCaller
from yunhe.entrypoints.wire import ChunksKept, Uploaded
from yunhe.kernel.errors import FieldProblem, InvalidInputError
from yunhe.kernel.ids import ProjectId
from yunhe.kernel.units import MIB
from yunhe.storage.blobs import MOST_CHUNK_BYTES
from yunhe.trading.accounts.model import Action
from yunhe.trading.applications.model import Assembly, archive_id

_SHA256 = re.compile(r"[0-9a-f]{64}")
_DIGEST_BYTES = 32
_HEADER_BYTES = _DIGEST_BYTES + 4
MOST_LIST_BYTES = MIB
MOST_CHUNKS_BYTES = 16 * MIB


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


@post("/projects/{project:str}/uploads", status_code=200, request_max_body_size=MOST_LIST_BYTES)
async def put_together(project: FromPath[str], caller: TheCaller, request: ApiRequest) -> Assembly:
    """Make an archive to mount of chunks, or say which the project lacks.

    The body is the SHA-256 of what each chunk unpacks to, 32 bytes each, in order.
    """
    await caller.authorize(Action.RUN, ProjectId(project), "upload")
    body = await request.body()
    if not body or len(body) % _DIGEST_BYTES:
        raise _bad_body(f"is {len(body)} bytes long, which is not a number of digests")
    digests = [body[at : at + _DIGEST_BYTES].hex() for at in range(0, len(body), _DIGEST_BYTES)]
    return await caller.platform.applications.put_together(ProjectId(project), tuple(digests))


@put("/projects/{project:str}/chunks", request_max_body_size=MOST_CHUNKS_BYTES)
async def keep_chunks(project: FromPath[str], caller: TheCaller, request: ApiRequest) -> ChunksKept:
    """Keep chunks of archives for a day, and while an archive needs them: all that the body has, or none.

    Each is the SHA-256 of what it unpacks to (32 bytes), its length (4 bytes, the highest first), and one gzip member.
    """
    await caller.authorize(Action.RUN, ProjectId(project), "upload")
    frames = _frames(request.stream())
    return ChunksKept(await caller.platform.applications.keep_chunks(ProjectId(project), frames))


async def _frames(pieces: AsyncIterator[bytes]) -> AsyncIterator[tuple[str, bytes]]:
    """Yield digest and gzip member of each chunk in a body."""
    pending = bytearray()
    async for piece in pieces:
        pending += piece
        while len(pending) >= _HEADER_BYTES:
            size = int.from_bytes(pending[_DIGEST_BYTES:_HEADER_BYTES], "big")
            if size > MOST_CHUNK_BYTES:
                raise _bad_body(f"has a chunk of {size} bytes; the most is {MOST_CHUNK_BYTES}")
            if len(pending) < _HEADER_BYTES + size:
                break
            yield pending[:_DIGEST_BYTES].hex(), bytes(pending[_HEADER_BYTES : _HEADER_BYTES + size])
            del pending[: _HEADER_BYTES + size]
    if pending:
        raise _bad_body("ends within a chunk")


def _bad_body(problem: str) -> InvalidInputError:
    return InvalidInputError(
        f"The body {problem}.",
        remedy="See docs/reference/api.md; yunhe run and the Python client send what is right.",
        fields=(FieldProblem("body", problem),),
    )


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
        route_handlers=[has_upload, upload, put_together, keep_chunks],
        tags=["uploads"],
        request_class=Request,
        request_max_body_size=limit_bytes,
    )
