"""The informer's checklist, point by point, against a server that is strict about versions."""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

import anyio
import msgspec
import pytest

from unit.infrastructure.kubernetes.fake_api import FakeApi, fake_api
from yunhe.infrastructure.kubernetes.api.client import Api
from yunhe.infrastructure.kubernetes.api.informer import Informer, Pace
from yunhe.infrastructure.kubernetes.api.kubeconfig import Access
from yunhe.infrastructure.kubernetes.api.shapes import Key, Pod
from yunhe.infrastructure.kubernetes.api.watch import EventDecoder, WatchEvent, WatchSource
from yunhe.kernel.errors import YunheError

PODS = "/api/v1/namespaces/x/pods"
QUICK = Pace(first_pause_s=0.02, longest_pause_s=0.2, lives_after_s=1.0, quiet_s=0.5)

pytestmark = pytest.mark.anyio


class Heard:
    """What an informer told, as (name, what it was, what it is) by the pod's phase."""

    def __init__(self) -> None:
        self.told: list[tuple[str, str | None, str | None]] = []

    def __call__(self, key: Key, was: Pod | None, now: Pod | None) -> None:
        self.told.append((key[1], was and was.status.phase, now and now.status.phase))

    def of(self, name: str) -> list[tuple[str | None, str | None]]:
        return [(was, now) for told, was, now in self.told if told == name]


@pytest.fixture
async def server() -> AsyncGenerator[FakeApi]:
    async with fake_api() as api:
        yield api


@asynccontextmanager
async def watching(
    server: FakeApi, heard: Heard | None = None, pace: Pace = QUICK, **selectors: str
) -> AsyncGenerator[Informer[Pod]]:
    async with Api(Access(name="fake", server=server.url)) as api, anyio.create_task_group() as group:
        informer = Informer(api, WatchSource(path=PODS, shape=Pod, **selectors), pace=pace)
        informer.store.listen(heard or Heard())
        group.start_soon(informer.run)
        await informer.wait_synced(5)
        yield informer
        group.cancel_scope.cancel()


def pod(phase: str = "Pending") -> dict[str, object]:
    return {"status": {"phase": phase}}


def phases(informer: Informer[Pod]) -> dict[str, str]:
    return {one.metadata.name: one.status.phase for one in informer.store.all()}


async def until(so: Callable[[], bool]) -> None:
    with anyio.fail_after(5):
        while not so():
            await anyio.sleep(0.01)


async def test_it_starts_with_a_streaming_list_and_follows(server: FakeApi) -> None:
    server.put(f"{PODS}/a", pod())
    async with watching(server) as informer:
        assert phases(informer) == {"a": "Pending"}
        server.put(f"{PODS}/a", pod("Running"))
        server.put(f"{PODS}/b", pod())
        await until(lambda: phases(informer) == {"a": "Running", "b": "Pending"})
        server.remove(f"{PODS}/a")
        await until(lambda: phases(informer) == {"b": "Pending"})
    assert len(server.requests) == 1
    assert "sendInitialEvents=true" in server.requests[0]
    assert "resourceVersionMatch=NotOlderThan" in server.requests[0]


@pytest.mark.parametrize("how", ["refused", "error in the stream"])
async def test_without_streaming_lists_it_pages_and_watches_from_there(server: FakeApi, how: str) -> None:
    server.lists_as_watches = how != "refused"
    server.broken_streaming_list = how != "refused"
    for number in range(1201):
        server.put(f"{PODS}/p{number:04}", pod())
    async with watching(server) as informer:
        assert len(informer.store) == 1201
        server.put(f"{PODS}/late", pod())
        await until(lambda: "late" in phases(informer))
    assert server.count("limit=500") == 3
    assert server.count("sendInitialEvents") == 1, "what the server cannot do is not asked for again"


async def test_a_page_that_expires_starts_the_list_over_in_one_piece(server: FakeApi) -> None:
    server.lists_as_watches, server.page_expires = False, True
    for number in range(700):
        server.put(f"{PODS}/p{number:03}", pod())
    async with watching(server) as informer:
        assert len(informer.store) == 700


