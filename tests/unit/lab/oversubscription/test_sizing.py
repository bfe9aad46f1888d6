"""The judge of sizes: it lets good sizes pass, and it notices bad ones, dear ones and flavours that win."""

import numpy as np
import pytest
from lab.oversubscription.datasets import DataSet
from lab.oversubscription.sizing import Verdict, judge_sizes, sizing_table

from yunhe.flexible.placing.tiers import BEST_TO_WORST
from yunhe.flexible.replay import LONG_LIVED
from yunhe.flexible.sizing.rightsizing import Guards
from yunhe.flexible.synthetic import Cluster, synthetic_trace
from yunhe.flexible.trace import Dimension, Floats, Trace
from yunhe.kernel.money import Tier

DAY = 288
GUARDS = Guards(unseen_start_keeps=0.0)


def eight_cores(cpu: Floats, instances: int = 10) -> Trace:
    """Instances of 8 cores that all use the same, in slots of 5 minutes from a Monday on."""
    usage = np.tile(cpu.astype(np.float32), (instances, 1))
    names = tuple(f"vm-{number}" for number in range(instances))
    return Trace(names, 345_600, 300, {Dimension.CPU: usage}, {Dimension.CPU: np.full(instances, 8.0)})


def judged(trace: Trace, tier: Tier = Tier.HIGH) -> Verdict:
    verdict = judge_sizes(trace, tier, GUARDS)
    assert verdict is not None
    return verdict


@pytest.fixture(scope="module")
def cluster() -> Trace:
    return synthetic_trace(Cluster(instances=80, days=28))


@pytest.mark.feature(
    "F02",
    file="src/yunhe/flexible/sizing/rightsizing.py",
    old="float(np.quantile(used, level))",
    new="float(np.mean(used))",
)
@pytest.mark.parametrize("tier", BEST_TO_WORST)
def test_sizes_made_on_the_past_cover_their_quantile_later_at_less_than_any_flavours(
    cluster: Trace, tier: Tier
):
    verdict = judged(cluster, tier)
    assert (verdict.weeks, verdict.instances) == (2, 80)
    assert verdict.cpu_short <= verdict.stated
    assert verdict.memory_short <= 0.001
    assert verdict.instances_short <= 0.15
    assert verdict.cost_against(verdict.with_hindsight) <= 1.25, "little dearer than had one known"
    assert verdict.cost_against(verdict.flavours) < 0.95, "flavours that leave no more short cost more"


def test_only_the_past_decides_a_size():
    calm = np.full(28 * DAY, 1.0)
    changed = calm.copy()
    changed[15 * DAY :] = 2.0
    of_calm, of_changed = (judged(eight_cores(cpu)).sized_cores for cpu in (calm, changed))
    assert np.array_equal(of_calm[0], of_changed[0])
    assert (of_calm[1] < of_changed[1]).all(), "a week later it is the past"


def test_demand_that_grows_after_sizing_is_noticed_and_its_cause_told():
    cpu = np.full(28 * DAY, 1.0)
    cpu[14 * DAY :] = 2.0
    verdict = judged(eight_cores(cpu))
    assert verdict.cpu_short == pytest.approx(0.5), "short all of the first week, sized anew for the second"
    assert verdict.instances_short == 0.5
    assert "5 of 20 instance-weeks hold half of it: sized 5.0 cores" in verdict.cause()
    assert "they then used 10.0" in verdict.cause()
    data = DataSet("grown", (eight_cores(cpu),), LONG_LIVED, "assumed")
    assert "| NO " in sizing_table([data])
    assert "- grown, high: 5 of 20" in sizing_table([data])


def test_sizes_far_above_what_was_needed_are_noticed():
    cpu = np.full(28 * DAY, 1.0)
    cpu[:DAY] = 4.0
    verdict = judged(eight_cores(cpu))
    assert verdict.cpu_short == 0
    assert verdict.cost_against(verdict.with_hindsight) == pytest.approx(4.0)


def test_flavours_can_win():
    cpu = np.full(28 * DAY, 0.9)
    cpu[:DAY] = 1.1
    verdict = judged(eight_cores(cpu))
    assert verdict.cost_against(verdict.flavours) == pytest.approx(1.1), "one core would have done"


def test_flavours_that_leave_more_short_do_not_count():
    cpu = np.full(28 * DAY, 1.1)
    verdict = judged(eight_cores(cpu))
    assert verdict.cost_against(verdict.flavours) == pytest.approx(1.1 / 2)


def test_memory_that_grows_after_sizing_is_noticed():
    calm = eight_cores(np.full(28 * DAY, 1.0))
    memory = np.full((10, 28 * DAY), 1000.0, dtype=np.float32)
    memory[0, 14 * DAY :] = 5000.0
    usage = {**calm.usage, Dimension.MEMORY: memory}
    request = {**calm.request, Dimension.MEMORY: np.full(10, 8192.0)}
    verdict = judged(Trace(calm.instances, calm.start_s, calm.period_s, usage, request))
    assert verdict.memory_short == pytest.approx(1 / 20)


def test_a_trace_without_a_week_of_past_is_named_and_not_sized():
    data = DataSet("short", (eight_cores(np.full(10 * DAY, 1.0)),), LONG_LIVED, "assumed")
    assert judge_sizes(data.traces[0], Tier.HIGH, GUARDS) is None
    assert "- short: no instance has a week before" in sizing_table([data])
