"""Right-sizing on real traces: sized on what came before, judged on what came after."""

from pathlib import Path

import pytest
from lab.oversubscription.datasets import load_folder
from lab.oversubscription.sizing import Verdict, judge_sizes

from yunhe.flexible.placing.tiers import BEST_TO_WORST
from yunhe.flexible.sizing.rightsizing import Guards

pytestmark = pytest.mark.engine  # minutes of computing on real traces

SETS = ("bitbrains-rnd", "opendc-traces", "azure-v1-sample")
"""Those with weeks of history; the others are of single days."""


@pytest.fixture(scope="module")
def verdicts(traces: Path) -> dict[tuple[str, str], Verdict]:
    sets, _ = load_folder(traces, SETS)
    judged = {
        (data.name, tier): judge_sizes(data.traces[0], tier, Guards())
        for data in sets
        for tier in BEST_TO_WORST
    }
    assert len(judged) == 12, "four sets in three tiers"
    return {name: verdict for name, verdict in judged.items() if verdict is not None}


@pytest.mark.feature(
    "F02",
    file="src/yunhe/flexible/sizing/rightsizing.py",
    old="float(np.quantile(used, level))",
    new="float(np.mean(used))",
)
def test_sizes_made_on_the_past_of_real_traces_cover_their_quantile_later(
    verdicts: dict[tuple[str, str], Verdict],
):
    assert len(verdicts) == 12
    covered = {name for name, verdict in verdicts.items() if verdict.cpu_short <= verdict.stated}
    assert len(covered) >= 10, f"short more often than stated: {set(verdicts) - covered}"
    for name, verdict in verdicts.items():
        assert verdict.cpu_short <= 2 * verdict.stated, name
        assert verdict.memory_short <= 0.001, name
        assert verdict.instances_short <= 0.2, name


@pytest.mark.feature(
    "F02",
    file="src/yunhe/flexible/sizing/rightsizing.py",
    old="recommended=spec,",
    new="recommended=cheapest_flavour(spec, prices),",
)
def test_tailored_sizes_cost_less_than_the_best_flavours_that_leave_no_more_short(
    verdicts: dict[tuple[str, str], Verdict],
):
    for name, verdict in verdicts.items():
        assert verdict.cost_against(verdict.flavours) < 0.9, name
        assert verdict.cost_against(verdict.with_hindsight) <= 1.3, name