async def test_a_bookmark_moves_the_version_it_resumes_from(server: FakeApi) -> None:
    async with watching(server):
        filled_at = server.version
        server.version += 50
        server.forgotten = server.version - 1
        # Elsewhere 50 things happened; the bookmark says so, and what was forgotten before it does not matter.
        server.send_bookmark(PODS)
        await anyio.sleep(0.1)
        server.hang_up()
        await until(lambda: len(server.requests) >= 2)
        assert f"resourceVersion={server.version}" in server.requests[1]
        assert f"resourceVersion={filled_at}" not in server.requests[1]
        await anyio.sleep(0.2)
    assert server.count("sendInitialEvents") == 1, "a bookmarked version has not expired"


@pytest.mark.parametrize("in_stream", [True, False], ids=["in the stream", "as a status"])
async def test_an_expired_version_means_a_new_list_and_tells_what_vanished(
    server: FakeApi, in_stream: bool
) -> None:
    server.expired_in_stream = in_stream
    heard = Heard()
    for name in ("stays", "changes", "goes"):
        server.put(f"{PODS}/{name}", pod())
    async with watching(server, heard) as informer:
        server.silent = True
        server.remove(f"{PODS}/goes")
        server.put(f"{PODS}/changes", pod("Running"))
        server.put(f"{PODS}/comes", pod())
        server.forget()
        server.silent = False
        server.hang_up()
        await until(
            lambda: phases(informer) == {"stays": "Pending", "changes": "Running", "comes": "Pending"}
        )
    assert heard.of("goes") == [(None, "Pending"), ("Pending", None)]
    assert heard.of("changes") == [(None, "Pending"), ("Pending", "Running")]
    assert heard.of("comes") == [(None, "Pending")]
    assert heard.of("stays") == [(None, "Pending")], "what did not change is not told again"
    assert len(server.requests) <= 4


async def test_watches_that_close_at_once_are_backed_off_and_end_in_a_new_list(server: FakeApi) -> None:
    server.put(f"{PODS}/a", pod())
    async with watching(server) as informer:
        server.closes_at_once = True
        server.hang_up()
        await anyio.sleep(1.0)
        assert server.count("watch=1") < 25, "a hot loop"
        server.closes_at_once = False
        server.put(f"{PODS}/b", pod())
        await until(lambda: "b" in phases(informer))
    assert server.count("sendInitialEvents") >= 2, "the version was taken for stale"


async def test_a_server_that_closes_is_resumed_from_where_it_was(server: FakeApi) -> None:
    heard = Heard()
    async with watching(server, heard) as informer:
        for number in range(5):
            server.put(f"{PODS}/p{number}", pod())
            await until(lambda: f"p{number}" in phases(informer))  # noqa: B023 - called before the next turn
            server.hang_up()
    assert sorted(heard.told) == [(f"p{number}", None, "Pending") for number in range(5)]
    assert server.count("sendInitialEvents") == 1


async def test_a_half_open_connection_is_noticed_and_nothing_of_it_is_missed(server: FakeApi) -> None:
    async with watching(server) as informer:
        server.silent = True
        server.put(f"{PODS}/a", pod())
        await anyio.sleep(0.2)
        assert phases(informer) == {}
        await until(lambda: len(server.requests) == 2)
        server.silent = False
        server.put(f"{PODS}/b", pod())
        await until(lambda: set(phases(informer)) == {"a", "b"})


async def test_a_server_that_is_overloaded_is_left_alone_as_long_as_it_says(server: FakeApi) -> None:
    body = {"kind": "Status", "code": 429, "reason": "TooManyRequests", "message": "later"}
    server.answers = [("watch=1", 429, {"retry-after": "1"}, body)]
    began_at = anyio.current_time()
    async with watching(server):
        assert anyio.current_time() - began_at >= 1.0
    assert len(server.requests) == 2


