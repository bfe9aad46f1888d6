"""A command that runs beside a fake allocation."""

from collections import deque
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio

from yunhe.infrastructure.contract.model import ExecRequest
from yunhe.infrastructure.fake.pool import FakePool
from yunhe.infrastructure.fake.script import Process, Read, World, parse_argv, run
from yunhe.kernel.ids import AllocationId


class FakeExecSession:
    """Keeps what the command has written and what it has yet to read."""

    def __init__(self, pool: FakePool, request: ExecRequest) -> None:
        self.size = (request.rows, request.columns)
        self._pool = pool
        self._output = bytearray()
        self._input: deque[bytes] = deque()
        self._exit_code: int | None = None
        self._moved = anyio.Event()

    async def send(self, data: bytes) -> None:
        """Write to its standard input; empty closes it."""
        self._input.append(data)
        self._stir()

    async def resize(self, rows: int, columns: int) -> None:
        """Tell its terminal the new size."""
        self.size = (rows, columns)

    async def receive(self) -> bytes:
        """Return some of its output; empty once it has ended."""
        while not self._output and self._exit_code is None:
            await self._moved.wait()
        data = bytes(self._output)
        self._output.clear()
        return data

    async def wait(self) -> int:
        """Return its exit code."""
        while self._exit_code is None:
            await self._moved.wait()
        return self._exit_code

    def write(self, data: bytes) -> None:
        """Take output of the command."""
        self._output += data
        self._stir()

    async def drive(self, process: Process) -> None:
        """Run the command to its end."""
        answer: bytes | None = None
        while True:
            try:
                wanted = next(process) if answer is None else process.send(answer)
            except StopIteration as ended:
                self._exit_code = ended.value
                self._stir()
                return
            answer = await self._read() if isinstance(wanted, Read) else await self._sleep(wanted.seconds)

    async def _read(self) -> bytes:
        while not self._input:
            await self._moved.wait()
        return self._input.popleft()

    async def _sleep(self, seconds: float) -> None:
        wakes_at = self._pool.time.now() + seconds
        while self._pool.time.now() < wakes_at:
            await self._pool.changed(wakes_at)

    def _stir(self) -> None:
        self._moved.set()
        self._moved = anyio.Event()


@asynccontextmanager
async def run_beside(
    pool: FakePool, allocation_id: AllocationId, request: ExecRequest
) -> AsyncGenerator[FakeExecSession, None]:
    """Run a command in the directory, environment and cores of a running allocation."""
    allocation = pool.running(allocation_id)
    session = FakeExecSession(pool, request)
    world = World(
        envs=allocation.world.envs,
        directory=allocation.directory,
        write=session.write,
        cores=allocation.world.cores,
    )
    process = run(parse_argv(request.argv), world)
    async with anyio.create_task_group() as group:
        group.start_soon(session.drive, process)
        yield session
        group.cancel_scope.cancel()
