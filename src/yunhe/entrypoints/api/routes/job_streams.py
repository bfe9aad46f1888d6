"""What a job tells as it runs: its changes, its output, its files; and a command beside it."""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Annotated

import msgspec
from litestar import Router, get
from litestar.params import FromPath, FromQuery, QueryParameter
from litestar.response.base import ASGIResponse
from litestar.types import ASGIApp

from yunhe.entrypoints.api.caller import ApiRequest, TheCaller
from yunhe.entrypoints.api.streams import StreamAnswer, begun, close, event
from yunhe.kernel.errors import FieldProblem, InvalidInputError
from yunhe.runtime.platform import Platform
from yunhe.scheduling.orchestration.jobs.model import Job, LogPiece, after
from yunhe.trading.accounts.model import Action

PIECE_LIMIT_BYTES = 4 * 1024 * 1024
"""The most output one answer carries when it is not followed."""

Count = Annotated[int, QueryParameter(ge=0)]


@get("/jobs/{job_id:str}/events", media_type="text/event-stream")
async def events(job_id: FromPath[str], caller: TheCaller, request: ApiRequest) -> ASGIApp:
    """Stream the job now and whenever it changes (event ``job``), until it has ended."""
    found = await caller.job(job_id)
    changes = await begun(caller.platform.orchestration.changes(found.id))
    return StreamAnswer(_job_events(changes), "text/event-stream", request.app.state.stopping, events=True)


async def _job_events(changes: AsyncGenerator[Job, None]) -> AsyncGenerator[bytes, None]:
    async with aclosing(changes):
        async for job in changes:
            yield event("job", job)


@get("/jobs/{job_id:str}/logs")
async def logs(  # noqa: PLR0913 - one for each parameter of the query
    job_id: FromPath[str],
    caller: TheCaller,
    request: ApiRequest,
    *,
    attempt: Count = 0,
    offset: Count = 0,
    follow: FromQuery[bool] = False,
    onward: FromQuery[bool] = False,
    marks: FromQuery[bool] = False,
) -> ASGIApp:
    """Return output from ``offset`` of one attempt, and with ``onward`` of those after it; ``attempt=0`` is all of them.

    Followed, or with ``marks``, it is a stream of events ``log`` ({attempt, offset, data in base64, marks}) that ends with
    ``end`` (the job). A mark [offset, milliseconds since the epoch, stream] tells when output came and from where.
    Otherwise raw bytes without a gap; the headers ``Yunhe-Attempt`` and ``Yunhe-Next-Offset`` say where to go on, and an
    empty answer says that there is nothing more now. Output that begins after the offset asked for, or after the end of
    the piece before, follows a gap: what is missing was cut by the task's ``log_limit``, or lost.
    """
    found = await caller.job(job_id)
    start = LogPiece(attempt=attempt, offset=offset, data=b"")
    pieces = (_onward if onward and attempt else _as_asked)(caller.platform, found, start, follow=follow)
    if follow or marks:
        body = _log_events(caller.platform, found, pieces)
        return StreamAnswer(body, "text/event-stream", request.app.state.stopping, events=True)
    return await _one_piece(pieces, start)


def _as_asked(platform: Platform, job: Job, start: LogPiece, *, follow: bool) -> AsyncIterator[LogPiece]:
    return platform.orchestration.logs(job.id, attempt=start.attempt, offset=start.offset, follow=follow)


async def _onward(
    platform: Platform, job: Job, start: LogPiece, *, follow: bool
) -> AsyncGenerator[LogPiece, None]:
    """Yield the output of every attempt after the place that *start* names."""
    if not follow:
        for attempt in job.attempts:
            offset = start.offset if attempt.number == start.attempt else 0
            if attempt.number >= start.attempt:
                async for piece in platform.orchestration.logs(job.id, attempt=attempt.number, offset=offset):
                    yield piece
        return
    async for piece in platform.orchestration.logs(job.id, follow=True):
        seen = start.offset if piece.attempt == start.attempt else 0
        if piece.attempt >= start.attempt and piece.offset + len(piece.data) > seen:
            fresh = max(0, seen - piece.offset)
            yield after(piece, piece.offset + fresh)


async def _log_events(
    platform: Platform, job: Job, pieces: AsyncIterator[LogPiece]
) -> AsyncGenerator[bytes, None]:
    try:
        async for piece in pieces:
            yield event("log", piece)
    finally:
        await close(pieces)
    yield event("end", await platform.orchestration.job(job.id))


async def _one_piece(pieces: AsyncIterator[LogPiece], start: LogPiece) -> ASGIResponse:
    """Return as much of one attempt's output as an answer carries."""
    data, attempt, offset = bytearray(), start.attempt, start.offset
    try:
        async for piece in pieces:
            same = piece.attempt == attempt and piece.offset == offset
            if data and (not same or len(data) >= PIECE_LIMIT_BYTES):
                break
            data += piece.data
            attempt, offset = piece.attempt, piece.offset + len(piece.data)
    finally:
        await close(pieces)
    return ASGIResponse(
        body=bytes(data),
        media_type="application/octet-stream",
        headers={"Yunhe-Attempt": str(attempt), "Yunhe-Next-Offset": str(offset)},
    )


@get("/jobs/{job_id:str}/outputs", media_type="application/gzip")
async def outputs(job_id: FromPath[str], caller: TheCaller, request: ApiRequest) -> ASGIApp:
    """Fetch what the job left as outputs: a gzip-compressed tar."""
    found = await caller.job(job_id)
    archive = await begun(caller.platform.orchestration.outputs(found.id))
    return StreamAnswer(archive, "application/gzip", request.app.state.stopping)


@get("/jobs/{job_id:str}/files", media_type="application/gzip")
async def files(
    job_id: FromPath[str], caller: TheCaller, request: ApiRequest, path: FromQuery[list[str] | None] = None
) -> ASGIApp:
    """Fetch files of a running job (``path``, repeated): a gzip-compressed tar."""
    found = await caller.job(job_id, Action.RUN)
    archive = await begun(caller.platform.orchestration.files(found.id, _inside(tuple(path or ()))))
    return StreamAnswer(archive, "application/gzip", request.app.state.stopping)


def _inside(paths: tuple[str, ...]) -> tuple[str, ...]:
    """Return *paths* if none of them leaves the job's directory."""
    problems = [
        FieldProblem(
            "path", "must be relative and stay in the job's directory", msgspec.json.encode(path).decode()
        )
        for path in paths
        if path.startswith(("/", "~")) or ".." in path.split("/") or "\0" in path or not path
    ]
    if not paths:
        problems = [FieldProblem("path", "is missing")]
    if problems:
        raise InvalidInputError(
            "These files cannot be fetched.",
            remedy="Name files in the job's directory.",
            fields=tuple(problems),
        )
    return paths


router = Router("/", route_handlers=[events, logs, outputs, files], tags=["jobs"])
