"""An allocation's output, by byte offset, from a log that the API can only give from its beginning.

A reader that comes back reads again from the beginning and skips what it has. When the node has rotated the log, its
beginning is gone: of an allocation that has ended the whole length is known, so that what is left still gets its
right offsets; of one that runs it is refused, rather than told with wrong ones.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import NamedTuple

import anyio

from yunhe.infrastructure.contract.model import LogChunk
from yunhe.infrastructure.kubernetes.api.client import Api, Params
from yunhe.infrastructure.kubernetes.api.shapes import Key, Pod
from yunhe.infrastructure.kubernetes.files.step_marks import StepMarks
from yunhe.infrastructure.kubernetes.objects import names
from yunhe.infrastructure.kubernetes.objects.phases import final_of, has_run, is_over
from yunhe.infrastructure.kubernetes.objects.pods import path_of
from yunhe.kernel.errors import ConflictError, InvalidInputError, NotFoundError, PoolUnreachableError

FOLLOW_QUIET_S = 900.0
"""A task may say nothing for long; a connection that stays silent for longer is opened again and nothing is lost."""
READ_QUIET_S = 30.0
LOOK_EVERY_S = 0.2


async def read_log(api: Api, key: Key, marks: StepMarks, *, follow: bool) -> AsyncGenerator[bytes, None]:
    """Yield clean output from the beginning; with *follow* until the container ends or the connection does."""
    params: Params = {"container": names.CONTAINER, **({"follow": "true"} if follow else {})}
    quiet_s = FOLLOW_QUIET_S if follow else READ_QUIET_S
    async with api.stream(path_of("pods", key, "log"), params, quiet_s=quiet_s) as response:
        async for data in response.aiter_raw():
            yield marks.feed(data)  # also where nothing is left of it: a step may have begun
    if not follow and (rest := marks.end()):
        yield rest


class Look(NamedTuple):
    """How an allocation stands."""

    pod: Pod | None
    is_over: bool


class LogReader:
    """Reads one allocation's output for one caller."""

    def __init__(self, api: Api, allocation_id: str, key: Key, look: Callable[[], Look]) -> None:
        self._api = api
        self._allocation_id = allocation_id
        self._key = key
        self._look = look

    async def read(self, offset: int, *, follow: bool) -> AsyncIterator[LogChunk]:
        """Yield output from *offset*; with *follow* until all of it has been read and no more can come."""
        while True:
            pod, over = self._look()
            if pod is not None and has_run(pod):
                async for chunk in self._pass(pod, offset, follow=follow and not over):
                    offset = chunk.offset + len(chunk.data)
                    yield chunk
            if over or not follow:
                return
            await anyio.sleep(LOOK_EVERY_S)

    async def _pass(self, pod: Pod, offset: int, *, follow: bool) -> AsyncIterator[LogChunk]:
        """Yield what one connection brings beyond *offset*."""
        marks = StepMarks(self._allocation_id)
        position = 0
        try:
            async for data in read_log(self._api, self._key, marks, follow=follow):
                if position == 0 and marks.begins_with_mark is False:
                    position = await self._rotated_away(pod)
                fresh = data[max(0, offset - position) :]
                position += len(data)
                if fresh:
                    yield LogChunk(offset=position - len(fresh), data=fresh)
        except InvalidInputError:
            # The container is not there yet, or the node says it has none any more.
            if not follow and is_over(pod):
                raise NotFoundError(f"The node has let go of the log of {self._allocation_id}.") from None
        except PoolUnreachableError:
            if not follow:
                raise

    async def _rotated_away(self, pod: Pod) -> int:
        """Return how many bytes the node has dropped from the beginning."""
        final = final_of(pod)
        if final is None:
            raise ConflictError(
                f"The node has rotated the log of {self._allocation_id}; where what is left begins is not known.",
                remedy="Read it when the allocation has ended, or raise containerLogMaxSize of the kubelets.",
            )
        marks, left = StepMarks(self._allocation_id), 0
        async for data in read_log(self._api, self._key, marks, follow=False):
            left += len(data)
        return max(0, final.log_bytes - left)