async def test_it_reads_only_what_it_asked_for_and_keeps_only_what_it_needs(server: FakeApi) -> None:
    server.put(f"{PODS}/a", pod() | {"spec": {"containers": [{"name": "c", "image": "x" * 1000}]}})
    async with watching(
        server, label_selector="yunhe.io/allocation", field_selector="spec.nodeName!="
    ) as informer:
        held = informer.store.get(("x", "a"))
        assert held is not None
        assert not hasattr(held.spec.containers[0], "image")
    assert "labelSelector=yunhe.io/allocation" in server.requests[0]
    assert "fieldSelector=spec.nodeName!=" in server.requests[0]


async def test_indexes_follow_what_is_held(server: FakeApi) -> None:
    async with watching(server) as informer:
        assert informer.has_synced
        informer.store.index("phase", lambda one: (one.status.phase,))
        server.put(f"{PODS}/a", pod())
        await until(lambda: len(informer.store.by("phase", "Pending")) == 1)
        server.put(f"{PODS}/a", pod("Running"))
        await until(lambda: len(informer.store.by("phase", "Running")) == 1)
        assert informer.store.by("phase", "Pending") == []
        server.remove(f"{PODS}/a")
        await until(lambda: informer.store.by("phase", "Running") == [])


async def test_what_we_wrote_is_seen_at_once_and_an_older_event_does_not_undo_it(server: FakeApi) -> None:
    heard = Heard()
    async with watching(server, heard) as informer:
        server.silent = True
        server.put(f"{PODS}/a", pod("Pending"))
        written = server.put(f"{PODS}/a", pod("Running"))
        informer.store.put(msgspec.convert(written, Pod))
        assert phases(informer) == {"a": "Running"}
        server.silent = False
        server.put(f"{PODS}/b", pod())
        await until(lambda: "b" in phases(informer))
    assert heard.of("a") == [(None, "Running")]


async def test_who_waits_for_a_server_that_is_not_there_is_told_why() -> None:
    async with (
        Api(Access(name="none", server="http://127.0.0.1:1")) as api,
        anyio.create_task_group() as group,
    ):
        informer = Informer(api, WatchSource(path=PODS, shape=Pod), pace=QUICK)
        group.start_soon(informer.run)
        with pytest.raises(Exception, match="cannot be reached"):
            await informer.wait_synced(0.5)
        assert informer.failing_since is not None
        group.cancel_scope.cancel()


LOGIN_PAGE = b"<html>Please log in</html>"


async def test_a_page_that_is_no_list_is_told_and_asked_for_again(server: FakeApi) -> None:
    """What a proxy with a login page in front does: the watch expires, and the list is answered by the proxy."""
    server.lists_as_watches = False
    server.put(f"{PODS}/a", pod())
    async with watching(server) as informer:
        server.answers += [(f"{PODS}?limit", 200, {}, LOGIN_PAGE)] * 3
        server.forget()
        server.hang_up()
        await until(lambda: "no Kubernetes API" in str(informer.problem))
        assert "Please log in" in str(informer.problem)
        server.put(f"{PODS}/b", pod())
        await until(lambda: phases(informer) == {"a": "Pending", "b": "Pending"})
        await until(lambda: informer.problem is None)


@pytest.mark.parametrize("kind", ["BOOKMARK", "ERROR"])
@pytest.mark.parametrize("junk", [b"[]", b'{"metadata": 7, "code": "x"}'])
async def test_an_event_whose_inside_is_junk_ends_the_watch_and_nothing_else(kind: str, junk: bytes) -> None:
    with pytest.raises(YunheError, match="no Kubernetes API"):
        decoder, event = EventDecoder(Pod), WatchEvent(kind, msgspec.Raw(junk))
        _ = decoder.bookmark(event) if kind == "BOOKMARK" else decoder.status(event)


async def test_what_one_object_makes_a_listener_do_wrong_is_told_and_the_watch_goes_on(
    server: FakeApi,
) -> None:
    class Trips(Heard):
        def __call__(self, key: Key, was: Pod | None, now: Pod | None) -> None:
            if key[1] == "bad":
                raise KeyError("what everybody else has")
            super().__call__(key, was, now)

    async with watching(server, Trips()) as informer:
        server.put(f"{PODS}/bad", pod())
        await until(lambda: "cannot be followed" in str(informer.problem))
        server.put(f"{PODS}/good", pod())
        await until(lambda: "good" in phases(informer))
