"""A burst: many jobs on one pool that end at the same moment, each with a log and outputs to bring home.

Every job waits at a gate (a named pipe, so that waiting costs nothing), then writes random bytes as its output and a
copy of them where the test can read it. What came home is compared with the copies.
"""

import os
import tarfile
import time
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import suppress
from typing import ClassVar

import anyio

from faults.campaign import Campaign, all_jobs
from yunhe.entrypoints.client.async_client import AsyncClient
from yunhe.kernel.errors import NotFoundError
from yunhe.scheduling.orchestration.jobs.model import Job
from yunhe.scheduling.orchestration.jobs.states import FINAL, JobState
from yunhe.trading.applications.model import Submission
from yunhe.trading.demand.model import ResourceSpec, Task

OUTPUT_BYTES = 300_000
LOOK_EVERY_S = 1.0
STEP_WITHIN_S = 600.0


class Burst(Campaign):
    """A platform with one pool, and jobs that end at once."""

    pools = ("one",)
    pool_options: ClassVar[dict[str, str]] = {"cpus": "100", "memory": "100GB"}
    away_s = 0.0
    """How long the server is away when the jobs end."""
    home_s = 0.0
    """From when all jobs have ended, and the server is back, until the last is in its final state."""
    problems: tuple[str, ...] = ()
    """Every output or log that is neither home byte for byte nor told as lost by its job."""

    async def run(self) -> None:
        """Run the jobs of the plan to their end and fetch what they left; then stop the server."""
        async with anyio.create_task_group() as tasks:
            for server in self.servers:
                tasks.start_soon(server.run)
            async with self.connected():
                await self.add_pools()
                os.mkfifo(self.lines / "gate", 0o666)
                (self.lines / "gate").chmod(0o666)
                await self._submit_all()
                await self._until(JobState.RUNNING)
                await self._let_them_end()
                began = time.monotonic()
                await self._until(*FINAL)
                self.home_s = time.monotonic() - began
                await self.settle()
                self.problems = tuple([problem async for problem in self._judge()])
            for server in self.servers:
                await server.stop()

    async def _submit_all(self) -> None:
        wanted = [self._submission(number) for number in range(self.plan.jobs)]
        jobs = await self.persist(lambda client: client.submit_batch(wanted, idempotency_key="burst"))
        self.jobs = {job.id: job for job in jobs}
        self.submitted = len(jobs)

    def _submission(self, number: int) -> Submission:
        copy = f'"{self.lines}/{number}.$YUNHE_ALLOCATION_ID"'
        script = [
            "#!/bin/sh",
            f"echo job {number}",
            f"cat {self.lines}/gate",
            f"head -c {OUTPUT_BYTES} /dev/urandom > result",
            f"cp result {copy}",
        ]
        return Submission(
            task=Task(
                name=f"burst-{number}",
                run="\n".join(script) + "\n",
                resources=ResourceSpec(cpus=0.1, memory="64MB"),
                outputs=("result",),
            )
        )

    async def _until(self, *states: JobState) -> None:
        with anyio.fail_after(STEP_WITHIN_S):
            while True:
                for job in await self.persist(all_jobs):
                    self.jobs[job.id] = job
                if all(job.state in states for job in self.jobs.values()):
                    return
                await anyio.sleep(LOOK_EVERY_S)

    async def _let_them_end(self) -> None:
        """Open the gate until every job has passed it, while the server is there or away."""
        async with anyio.create_task_group() as tasks:
            if self.away_s:
                for server in self.servers:
                    tasks.start_soon(server.be_away, self.away_s)
                await anyio.sleep(0.5)
            with anyio.fail_after(STEP_WITHIN_S):
                while len(self._copies()) < self.submitted:
                    with suppress(OSError):  # nobody waits there just now
                        os.close(os.open(self.lines / "gate", os.O_WRONLY | os.O_NONBLOCK))
                    await anyio.sleep(0.1)

    def _copies(self) -> dict[str, bytes]:
        """Return what each job wrote as its output, by the job's name."""
        return {
            f"burst-{path.name.partition('.')[0]}": path.read_bytes() for path in self.lines.glob("*.alloc_*")
        }

    async def _judge(self) -> AsyncGenerator[str]:
        written = self._copies()
        for job in self.jobs.values():
            if job.state is not JobState.SUCCEEDED:
                yield f"{job.name} is {job.state}: {job.reason}"
            if not job.outputs_lost and await self._output(job) != {"result": written[job.name]}:
                yield f"{job.name}: its output is lost, and the job does not say so"
            if not job.attempts[-1].log_lost and await self._log(job) != f"job {job.name[6:]}\n".encode():
                yield f"{job.name}: its log is lost, and the job does not say so"

    async def _output(self, job: Job) -> dict[str, bytes]:
        path = self.base / "fetched.tar.gz"
        try:
            await self.persist(lambda client: client.outputs(job.id, path))
        except NotFoundError:
            return {}
        with tarfile.open(path) as archive:
            files = [(member.name, archive.extractfile(member)) for member in archive]
            return {name: file.read() for name, file in files if file is not None}

    async def _log(self, job: Job) -> bytes:
        async def read(client: AsyncClient) -> bytes:
            return b"".join([piece.data async for piece in client.logs(job.id)])

        return await self.persist(read)

    def figures(self) -> str:
        states = Counter(job.state.value for job in self.jobs.values())
        lost = sum(bool(job.outputs_lost) for job in self.jobs.values())
        return (
            f"{self.submitted} jobs ended at once, server away for {self.away_s:g} s: {dict(states)}, "
            f"all home after {self.home_s:.1f} s, {lost} told as lost, {len(self.problems)} problems, in {self.base}"
        )
