"""Tasks that end with what started them: Python 3.8 has no task groups."""

from __future__ import annotations

import asyncio
from typing import Any, Coroutine


class TaskSet:
    """Starts tasks, holds on to them, and ends those that are left."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run *work* beside the caller until it is done or the tasks is dismissed."""
        task = asyncio.get_event_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def dismiss(self) -> None:
        """Cancel every task and wait until each has ended."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=10)
