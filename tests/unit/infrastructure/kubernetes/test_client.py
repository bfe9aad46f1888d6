"""Credentials that change, servers that are busy, and errors that say what is wrong."""

import json
import stat
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import anyio
import pytest
import yaml

from unit.infrastructure.kubernetes.fake_api import FakeApi, fake_api
from yunhe.infrastructure.kubernetes.api.answers import AlreadyThereError, ChangedMeanwhileError
from yunhe.infrastructure.kubernetes.api.client import Api
from yunhe.infrastructure.kubernetes.api.kubeconfig import Access, ExecPlugin, read_access
from yunhe.infrastructure.kubernetes.api.limiter import Limiter
from yunhe.kernel.errors import (
    ForbiddenError,
    InvalidInputError,
    NotFoundError,
    PoolUnreachableError,
    UnauthenticatedError,
)

PODS = "/api/v1/namespaces/x/pods"
BUSY: dict[str, Any] = {"kind": "Status", "code": 429, "reason": "TooManyRequests", "message": "later"}

pytestmark = pytest.mark.anyio


@pytest.fixture
async def server() -> AsyncGenerator[FakeApi]:
    async with fake_api() as api:
        yield api


async def test_a_429_is_repeated_when_the_server_says_and_everyone_waits_with_it(server: FakeApi) -> None:
    server.answers = [("POST", 429, {"retry-after": "1"}, BUSY)]
    limiter = Limiter(first=8)
    async with Api(Access(name="a", server=server.url), limiter=limiter) as api:
        began_at = anyio.current_time()
        async with anyio.create_task_group() as group:
            group.start_soon(api.create, PODS, {"metadata": {"name": "a"}})
            await anyio.sleep(0.2)
            with pytest.raises(NotFoundError):
                await api.get(f"{PODS}/nobody")
        assert anyio.current_time() - began_at >= 1.0
    assert limiter.limit < 8
    assert server.count("POST") == 2
    assert len(server.objects) == 1


async def test_a_server_that_is_always_busy_is_given_up_in_time(server: FakeApi) -> None:
    server.answers = [("GET", 429, {"retry-after": "1"}, BUSY)] * 10
    async with Api(Access(name="a", server=server.url)) as api:
        with pytest.raises(PoolUnreachableError), anyio.fail_after(3):
            await api.get(PODS, within_s=1.5)


async def test_a_limiter_lets_so_many_through_and_no_more() -> None:
    limiter = Limiter(first=3, most=3)
    now, most = 0, 0

    async def work() -> None:
        nonlocal now, most
        async with limiter.place():
            now += 1
            most = max(most, now)
            await anyio.sleep(0.01)
            now -= 1

    async with anyio.create_task_group() as group:
        for _ in range(20):
            group.start_soon(work)
    assert (now, most) == (0, 3)


async def test_requests_one_after_another_share_a_connection_and_those_at_once_have_their_own(
    server: FakeApi,
) -> None:
    async with Api(Access(name="a", server=server.url)) as api:
        for _ in range(5):
            await api.get(PODS)
        assert server.connections == 1
        async with anyio.create_task_group() as group:
            for _ in range(4):
                group.start_soon(api.get, PODS)
        assert server.connections == 4
        async with anyio.create_task_group() as group:
            for _ in range(4):
                group.start_soon(api.get, PODS)
        assert server.connections == 4
    with pytest.raises(PoolUnreachableError, match="closed"):
        await api.get(PODS)


async def test_a_request_that_is_given_up_takes_its_connection_with_it(server: FakeApi) -> None:
    async with Api(Access(name="a", server=server.url)) as api:
        server.delay_s = 0.2
        with anyio.move_on_after(0.05):
            await api.get(f"{PODS}/nobody")
        server.delay_s = 0.0
        assert b"items" in await api.get(PODS), "an answer to another question"


async def test_a_place_in_line_that_is_given_up_goes_to_the_next() -> None:
    limiter = Limiter(first=1, most=1)
    async with limiter.place():
        with anyio.move_on_after(0.05):
            async with limiter.place():
                raise AssertionError("two at once")
    with anyio.fail_after(1):
        async with limiter.place():
            pass


@pytest.mark.parametrize(
    ("code", "reason", "error"),
    [
        (401, "Unauthorized", UnauthenticatedError),
        (403, "Forbidden", ForbiddenError),
        (409, "AlreadyExists", AlreadyThereError),
        (409, "Conflict", ChangedMeanwhileError),
        (422, "Invalid", InvalidInputError),
        (503, "ServiceUnavailable", PoolUnreachableError),
    ],
)
async def test_each_refusal_is_its_own_error(
    server: FakeApi, code: int, reason: str, error: type[Exception]
) -> None:
    server.answers = [("GET", code, {}, {"kind": "Status", "code": code, "reason": reason, "message": "so"})]
    async with Api(Access(name="a", server=server.url)) as api:
        with pytest.raises(error):
            await api.get(PODS)


