"""The numbers of the default method, what they were chosen on, and what the lab may therefore not report."""

from dataclasses import replace

import pytest
from lab.oversubscription import looked_at as record
from lab.oversubscription.datasets import DataSet
from lab.oversubscription.evaluation import evaluate
from lab.oversubscription.looked_at import LookedAt, Part, looked_at, without_looked_at

from yunhe.flexible.overload.margin import TUNING
from yunhe.flexible.replay import ELASTIC
from yunhe.flexible.synthetic import Cluster, synthetic_trace
from yunhe.flexible.trace import HOUR_S


@pytest.fixture(scope="module")
def data() -> DataSet:
    trace = synthetic_trace(Cluster(instances=20, days=1, period_s=900, seed=3))
    return DataSet("some", (trace,), ELASTIC, "from the trace")


def test_the_numbers_in_use_are_those_that_were_chosen():
    assert looked_at().chosen == TUNING


def test_a_window_the_numbers_were_chosen_on_is_not_reported_by_any_method(data: DataSet):
    until_s = data.traces[0].start_s + 16 * HOUR_S
    starts: dict[str, int] = {}

    def note(name: str, _stated: object, window: object, *_rest: object) -> None:
        starts[name] = min(starts.get(name, 1 << 60), window.start_s)  # pyright: ignore[reportAttributeAccessIssue]

    evaluate(replace(data, tuned_until_s=until_s), 1, 2, note)
    assert len(starts) > 10
    assert set(starts.values()) == {until_s}
    starts.clear()
    evaluate(data, 1, 1, note)
    assert max(starts.values()) < until_s


def test_other_instances_or_times_under_the_same_name_are_reported_whole(
    data: DataSet, monkeypatch: pytest.MonkeyPatch
):
    known = LookedAt(TUNING, {"some": Part(data.fingerprint(), 77)})
    monkeypatch.setattr(record, "looked_at", lambda: known)
    trace = data.traces[0]
    others = replace(data, traces=(replace(trace, instances=tuple(f"x{n}" for n in trace.instances)),))
    later = replace(data, traces=(replace(trace, start_s=trace.start_s + HOUR_S),))
    assert [one.tuned_until_s for one in without_looked_at([data, others, later])] == [77, None, None]
