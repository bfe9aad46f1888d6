"""The vault's key is rotated under a running platform, killed at any step, and loses nothing."""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
import sqlalchemy as sa
from cryptography.fernet import Fernet

from integration.scheduling.orchestration.stage import finished, with_a_pool
from yunhe.infrastructure.fake.kind import FakeKind
from yunhe.kernel.clock import system_clock
from yunhe.kernel.errors import ConflictError
from yunhe.kernel.ids import ProjectId
from yunhe.runtime import rotation
from yunhe.runtime.platform import Platform
from yunhe.runtime.rotation import RotationStep, Rotator, VaultRotation
from yunhe.runtime.settings import ProcessRole, Settings
from yunhe.runtime.start import running
from yunhe.scheduling.orchestration.jobs.model import Job
from yunhe.scheduling.orchestration.jobs.states import JobState
from yunhe.storage import vault as vaults
from yunhe.storage.database import Database
from yunhe.storage.vault import Vault, secret_place
from yunhe.trading.accounts.model import Principal
from yunhe.trading.accounts.store import SECRETS
from yunhe.trading.applications.model import Submission
from yunhe.trading.demand.model import Task

pytestmark = pytest.mark.anyio
PROJECT = ProjectId("default")
SCRIPT = 'echo "it is $TOKEN"\n'


class KilledError(BaseException):
    """The process ends here, with nothing cleaned up."""


class Scene:
    """A home, its database, and what a test does to them."""

    def __init__(self, url: str, home: Path) -> None:
        self.url = url
        self.home = home
        self.key = home / "vault.key"
        self.kind = FakeKind()

    @asynccontextmanager
    async def platform(self, role: ProcessRole = ProcessRole.API) -> AsyncGenerator[Platform]:
        settings = Settings(home=self.home, database_url=self.url, role=role, reserve_bytes=0)
        async with running(settings, kinds={"fake": self.kind}) as platform:
            yield platform

    async def rotate(
        self,
        until: RotationStep = RotationStep.DONE,
        say: Callable[[object], None] = print,
        settle_s: float = 0.0,
    ) -> VaultRotation:
        database = Database(self.url)
        try:
            return await Rotator(self.key, database, system_clock, say=say, settle_s=settle_s).rotate(until)
        finally:
            database.close()

    async def change(self, statement: sa.Update) -> None:
        database = Database(self.url)
        await database.write(lambda connection: connection.execute(statement))
        database.close()

    async def sealed(self) -> dict[tuple[str, str], str]:
        database = Database(self.url)
        rows = await database.read(lambda connection: connection.execute(sa.select(SECRETS)).all())
        database.close()
        return {(row.project_id, row.name): row.sealed for row in rows}


@pytest.fixture
def scene(database_url: str, tmp_path: Path) -> Scene:
    return Scene(database_url, tmp_path)


async def submitted(platform: Platform, who: Principal) -> Job:
    (job,) = await platform.applications.submit(
        who, (Submission(task=Task(name="task", run=SCRIPT, secrets=("TOKEN",))),)
    )
    return job


async def said(platform: Platform, job: Job) -> str:
    assert (await finished(platform, job)).state is JobState.SUCCEEDED
    pieces = [piece async for piece in platform.orchestration.logs(job.id)]
    return b"".join(piece.data for piece in pieces).decode()


async def test_a_job_submitted_before_runs_after_the_rotation_and_servers_take_up_the_key(
    scene: Scene,
) -> None:
    async with scene.platform() as platform:
        who = await with_a_pool(platform)
        await platform.accounts.set_secret(who, PROJECT, "TOKEN", "early")
        before = await submitted(platform, who)
        done = await scene.rotate()
        assert (done.resealed["secret"], done.resealed["job"]) == (1, 1)
        assert {path.name for path in scene.home.glob("vault.key*")} == {"vault.key", "vault.key.lock"}
        assert {oct(path.stat().st_mode & 0o777) for path in scene.home.glob("vault.key*")} == {oct(0o600)}
        await platform.accounts.set_secret(who, PROJECT, "TOKEN", "late")  # by the server that runs
        (sealed,) = (await scene.sealed()).values()
        assert sealed.startswith(f"yv2.{done.key}.")
        after = await submitted(platform, who)
    async with scene.platform(ProcessRole.ALL) as platform:
        assert "it is early" in await said(platform, before)
        assert "it is late" in await said(platform, after)
        ended = await scene.rotate()
        assert ended.resealed["job"] == 2, "the orders of jobs that are over keep their secrets"
        assert (await platform.notary.head("audit")).signature, "the key that signs opens no more"


async def test_a_sealed_value_that_was_moved_reaches_no_job(scene: Scene) -> None:
    async with scene.platform(ProcessRole.ALL) as platform:
        who = await with_a_pool(platform)
        other = ProjectId("other")
        await platform.accounts.create_project(who, other)
        await platform.accounts.set_secret(who, other, "TOKEN", "of another project")
        await platform.accounts.set_secret(who, PROJECT, "TOKEN", "mine")
        stolen = (await scene.sealed())[other, "TOKEN"]
        await scene.change(SECRETS.update().where(SECRETS.c.project_id == PROJECT).values(sealed=stolen))
        job = await submitted(platform, who)
        async for change in platform.orchestration.changes(job.id):
            assert change.state in {JobState.PENDING, JobState.STARTING}
            if "cannot be opened" in change.reason:
                break
        await platform.orchestration.stop(job.id)
        assert (await finished(platform, job)).state is JobState.STOPPED
        with pytest.raises(ConflictError, match="secret default TOKEN") as refused:
            await scene.rotate()
        assert "forget" in (refused.value.remedy or "")
        assert (scene.home / "vault.key.old").exists(), "a key is gone that something may need"
        await platform.accounts.delete_secret(who, PROJECT, "TOKEN")
        await scene.rotate()
        assert not (scene.home / "vault.key.old").exists()


