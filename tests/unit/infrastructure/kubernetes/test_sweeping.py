"""Marks of what was released do not pile up in a cluster, and none goes before its time."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unit.infrastructure.kubernetes.fake_api import FakeApi, fake_api
from yunhe.infrastructure.kubernetes import sweeping
from yunhe.infrastructure.kubernetes.api.client import Api
from yunhe.infrastructure.kubernetes.api.kubeconfig import Access
from yunhe.infrastructure.kubernetes.objects import names
from yunhe.infrastructure.kubernetes.objects.records import released
from yunhe.infrastructure.kubernetes.sweeping import KEPT_S, MOST_SWEPT, ReleaseMark, Sweeper, served_marks
from yunhe.infrastructure.kubernetes.target import ClusterSettings

NOW = 2_000_000_000.0
LONG_AGO, LATELY = NOW - KEPT_S - 60, NOW - KEPT_S + 60


def at(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, tz=UTC).isoformat(timespec="seconds")


def put(
    server: FakeApi,
    name: str,
    made: float,
    *,
    ended: float = 0.0,
    state: str = "released",
    where: str = "yunhe-a",
) -> None:
    metadata = {
        "labels": {names.ALLOCATION: name, names.STATE: state},
        "creationTimestamp": at(made),
        "annotations": {names.RELEASED_AT: at(ended)} if ended else {},
    }
    server.put(f"/api/v1/namespaces/{where}/configmaps/{name}", {"metadata": metadata})


async def swept(server: FakeApi, settings: ClusterSettings | None = None) -> tuple[int, set[str]]:
    async with Api(Access(name="fake", server=server.url)) as api:
        count = await Sweeper(api, settings or ClusterSettings(), lambda: NOW).sweep()
    return count, {path.rpartition("/")[2] for path in server.objects}


@pytest.mark.anyio
async def test_only_marks_of_ours_whose_release_is_long_ago_go() -> None:
    async with fake_api() as server:
        put(server, "old", LONG_AGO)
        put(server, "old-at-home", LONG_AGO, where="yunhe")
        put(server, "ran-for-long", LONG_AGO - 1, ended=LATELY)
        put(server, "late", LONG_AGO - 1, ended=LONG_AGO)
        put(server, "new", LATELY)
        put(server, "claimed", LONG_AGO, state="claimed")
        put(server, "stopped", LONG_AGO, state="stopped")
        put(server, "of-another-platform", LONG_AGO, where="other-a")
        assert await swept(server) == (
            3,
            {"ran-for-long", "new", "claimed", "stopped", "of-another-platform"},
        )
        assert (await swept(server))[0] == 0


@pytest.mark.anyio
async def test_a_record_made_anew_under_the_name_of_an_old_mark_stays() -> None:
    async with fake_api() as server:
        put(server, "again", LONG_AGO)
        path = "/api/v1/namespaces/yunhe-a/configmaps/again"
        listed = {"metadata": {}, "items": [server.objects[path]]}
        server.remove(path)
        put(server, "again", NOW, state="claimed")
        server.answers.append(("labelSelector", 200, {}, listed))
        assert (await swept(server))[1] == {"again"}


@pytest.mark.anyio
async def test_marks_are_found_on_every_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweeping, "PAGE", 3)
    async with fake_api() as server:
        for number in range(10):
            put(server, f"m{number}", LONG_AGO if number % 2 else LATELY)
        assert (await swept(server))[1] == {f"m{number}" for number in range(0, 10, 2)}


def test_a_release_says_when() -> None:
    said = released()["metadata"]["annotations"][names.RELEASED_AT]
    assert abs(datetime.fromisoformat(said).timestamp() - datetime.now(tz=UTC).timestamp()) < 60


@given(
    ages=st.lists(st.floats(0, 3 * KEPT_S), max_size=60),
    most=st.integers(0, 30),
    round_size=st.integers(1, 40),
)
def test_what_goes_is_too_old_or_one_too_many_and_never_newer_than_what_stays(
    ages: list[float], most: int, round_size: int
) -> None:
    marks = [ReleaseMark(NOW - age, ("ns", str(number)), "") for number, age in enumerate(ages)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sweeping, "MOST_KEPT", most)
        patch.setattr(sweeping, "MOST_SWEPT", round_size)
        rest, rounds = set(marks), 0
        while gone := served_marks(rest, NOW):
            assert len(gone) <= round_size < MOST_SWEPT
            rest -= set(gone)
            rounds += 1
            newest_gone = max(mark.released_at for mark in gone)
            assert all(mark.released_at >= newest_gone for mark in rest)
    assert len(rest) <= most
    assert all(mark.released_at >= NOW - KEPT_S for mark in rest)
    young = [mark for mark in marks if mark.released_at >= NOW - KEPT_S]
    assert len(rest) == min(most, len(young))