async def test_a_token_file_that_changed_is_read_again_when_the_old_token_is_refused(
    server: FakeApi, tmp_path: Path
) -> None:
    file = tmp_path / "token"
    file.write_text("old\n")
    async with Api(Access(name="a", server=server.url, token_file=str(file))) as api:
        await api.get(PODS)
        file.write_text("new\n")
        server.answers = [("GET", 401, {}, {"kind": "Status", "code": 401})]
        await api.get(PODS)
    assert [head["authorization"] for head in server.heads] == ["Bearer old", "Bearer old", "Bearer new"]


async def test_a_program_gives_the_token(server: FakeApi, tmp_path: Path) -> None:
    program = tmp_path / "give-token"
    answer = json.dumps({"kind": "ExecCredential", "status": {"token": "from-$WHO"}})
    program.write_text(
        f'#!/bin/sh\ntest -n "$KUBERNETES_EXEC_INFO" || exit 1\necho "{answer.replace(chr(34), chr(92) + chr(34))}"\n'
    )
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    plugin = ExecPlugin(
        api_version="client.authentication.k8s.io/v1", argv=(str(program),), environment={"WHO": "me"}
    )
    async with Api(Access(name="a", server=server.url, exec_plugin=plugin)) as api:
        await api.get(PODS)
    assert server.heads[0]["authorization"] == "Bearer from-me"


async def test_a_program_that_gives_nothing_is_named() -> None:
    plugin = ExecPlugin(api_version="v1", argv=("/bin/false",))
    async with Api(Access(name="a", server="http://127.0.0.1:1", exec_plugin=plugin)) as api:
        with pytest.raises(UnauthenticatedError, match="/bin/false"):
            await api.get(PODS)


async def test_a_change_that_was_based_on_an_older_version_is_refused(server: FakeApi) -> None:
    server.put(f"{PODS}/a", {})
    async with Api(Access(name="a", server=server.url)) as api:
        old = json.loads(await api.get(f"{PODS}/a"))["metadata"]["resourceVersion"]
        await api.patch(f"{PODS}/a", {"metadata": {"resourceVersion": old, "labels": {"x": "1"}}})
        with pytest.raises(ChangedMeanwhileError):
            await api.patch(f"{PODS}/a", {"metadata": {"resourceVersion": old, "labels": {"x": "2"}}})
    assert server.objects[f"{PODS}/a"]["metadata"]["labels"] == {"x": "1"}


async def test_what_we_apply_names_us_as_its_manager(server: FakeApi) -> None:
    async with Api(Access(name="a", server=server.url)) as api:
        await api.apply("/api/v1/namespaces/x", {"metadata": {"name": "x"}})
    assert "fieldManager=yunhe" in server.requests[0]
    assert "force" not in server.requests[0]
    assert server.heads[0]["content-type"] == "application/apply-patch+yaml"


# The kubeconfig


def kubeconfig(folder: Path, **changes: Any) -> Path:
    config: dict[str, Any] = {
        "current-context": "main",
        "contexts": [{"name": "main", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [
            {
                "name": "c",
                "cluster": {
                    "server": "https://127.0.0.1:1",
                    "tls-server-name": "api",
                    "proxy-url": "http://p:1",
                    "certificate-authority": "ca.pem",
                },
            }
        ],
        "users": [
            {
                "name": "u",
                "user": {
                    "tokenFile": "token",
                    "client-certificate-data": "Y2VydA==",
                    "client-key": "key.pem",
                },
            }
        ],
        **changes,
    }
    (folder / "ca.pem").write_text("authority")
    (folder / "key.pem").write_text("key")
    file = folder / "config"
    file.write_text(yaml.safe_dump(config))
    return file


def test_a_kubeconfig_is_read_as_kubectl_reads_it(tmp_path: Path) -> None:
    access = read_access("", str(kubeconfig(tmp_path)))
    assert access == Access(
        name="main",
        server="https://127.0.0.1:1",
        authority=b"authority",
        tls_server_name="api",
        proxy_url="http://p:1",
        certificate=b"cert",
        key=b"key",
        token_file=str(tmp_path / "token"),
    )


@pytest.mark.parametrize(
    ("context", "changes", "says"),
    [
        ("other", {}, "has no context of this name; it has main"),
        ("", {"current-context": ""}, "has no current context"),
        ("", {"users": [{"name": "u", "user": {"auth-provider": {}}}]}, "auth-provider is not supported"),
        ("", {"clusters": [{"name": "c", "cluster": {"server": "nowhere"}}]}, "is not an address"),
        ("in-cluster", {}, "runs in no pod"),
    ],
)
def test_a_kubeconfig_that_cannot_be_used_says_why(
    tmp_path: Path, context: str, changes: dict[str, Any], says: str
) -> None:
    with pytest.raises(InvalidInputError, match=says) as caught:
        read_access(context, str(kubeconfig(tmp_path, **changes)))
    assert caught.value.remedy


def test_a_kubeconfig_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="cannot be read"):
        read_access("", str(tmp_path / "nowhere"))
