"""Keys: they end with the key they were made with, reach no further than it, and change without anybody stopping."""

from collections.abc import AsyncGenerator

import pytest
from cryptography.fernet import Fernet

from yunhe.kernel.errors import ConflictError, ForbiddenError, InvalidInputError, UnauthenticatedError
from yunhe.kernel.ids import ProjectId
from yunhe.storage.database import Database
from yunhe.storage.migrate import migrate
from yunhe.storage.vault import Vault
from yunhe.trading.accounts import keys
from yunhe.trading.accounts.model import EVERY_PROJECT, Action, KeyScope, Principal, Role
from yunhe.trading.accounts.policy import may
from yunhe.trading.accounts.service import AccountService

pytestmark = pytest.mark.anyio


class Clock:
    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


class Scene:
    """Accounts, a clock that is set by hand, and the first key."""

    def __init__(self, accounts: AccountService, clock: Clock, first: str) -> None:
        self.accounts = accounts
        self.clock = clock
        self.first = first

    async def who(self, text: str) -> Principal:
        return await self.accounts.authenticate(text)

    async def make(self, by: str, **wish: object) -> str:
        return (await self.accounts.create_key(await self.who(by), "made", **wish)).text  # pyright: ignore[reportArgumentType]


@pytest.fixture
async def scene(database_url: str) -> AsyncGenerator[Scene]:
    database, clock, left = Database(database_url), Clock(), list[str]()
    await migrate(database)
    accounts = AccountService(database, Vault(Fernet.generate_key()), clock)
    await accounts.bootstrap(left.append)
    yield Scene(accounts, clock, left[0])
    database.close()


async def test_a_short_key_makes_none_that_outlives_it(scene: Scene) -> None:
    short = await scene.make(scene.first, expires_in_s=5.0)
    child = await scene.make(short)
    grandchild = await scene.make(child)
    with pytest.raises(InvalidInputError, match="outlive"):
        await scene.make(short, expires_in_s=3600.0)
    assert (await scene.who(grandchild)).name == "admin"
    scene.clock.now += 6
    for text in (short, child, grandchild):
        with pytest.raises(UnauthenticatedError):
            await scene.who(text)
    await scene.who(scene.first)


async def test_revoking_a_key_ends_all_that_came_from_it(scene: Scene) -> None:
    parent = await scene.make(scene.first)
    child = await scene.make(parent)
    grandchild = await scene.make(child)
    await scene.accounts.revoke_key(await scene.who(scene.first), (await scene.who(parent)).key_id)
    for text in (parent, child, grandchild):
        with pytest.raises(UnauthenticatedError):
            await scene.who(text)


async def test_an_admin_who_leaves_need_not_take_the_keys_they_made_along(scene: Scene) -> None:
    leaving = await scene.make(scene.first)
    users = await scene.make(leaving)
    admin = await scene.who(scene.first)
    await scene.accounts.revoke_key(admin, (await scene.who(leaving)).key_id, keep_children=True)
    assert (await scene.who(users)).name == "admin"
    with pytest.raises(UnauthenticatedError):
        await scene.who(leaving)
    await scene.accounts.revoke_key(admin, (await scene.who(users)).key_id)


async def test_a_scope_narrows_and_no_child_is_wider(scene: Scene) -> None:
    blue, red = ProjectId("blue"), ProjectId("red")
    admin = await scene.who(scene.first)
    for project in (blue, red):
        await scene.accounts.create_project(admin, project)
    scope = KeyScope(project_id=blue, role=Role.MEMBER, actions=(Action.SEE, Action.RUN, Action.KEYS))
    narrow = await scene.make(scene.first, scope=scope)
    who = await scene.who(narrow)
    assert may(who, Action.RUN, blue)
    assert not may(who, Action.SECRETS, blue)
    assert not may(who, Action.SEE, red)
    assert not may(who, Action.SEE, EVERY_PROJECT)
    child = await scene.who(await scene.make(narrow))
    assert child.scope == scope
    for wider in (KeyScope(project_id=red), KeyScope(actions=(Action.SECRETS,))):
        with pytest.raises(InvalidInputError):
            await scene.make(narrow, scope=wider)
    higher = await scene.who(await scene.make(narrow, scope=KeyScope(role=Role.ADMIN)))
    assert not may(higher, Action.MEMBERS, blue)
    viewer = await scene.make(scene.first, scope=KeyScope(actions=(Action.SEE,)))
    with pytest.raises(ForbiddenError):
        await scene.make(viewer)
    with pytest.raises(ForbiddenError):
        await scene.accounts.rotate_key(
            await scene.who(viewer), (await scene.who(viewer)).key_id, overlap_s=60
        )


async def test_a_key_is_rotated_without_a_moment_in_which_none_is_good(scene: Scene) -> None:
    old = await scene.make(scene.first)
    child = await scene.make(old)
    who = await scene.who(old)
    new = await scene.accounts.rotate_key(who, who.key_id, overlap_s=60)
    assert new.key.id == who.key_id
    for text in (old, new.text, child):
        await scene.who(text)
    # The answer was lost: whoever has only the old text rotates again, and keeps it until the end of the overlap.
    again = await scene.accounts.rotate_key(await scene.who(old), who.key_id, overlap_s=60)
    await scene.who(old)
    with pytest.raises(UnauthenticatedError):
        await scene.who(new.text)
    scene.clock.now += 61
    with pytest.raises(UnauthenticatedError, match="rotated"):
        await scene.who(old)
    for text in (again.text, child):
        await scene.who(text)


async def test_no_key_gets_the_text_of_one_that_it_did_not_make(scene: Scene) -> None:
    child = await scene.make(scene.first, expires_in_s=60.0)
    first = await scene.who(scene.first)
    with pytest.raises(ForbiddenError):
        await scene.accounts.rotate_key(await scene.who(child), first.key_id, overlap_s=60)
    made = await scene.accounts.rotate_key(first, (await scene.who(child)).key_id, overlap_s=0)
    with pytest.raises(UnauthenticatedError):
        await scene.who(child)
    assert (await scene.who(made.text)).key_expires_at == scene.clock.now + 60
    with pytest.raises(InvalidInputError, match="outlive"):
        await scene.accounts.rotate_key(
            await scene.who(made.text), made.key.id, overlap_s=0, expires_in_s=3600
        )


async def test_keys_are_not_made_without_end(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keys, "MOST_AN_HOUR", 8)
    for _ in range(7):
        await scene.make(scene.first)
    with pytest.raises(ConflictError, match="within the hour"):
        await scene.make(scene.first)
    scene.clock.now += 3601
    text = scene.first
    for _ in range(keys.DEEPEST - 1):
        text = await scene.make(text)
    with pytest.raises(ConflictError, match="each made with"):
        await scene.make(text)
    scene.clock.now += 3601
    monkeypatch.setattr(keys, "MOST_LIVE", 5)
    with pytest.raises(ConflictError, match="valid"):
        await scene.make(scene.first)
