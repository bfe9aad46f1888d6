"""A host keeps the same promises when every allocation runs in a container."""

from collections.abc import Generator

import pytest

from support.agent_roots import agent_root
from support.containers import IMAGE, ContainerStore, container_store, docker_environment
from yunhe.conformance.basic_promises import Connect
from yunhe.conformance.engine_promises import EnginePromises
from yunhe.infrastructure.contract.engine import Engine
from yunhe.infrastructure.host.engine import connect_host
from yunhe.infrastructure.host.target import LocalHost


@pytest.fixture(scope="module")
def store() -> Generator[ContainerStore, None, None]:
    with container_store() as store:
        yield store


@pytest.fixture(scope="module")
def container_host(store: ContainerStore) -> Generator[LocalHost, None, None]:
    with agent_root() as root:
        yield LocalHost(root=str(root), environment=store.environment)


@pytest.fixture(scope="module")
def docker_host() -> Generator[LocalHost, None, None]:
    with docker_environment() as environment, agent_root() as root:
        yield LocalHost(root=str(root), environment=environment)


@pytest.mark.drives("host agent with podman")
class TestHostContainerEngine(EnginePromises):
    usage_within_s = 5.0
    tick_s = 0.8  # a container may take that long to start, and a timeout counts it
    image = IMAGE

    @pytest.fixture
    def connect(self, container_host: LocalHost) -> Connect:
        async def connect() -> Engine:
            return await connect_host(container_host)

        return connect


@pytest.mark.engine
@pytest.mark.drives("host agent with docker")
class TestHostDockerEngine(EnginePromises):
    usage_within_s = 5.0
    tick_s = 0.8
    image = IMAGE

    @pytest.fixture
    def connect(self, docker_host: LocalHost) -> Connect:
        async def connect() -> Engine:
            return await connect_host(docker_host)

        return connect
