"""One server for each module of tests, with a fake pool, two projects and a key for each role."""

from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from integration.entrypoints.api.serving import Served, add_fake_pool, serving
from yunhe.entrypoints.client import Client
from yunhe.trading.accounts.model import Role


@dataclass
class People:
    """Who calls: ann is a member of blue, vic sees it, bob is a member of red."""

    admin: Client
    ann: Client
    vic: Client
    bob: Client
    keys: dict[str, str]


@pytest.fixture(scope="module")
def settings() -> dict[str, Any]:
    """What a module of tests wants other than the defaults."""
    return {}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, settings: dict[str, Any]) -> Generator[Served]:
    home: Path = tmp_path_factory.mktemp("home")
    with serving(home, **settings) as running:
        yield running


@pytest.fixture(scope="module")
def people(served: Served) -> Generator[People]:
    admin = served.client()
    add_fake_pool(admin, cpus="4")
    keys: dict[str, str] = {}
    for project in ("blue", "red"):
        admin.create_project(project)
    for user, project, role in (
        ("ann", "blue", Role.MEMBER),
        ("vic", "blue", Role.VIEWER),
        ("bob", "red", Role.MEMBER),
    ):
        admin.set_member(project, user, role)
        keys[user] = admin.create_key(f"{user}s", user=user).text
    clients = {user: served.client(key) for user, key in keys.items()}
    yield People(admin=admin, keys=keys, **clients)
    for client in (admin, *clients.values()):
        client.close()
