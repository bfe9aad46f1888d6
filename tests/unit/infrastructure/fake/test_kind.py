"""Fake pools can be onboarded and connected to like any other."""

import pytest

from yunhe.infrastructure.contract.kind import Kind, Target
from yunhe.infrastructure.fake.faults import Fault
from yunhe.infrastructure.fake.kind import FakeKind
from yunhe.kernel.errors import PoolUnreachableError
from yunhe.kernel.resources import Resources

pytestmark = pytest.mark.anyio


async def test_every_connection_to_one_address_sees_the_same_pool() -> None:
    kind: Kind = FakeKind()
    target = Target(address="a", options={"nodes": "2", "cpus": "4", "memory": "2GB"})
    async with kind.connect(target) as first, kind.connect(target) as second:
        nodes = (await first.inventory()).nodes
        assert [node.total for node in nodes] == [Resources(4000, 2048, 102_400)] * 2
        assert (await second.inventory()).nodes == nodes
    async with kind.connect(Target(address="b")) as other:
        assert len((await other.inventory()).nodes) == 1


async def test_faults_of_a_site_meet_whoever_is_connected() -> None:
    kind = FakeKind()
    target = Target(address="a")
    async with kind.connect(target) as engine:
        kind.site(target).faults.inject("describe", Fault.UNHEARD)
        with pytest.raises(PoolUnreachableError):
            await engine.describe()
        assert (await engine.describe()).engine == "fake"


@pytest.mark.parametrize("options", [{"cpus": "many"}, {"memory": "4XB"}, {"nodes": "x"}])
async def test_an_option_it_cannot_read_fails_onboarding(options: dict[str, str]) -> None:
    checks = [check async for check in FakeKind().onboard(Target(address="a", options=options))]
    assert [check.ok for check in checks] == [False]
    assert checks[0].detail
    assert checks[0].remedy
