from collections.abc import AsyncIterator
from typing import Protocol

import msgspec
import numpy as np
import pytest

from yunhe.kernel.ids import NodeId, PoolId
from yunhe.kernel.resources import Resources
from yunhe.runtime.seam import encoded, through
from yunhe.scheduling.perception.snapshot import NodeFacts, PoolFacts, Snapshot, build_snapshot

pytestmark = pytest.mark.anyio


class Order(msgspec.Struct, frozen=True):
    size: int


class Shop(Protocol):
    async def sell(self, order: Order, *, times: int = 1) -> tuple[Order, ...]: ...

    def deliver(self, parts: AsyncIterator[bytes]) -> AsyncIterator[Order]: ...


class RealShop:
    def __init__(self) -> None:
        self.seen: list[Order] = []

    async def sell(self, order: Order, *, times: int = 1) -> tuple[Order, ...]:
        self.seen.append(order)
        return (order,) * times

    async def deliver(self, parts: AsyncIterator[bytes]) -> AsyncIterator[Order]:
        async for part in parts:
            yield Order(len(part))


async def test_calls_and_streams_arrive_as_equal_values_that_are_not_the_same_objects() -> None:
    shop = RealShop()
    proxy = encoded(Shop, shop)
    order = Order(3)
    assert await proxy.sell(order, times=2) == (order, order)
    assert shop.seen == [order]
    assert shop.seen[0] is not order

    async def parts() -> AsyncIterator[bytes]:
        yield b"ab"
        yield b"c"

    assert [item async for item in proxy.deliver(parts())] == [Order(2), Order(1)]


async def test_what_cannot_be_written_down_does_not_pass() -> None:
    proxy = encoded(Shop, RealShop())
    with pytest.raises(TypeError):
        await proxy.sell(lambda: None)  # pyright: ignore[reportArgumentType]


def test_a_snapshot_passes_with_its_arrays() -> None:
    has = Resources(cpu_millis=4000, memory_mib=8192)
    pool = PoolFacts(id=PoolId("p"), name="p")
    node = NodeFacts(id=NodeId("p/n"), pool_id=PoolId("p"), total=has, free=has)
    snapshot = build_snapshot([pool], [node], version=7, taken_at=1.0)
    arrived = through(snapshot, Snapshot)
    assert arrived.version == 7
    assert arrived.pools == snapshot.pools
    assert np.array_equal(arrived.cpu_free_millis, snapshot.cpu_free_millis)
