"""Which devices of a node serve an ask for several kinds, when kinds overlap."""

from collections import Counter
from itertools import permutations
from random import Random

import msgspec
import pytest

from support import decision_oracle as oracle
from support.worlds import demand, node, pool, world
from yunhe.kernel.resources import Accelerators, Resources
from yunhe.scheduling.decision.compiling import compile_kernels
from yunhe.scheduling.decision.decide import decide
from yunhe.scheduling.decision.model import Placed, Waiting
from yunhe.scheduling.decision.nodes import kernels
from yunhe.scheduling.perception.model import Device
from yunhe.scheduling.perception.snapshot import Snapshot, device_shares


def gpus(*devices: Device) -> Snapshot:
    """One node with these accelerators."""
    kinds = sorted({device.kind for device in devices})
    total = [Accelerators(kind, 1000 * sum(d.kind == kind for d in devices)) for kind in kinds]
    free = [Accelerators(kind, sum(d.free_milli for d in devices if d.kind == kind)) for kind in kinds]
    shown = node(
        "n", "p", Resources(4000, 4096, 0, tuple(free)), total=Resources(4000, 4096, 0, tuple(total))
    )
    return world([pool("p")], [msgspec.structs.replace(shown, devices=devices)])


@pytest.mark.parametrize("t4_milli", [500, 1000])
@pytest.mark.parametrize("compiled", [False, True])
def test_any_kind_leaves_the_device_that_another_must_have(t4_milli: int, compiled: bool) -> None:
    here = gpus(Device("a100", 1000), Device("t4", t4_milli))
    asked = Resources(1000, 512, 0, (Accelerators("*", 500), Accelerators("a100", 1000)))
    if compiled:
        compile_kernels(kernels)
    decision = decide(demand(asked), here)
    assert isinstance(decision, Placed)
    assert decision.assignments[0].devices == (1, 0)
    after = here.after(0, asked, decision.assignments[0].devices)
    assert after.device_free_milli.tolist() == [0, t4_milli - 500]


def test_kinds_that_only_together_lack_a_device_wait_without_empty_advice() -> None:
    asked = Resources(1000, 512, 0, (Accelerators("*", 1000), Accelerators("a100", 1000)))
    decision = decide(demand(asked), gpus(Device("a100", 1000)))
    assert isinstance(decision, Waiting)
    assert "ask for :" not in decision.smallest_change
    assert decision.rejected[0].rule == "roomy"


def test_devices_are_found_exactly_when_some_matching_gives_each_share_its_own() -> None:
    """Overlapping kinds, parts and sizes of memory, against every order of the devices."""
    outcomes = Counter[tuple[bool, bool]]()
    for seed in range(400):
        rng = Random(seed)
        devices = tuple(
            Device(
                rng.choice(("a100", "t4", "h100")), rng.choice((300, 500, 1000)), rng.choice((8000, 16_000))
            )
            for _ in range(rng.randint(1, 4))
        )
        asked = tuple(
            Accelerators(
                rng.choice(("*", "a100", "a100|t4", "t4|h100")),
                rng.choice((300, 500, 1000, 1500)),
                rng.choice((0, 10_000)),
            )
            for _ in range(rng.randint(1, 3))
        )
        here = gpus(*devices)
        decision = decide(demand(Resources(1000, 512, 0, asked)), here)
        assert isinstance(decision, Placed) == _matched(devices, asked), seed
        if isinstance(decision, Placed):
            oracle.check_capacity(decision, here)
        outcomes[isinstance(decision, Placed), len(asked) > 1] += 1
    assert all(outcomes[placed, True] >= 20 for placed in (True, False)), outcomes


def _matched(devices: tuple[Device, ...], asked: tuple[Accelerators, ...]) -> bool:
    shares = [(one, milli) for one in asked for milli in device_shares(one.milli)]
    return any(
        all(
            device.free_milli >= milli
            and device.memory_free_mib >= one.memory_mib
            and (one.kind == "*" or device.kind in one.kind.split("|"))
            for device, (one, milli) in zip(order, shares, strict=False)
        )
        for order in permutations(devices)
        if len(order) >= len(shares)
    )
