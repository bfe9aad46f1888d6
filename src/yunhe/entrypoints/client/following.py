"""Streams that outlive their connection: what was dropped is taken up again where it ended."""

from collections.abc import AsyncGenerator
from contextlib import aclosing

import msgspec

from yunhe.entrypoints.client.connection import FIRST_PAUSE_S, ApiConnection, RetryPolicy, query
from yunhe.entrypoints.client.errors import ServerUnreachableError
from yunhe.entrypoints.client.transport import ApiCall
from yunhe.kernel.errors import DatabaseUnavailableError, YunheError
from yunhe.scheduling.orchestration.jobs.model import Job, LogPiece
from yunhe.scheduling.orchestration.jobs.states import FINAL

FOLLOW_PATIENCE_S = 60.0
"""How long a stream is taken up again while the server does not answer: a restart fits."""


async def follow_changes(connection: ApiConnection, job_path: str) -> AsyncGenerator[Job, None]:
    """Yield a job now and whenever it changes, until it has ended."""
    last: Job | None = None
    patience = RetryPolicy(FOLLOW_PATIENCE_S)
    while last is None or last.state not in FINAL:
        try:
            async with aclosing(
                connection.events(ApiCall(method="GET", path=f"{job_path}/events"))
            ) as events:
                async for event in events:
                    job = msgspec.json.decode(event.data, type=Job)
                    patience = RetryPolicy(FOLLOW_PATIENCE_S)
                    if job != last:
                        last = job
                        yield job
            if last is not None and last.state not in FINAL:
                await connection.transport.sleep(FIRST_PAUSE_S)  # the server is stopping
        except (ServerUnreachableError, DatabaseUnavailableError) as error:
            await _pause(connection, patience, error)


async def follow_logs(
    connection: ApiConnection, job_path: str, attempt: int, offset: int, *, follow: bool = True
) -> AsyncGenerator[LogPiece, None]:
    """Yield output with its marks as it comes, until the job has ended and all is read; or what there is now."""
    place = _Place(attempt, offset)
    more = (("follow", "true"),) if follow else (("marks", "true"),)
    patience = RetryPolicy(FOLLOW_PATIENCE_S)
    while True:
        call = ApiCall(method="GET", path=f"{job_path}/logs", query=(*place.query(), *more))
        try:
            async with aclosing(connection.events(call)) as events:
                async for event in events:
                    if event.name == "end":
                        return
                    if event.name == "log":
                        piece = msgspec.json.decode(event.data, type=LogPiece)
                        place.move(piece.attempt, piece.offset + len(piece.data))
                        patience = RetryPolicy(FOLLOW_PATIENCE_S)
                        yield piece
            await connection.transport.sleep(FIRST_PAUSE_S)  # it ended early: the server is stopping
        except (ServerUnreachableError, DatabaseUnavailableError) as error:
            await _pause(connection, patience, error)


async def read_logs(
    connection: ApiConnection, job_path: str, attempt: int, offset: int
) -> AsyncGenerator[LogPiece, None]:
    """Yield the output there is now."""
    place = _Place(attempt, offset)
    while True:
        call = ApiCall(method="GET", path=f"{job_path}/logs", query=place.query())
        async with connection.open(call) as answer:
            data = await answer.read()
            attempt, offset = (int(answer.headers[name]) for name in ("yunhe-attempt", "yunhe-next-offset"))
        if not data:
            return
        place.move(attempt, offset)
        yield LogPiece(attempt=attempt, offset=offset - len(data), data=data)


class _Place:
    """Where in a job's output to go on."""

    def __init__(self, attempt: int, offset: int) -> None:
        self._onward = attempt == 0
        self._attempt = attempt
        self._offset = offset

    def move(self, attempt: int, offset: int) -> None:
        self._attempt, self._offset = attempt, offset

    def query(self) -> tuple[tuple[str, str], ...]:
        return query(attempt=self._attempt, offset=self._offset, onward=self._onward)


async def _pause(connection: ApiConnection, patience: RetryPolicy, error: YunheError) -> None:
    """Wait before a stream is taken up again, or give up."""
    pause_s = patience.next_pause_s()
    if pause_s is None:
        raise error
    await connection.transport.sleep(pause_s)
