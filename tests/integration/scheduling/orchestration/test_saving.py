"""A job that is ended has time to save its work, and what it saved is among its outputs."""

import tarfile
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from io import BytesIO
from pathlib import Path

import anyio
import pytest

from engines.pools import PoolAndImage
from support import apart
from yunhe.control.pools.model import PoolSpec
from yunhe.entrypoints.cli.views.jobs import being_ended_text
from yunhe.runtime.platform import Platform
from yunhe.runtime.start import first_key_path, running
from yunhe.scheduling.orchestration.jobs.model import Job
from yunhe.scheduling.orchestration.jobs.states import JobState
from yunhe.trading.applications.model import Submission
from yunhe.trading.demand.model import ResourceSpec, Task

pytestmark = pytest.mark.anyio

PATIENCE_S = 120.0
TRAIN = """cat > train.py <<'END'
import os, signal, sys, time

def save(number, frame):
    print("saving for at most", os.environ["YUNHE_GRACE_S"], flush=True)
    time.sleep({handler_s})
    with open("checkpoint.txt", "w") as file:
        file.write("epoch 7")
    sys.exit(0)

signal.signal(signal.SIGTERM, save)
print("training", flush=True)
while True:
    time.sleep(0.1)
END
"""
SHELL_TRAIN = """cat > train.sh <<'END'
trap 'sleep {handler_s}; printf "epoch 7" > checkpoint.txt; exit 0' TERM
echo training
while :; do sleep 0.2; done
END
"""


class Trainer:
    """Submits trainings to a platform and looks at what became of them."""

    def __init__(self, platform: Platform, *, handler_s: float = 1.0) -> None:
        self.platform = platform
        self._setup = TRAIN.replace("{handler_s}", str(handler_s))

    async def submit(self, run: str, **fields: object) -> Job:
        key = first_key_path(self.platform.settings.home).read_text().strip()
        fields = {"grace": "30s", "setup": self._setup, "outputs": ("checkpoint.txt",), **fields}
        small = ResourceSpec(cpus=0.2, memory="100MB")
        task = Task(run=run, resources=small, **fields)  # pyright: ignore[reportArgumentType]
        who = await self.platform.accounts.authenticate(key)
        job = (await self.platform.applications.submit(who, (Submission(task=task),)))[0]
        with anyio.fail_after(PATIENCE_S):
            while b"training" not in await self.log(job):
                await anyio.sleep(0.1)
        return job

    async def log(self, job: Job) -> bytes:
        return b"".join([piece.data async for piece in self.platform.orchestration.logs(job.id)])

    async def ended(self, job: Job) -> Job:
        with anyio.fail_after(PATIENCE_S):
            return [change async for change in self.platform.orchestration.changes(job.id)][-1]

    async def checkpoint(self, job: Job) -> bytes:
        archive = b"".join([chunk async for chunk in self.platform.orchestration.outputs(job.id)])
        with tarfile.open(fileobj=BytesIO(archive)) as tar:
            file = tar.extractfile("checkpoint.txt")
            assert file is not None
            return file.read()


@asynccontextmanager
async def trainer(home: Path, spec: PoolSpec, *, handler_s: float = 1.0) -> AsyncGenerator[Trainer, None]:
    async with running(apart.settings(home)) as platform:
        if spec.name not in [pool.spec.name for pool in await platform.pools.pools()]:
            checks = [check async for check in platform.pools.add(spec)]
            assert all(check.ok for check in checks), checks
        yield Trainer(platform, handler_s=handler_s)


@pytest.fixture
def here(pool_process: PoolAndImage) -> PoolSpec:
    return pool_process[0]


SHAPES = {
    "alone": "python3 train.py",
    "followed": "python3 train.py\necho went on",
    "piped": "python3 train.py 2>&1 | tee train.log\necho went on",
    "apart": "setsid python3 train.py &\nwait",
    "below": "bash -c 'python3 train.py; true'\necho went on",
    "daemon": "python3 train.py &\nuntil [ -e stop ]; do sleep 0.1; done",
}


