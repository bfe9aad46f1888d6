"""What a person is told of an address where no API server is."""

from pathlib import Path

import pytest
import yaml

from unit.infrastructure.kubernetes.fake_api import fake_api
from yunhe.infrastructure.contract.kind import Check
from yunhe.infrastructure.kubernetes.onboard import onboard
from yunhe.infrastructure.kubernetes.target import ClusterSettings

pytestmark = pytest.mark.anyio


def kubeconfig(folder: Path, server: str) -> str:
    path = folder / "kubeconfig"
    config = {
        "current-context": "web",
        "contexts": [{"name": "web", "context": {"cluster": "web", "user": "me"}}],
        "clusters": [{"name": "web", "cluster": {"server": server}}],
        "users": [{"name": "me", "user": {}}],
    }
    path.write_text(yaml.safe_dump(config))
    return str(path)


@pytest.mark.parametrize("page", [b"<html>Please log in</html>", b"{}", b'"pong"', b"\xff\xfe", b""])
async def test_what_answers_and_is_no_api_server_is_told_apart(tmp_path: Path, page: bytes) -> None:
    async with fake_api() as server:
        server.answers += [("GET /version", 200, {}, page)]
        settings = ClusterSettings(kubeconfig=kubeconfig(tmp_path, server.url))
        done: list[Check] = [check async for check in onboard(settings)]
    assert [(check.step, check.ok) for check in done] == [
        ("kubeconfig read", True),
        ("reachable", True),
        ("is Kubernetes", False),
    ]
    assert server.url in done[-1].detail
    assert "no Kubernetes API" in done[-1].detail
    assert "kubectl version" in done[-1].remedy
