"""The made-up cluster has the properties that make real ones hard."""

import numpy as np
import pytest

from yunhe.flexible.synthetic import Cluster, synthetic_trace
from yunhe.flexible.trace import Dimension, Floats, Trace


@pytest.fixture(scope="module")
def cluster() -> Trace:
    return synthetic_trace(Cluster())


@pytest.fixture(scope="module")
def usage(cluster: Trace) -> Floats:
    return np.nan_to_num(cluster.usage[Dimension.CPU].astype(np.float64))


def test_it_is_the_same_for_the_same_seed_and_another_for_another(cluster: Trace):
    same, other = (synthetic_trace(Cluster(seed=seed)).usage[Dimension.CPU] for seed in (1, 2))
    assert np.array_equal(same, cluster.usage[Dimension.CPU], equal_nan=True)
    assert not np.array_equal(other, cluster.usage[Dimension.CPU], equal_nan=True)


def test_instances_peak_together(usage: Floats):
    assert usage.sum(axis=0).var() > 5 * usage.var(axis=1).sum()


def test_days_repeat_themselves_and_weekends_are_quiet(cluster: Trace, usage: Floats):
    office = usage[[name.startswith("office") for name in cluster.instances]].sum(axis=0)
    weekdays = office[: 5 * 288]
    assert np.corrcoef(weekdays[:-288], weekdays[288:])[0, 1] > 0.6
    assert office[5 * 288 : 7 * 288].mean() < 0.6 * weekdays.mean()


def test_there_are_bursts_and_idle_stretches(cluster: Trace, usage: Floats):
    share = usage / cluster.request[Dimension.CPU][:, None]
    assert np.median(share) < 0.15
    assert (share.max(axis=1) > 4 * np.median(share, axis=1)).mean() > 0.5


def test_load_drifts(usage: Floats):
    weeks = usage.reshape(len(usage), 3, -1).mean(axis=2)
    change = np.abs(weeks[:, 2] / weeks[:, 0] - 1)
    assert np.median(change) > 0.03


def test_nothing_uses_more_than_it_was_given(cluster: Trace, usage: Floats):
    assert (usage <= cluster.request[Dimension.CPU][:, None] + 1e-6).all()
    assert np.isnan(cluster.usage[Dimension.CPU]).any(), "and some samples are missing, as everywhere"
