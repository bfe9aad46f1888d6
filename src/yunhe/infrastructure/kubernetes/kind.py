"""Kubernetes as a kind of engine: a cluster that a kubeconfig, or the pod we run in, gives access to."""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager

from yunhe.infrastructure.contract.engine import Engine
from yunhe.infrastructure.contract.kind import Check, Target, timed
from yunhe.infrastructure.kubernetes.target import read_target


class KubernetesKind:
    """Connects to clusters."""

    async def onboard(self, target: Target) -> AsyncIterator[Check]:
        """Yield each thing a cluster must give us, with how long it took to find out."""
        from yunhe.infrastructure.kubernetes.onboard import onboard  # noqa: PLC0415 - not before it is needed

        async for check in timed(onboard(read_target(target))):
            yield check

    @asynccontextmanager
    async def connect(self, target: Target) -> AsyncGenerator[Engine]:
        """Hold a connection that recovers by itself."""
        from yunhe.infrastructure.kubernetes.engine import open_engine  # noqa: PLC0415 - not before it is needed

        async with open_engine(read_target(target)) as engine:
            yield engine