async def test_a_stop_and_a_timeout_let_every_shape_of_script_save_its_work(
    tmp_path: Path, here: PoolSpec
) -> None:
    async with trainer(tmp_path, here) as t:
        stopped = {name: await t.submit(run) for name, run in SHAPES.items()}
        # The script ends by itself and leaves a daemon behind, which handles the signal.
        left = await t.submit("python3 train.py &\nuntil [ -e ready ]; do touch ready; sleep 1; done")
        late = await t.submit("python3 train.py", timeout="8s", name="late")
        for job in stopped.values():
            await t.platform.orchestration.stop(job.id)
        for name, job in stopped.items():
            ended = await t.ended(job)
            assert (name, ended.state) == (name, JobState.STOPPED)
            assert (name, await t.checkpoint(job)) == (name, b"epoch 7")
            assert b"saving for at most 30\n" in await t.log(job)
            assert b"went on" not in await t.log(job)
        assert (await t.ended(left)).state is JobState.SUCCEEDED
        assert await t.checkpoint(left) == b"epoch 7"
        ended = await t.ended(late)
        assert (ended.state, ended.reason) == (JobState.FAILED, "timed out after 8.0 s")
        assert await t.checkpoint(late) == b"epoch 7"


async def test_a_drain_that_stops_jobs_and_a_platform_restart_midway_lose_no_checkpoint(
    tmp_path: Path, here: PoolSpec
) -> None:
    async with trainer(tmp_path, here, handler_s=4.0) as t:
        job = await t.submit("python3 train.py", grace="50s")
        pool = await t.platform.pools.drain("here")
        assert await t.platform.orchestration.stop_on_pool(pool.id) == 1
        assert await t.platform.orchestration.stop_on_pool(pool.id) == 0
        with anyio.fail_after(PATIENCE_S):
            while b"saving" not in await t.log(job):
                await anyio.sleep(0.05)
        told = await t.platform.orchestration.job(job.id)
        assert told.state is JobState.STOPPING
        assert told.stop_by is not None
        assert 30 < told.stop_by - time.time() <= 50
        assert "stopping: forced to end in" in being_ended_text(told, now=time.time())
    async with trainer(tmp_path, here) as t:
        assert (await t.ended(job)).state is JobState.STOPPED
        assert await t.checkpoint(job) == b"epoch 7"


async def test_what_does_not_end_is_forced_when_its_grace_is_over(tmp_path: Path, here: PoolSpec) -> None:
    async with trainer(tmp_path, here) as t:
        deaf = "trap '' TERM\necho training\nwhile :; do sleep 0.1; done"
        job = await t.submit(deaf, grace="2s", setup="", outputs=())
        asked_at = time.monotonic()
        await t.platform.orchestration.stop(job.id)
        assert (await t.ended(job)).state is JobState.STOPPED
        assert time.monotonic() - asked_at >= 2.0


# A handler that needs 20 seconds, on every engine


@pytest.mark.engine
@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", ["process", "container", "slurm", "ray", "kubernetes"])
async def test_a_handler_of_20_seconds_saves_its_work_on_every_engine(
    tmp_path: Path, kind: str, request: pytest.FixtureRequest
) -> None:
    pool, more = request.getfixturevalue(f"pool_{kind}")
    async with trainer(tmp_path, pool, handler_s=20.0) as t:
        python = kind in ("process", "ray", "slurm")
        setup = {} if python else {"setup": SHELL_TRAIN.replace("{handler_s}", "20")}
        run = "python3 train.py\necho went on" if python else "sh train.sh\necho went on"
        stopped = await t.submit(run, name="stopped", **setup, **more)
        late = await t.submit(run, name="late", timeout="15s", **setup, **more)
        drained = await t.submit(run, name="drained", **setup, **more)
        ended = await t.ended(late)
        assert (ended.state, ended.reason) == (JobState.FAILED, "timed out after 15.0 s")
        await t.platform.orchestration.stop(stopped.id)
        await t.platform.orchestration.stop_on_pool((await t.platform.pools.drain(pool.name)).id)
        for job in (stopped, drained):
            assert (await t.ended(job)).state is JobState.STOPPED
        for job in (stopped, late, drained):
            assert await t.checkpoint(job) == b"epoch 7"
            assert b"went on" not in await t.log(job)