async def test_what_was_sealed_before_places_were_bound_opens_and_is_bound_by_a_rotation(
    scene: Scene,
) -> None:
    async with scene.platform() as platform:
        who = await with_a_pool(platform)
        await platform.accounts.set_secret(who, PROJECT, "TOKEN", "new")
        plain = Fernet(scene.key.read_bytes()).encrypt(b"as it was").decode()
        await scene.change(SECRETS.update().values(sealed=plain))
        before = await submitted(platform, who)
        await scene.rotate()
        (sealed,) = (await scene.sealed()).values()
        assert Vault.at(scene.key).open(sealed, *secret_place(PROJECT, "TOKEN")) == "as it was"
        with pytest.raises(vaults.SealBrokenError):
            Vault.at(scene.key).open(sealed, *secret_place("other", "TOKEN"))
    async with scene.platform(ProcessRole.ALL) as platform:
        assert "it is as it was" in await said(platform, before)


async def test_killed_at_any_step_it_goes_on_and_every_secret_opens_meanwhile(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("yunhe.storage.resealing.ROWS_AT_ONCE", 2)
    values = {f"S{n}": f"value {n}" for n in range(5)}
    async with scene.platform() as platform:
        who = await with_a_pool(platform)
        for name, value in values.items():
            await platform.accounts.set_secret(who, PROJECT, name, value)
    left = 0

    def step(*_: object) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            raise KilledError

    sync, batch = vaults._sync, rotation.reseal_batch  # pyright: ignore[reportPrivateUsage]
    monkeypatch.setattr(vaults, "_sync", lambda folder: (step(), sync(folder), step()))  # pyright: ignore[reportUnknownLambdaType]
    monkeypatch.setattr(rotation, "reseal_batch", lambda *given: (step(), batch(*given))[1])  # pyright: ignore[reportUnknownLambdaType]

    async def all_open(when: str) -> None:
        fresh = Vault.at(scene.key)
        for (project, name), sealed in (await scene.sealed()).items():
            assert fresh.open(sealed, *secret_place(project, name)) == values[name], when

    at = 0
    while True:
        at += 1
        left, key = at, scene.key.read_bytes()
        try:
            await scene.rotate(say=step)
        except KilledError:
            await all_open(f"killed at step {at}")
        else:
            break
        left = 0
        await scene.rotate()
        await all_open(f"resumed after step {at}")
        assert scene.key.read_bytes() != key
        assert not [path for path in scene.home.iterdir() if path.suffix in {".next", ".old", ".new"}]
    assert at > 20, "hardly any step was killed"


async def test_secrets_and_jobs_that_come_while_the_key_is_rotated_open_afterwards(scene: Scene) -> None:
    jobs, rounds = list[Job](), 0
    async with scene.platform() as platform:
        who = await with_a_pool(platform, cpus="64")
        await platform.accounts.set_secret(who, PROJECT, "TOKEN", "first")

        async def use() -> None:
            nonlocal rounds
            while True:
                rounds += 1
                await platform.accounts.set_secret(who, PROJECT, f"S{rounds}", "value")
                await anyio.sleep(0.02)
                if rounds % 10 == 0:
                    jobs.append(await submitted(platform, who))

        async with anyio.create_task_group() as tasks:
            for _ in range(2):
                tasks.start_soon(use)
            for _ in range(2):
                await scene.rotate(settle_s=0.3)
            tasks.cancel_scope.cancel()
    fresh = Vault.at(scene.key)
    for (project, name), sealed in (await scene.sealed()).items():
        assert fresh.open(sealed, *secret_place(project, name)) in {"first", "value"}
    assert rounds > 20
    async with scene.platform(ProcessRole.ALL) as platform:
        for job in jobs:
            assert "it is first" in await said(platform, job)


async def test_homes_of_their_own_never_meet_a_key_they_do_not_have(scene: Scene, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir(mode=0o700)
    async with scene.platform() as platform:
        who = await with_a_pool(platform)
        (other / "vault.key").write_bytes(scene.key.read_bytes())
        far = Vault.at(other / "vault.key")
        await scene.rotate(RotationStep.PREPARED)
        (other / "vault.key.next").write_bytes((scene.home / "vault.key.next").read_bytes())
        await scene.rotate(RotationStep.SWITCHED)
        await platform.accounts.set_secret(who, PROJECT, "TOKEN", "value")
        (sealed,) = (await scene.sealed()).values()
        assert far.open(sealed, *secret_place(PROJECT, "TOKEN")) == "value"
        there = Scene(scene.url, other)
        await there.rotate(RotationStep.SWITCHED)
        assert far.key_id == Vault.at(scene.key).key_id
        await scene.rotate()
        await there.rotate()
        assert sorted(path.name for path in other.iterdir()) == ["vault.key", "vault.key.lock"]
