"""The compiled packer against an obvious one, and what must hold of every estimator."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lab.oversubscription.printed import as_printed, convolution, larger_of_sigma_and_percentiles

from yunhe.flexible.history import History
from yunhe.flexible.overload.estimators import (
    EstimateRequest,
    Estimator,
    aligned,
    fixed_ratio,
    n_sigma,
    recent,
    sum_of_percentiles,
)
from yunhe.flexible.overload.margin import limits_with_margin
from yunhe.flexible.placing.packing import first_fit, host_usage, limits_at
from yunhe.flexible.profiles.histogram import Binning
from yunhe.flexible.trace import Ints, hour_of_week

ESTIMATORS = (
    fixed_ratio(2),
    sum_of_percentiles(0.95),
    aligned(),
    aligned(1.0),
    n_sigma(3),
    larger_of_sigma_and_percentiles(2, 0.9),
    convolution(),
    convolution(Binning.CEIL, 0.5),
    convolution(by_hour=True),
    as_printed(),
    recent(aligned(0.9), 3600),
)


@st.composite
def histories(draw: st.DrawFn) -> History:
    """A few instances with correlated, spiky use on a clock that crosses hours."""
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    count, slots = draw(st.integers(1, 9)), draw(st.integers(13, 40))
    request = random.choice([1.0, 2.0, 4.0], count)
    shared = random.random(slots) ** 3
    share = np.clip(0.5 * shared + 0.5 * random.random((count, slots)) ** 4, 0, 1)
    series = (request[:, None] * share).astype(np.float32)
    hours = hour_of_week(np.arange(slots) * 300)
    return History(series, hours, request, np.ones(count, dtype=bool), 300)


def obvious_first_fit(
    history: History, order: Ints, estimator: Estimator, question: EstimateRequest, limit: float
) -> Ints:
    """Try each host in turn with the definition of the estimator."""
    placed = np.full(len(order), -1)
    groups: list[list[int]] = []
    for one in order:
        for host, members in enumerate([*groups, []]):
            group = history.of(np.array([*members, one]))
            if not members or estimator.demand(group, question) <= limit + 1e-9:
                if not members:
                    groups.append([])
                groups[host].append(int(one))
                placed[one] = host
                break
    return placed


def packed(
    history: History, order: Ints, estimator: Estimator, question: EstimateRequest, limit: float
) -> Ints:
    load = estimator.load(history, question)
    hosts = len(order)
    return first_fit(order, load, limits_at(np.full(hosts, limit), load, np.full(hosts, question.capacity)))


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda one: one.name)
@given(history=histories(), seed=st.integers(0, 99), stated=st.sampled_from([0.01, 0.1, 0.25]))
@settings(max_examples=15)
def test_the_packer_places_as_the_obvious_loop_does(
    estimator: Estimator, history: History, seed: int, stated: float
):
    order = np.random.default_rng(seed).permutation(len(history.request))
    question = EstimateRequest(stated, 6.0)
    fast = packed(history, order, estimator, question, 4.3)
    assert fast.tolist() == obvious_first_fit(history, order, estimator, question, 4.3).tolist()


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda one: one.name)
@given(history=histories(), limits=st.tuples(st.floats(0.5, 8), st.floats(0.5, 8)))
@settings(max_examples=15)
def test_more_capacity_never_rejects_what_less_accepted(
    estimator: Estimator, history: History, limits: tuple[float, float]
):
    small, large = sorted(limits)
    whole = np.arange(len(history.request))
    question = EstimateRequest(0.05, 8.0)
    load = estimator.load(history, question)
    for count in range(1, len(whole) + 1):
        demand = estimator.demand(history.of(whole[:count]), question)
        accepted = {
            limit: first_fit(whole[:count], load, limits_at(np.array([limit]), load, np.array([8.0])))
            for limit in (small, large)
        }
        all_in_small = (accepted[small][:count] == 0).all()
        assert not (all_in_small and (accepted[large][:count] != 0).any())
        if demand <= small:
            assert demand <= large


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda one: one.name)
@given(history=histories(), stated=st.tuples(st.floats(0.001, 0.4), st.floats(0.001, 0.4)))
@settings(max_examples=15)
def test_demand_never_rises_when_more_overload_is_allowed(
    estimator: Estimator, history: History, stated: tuple[float, float]
):
    strict, loose = sorted(stated)
    question = EstimateRequest(strict, 8.0)
    assert (
        estimator.demand(history, EstimateRequest(loose, 8.0)) <= estimator.demand(history, question) + 1e-9
    )


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda one: one.name)
def test_an_instance_larger_than_a_host_is_never_placed_and_a_lone_one_always_is(estimator: Estimator):
    series = np.full((2, 20), 3.0, dtype=np.float32)
    history = History(
        series, hour_of_week(np.arange(20) * 300), np.array([4.0, 9.0]), np.ones(2, dtype=bool), 300
    )
    placed = packed(history, np.array([1, 0]), estimator, EstimateRequest(0.01, 8.0), 0.1)
    assert placed.tolist() == [0, -1]


@given(histories(), st.integers(0, 99))
@settings(max_examples=20)
def test_the_use_of_hosts_is_the_sum_over_their_instances(history: History, seed: int):
    random = np.random.default_rng(seed)
    placement = random.integers(-1, 3, len(history.request))
    usage = history.series.astype(np.float64)
    expected = [usage[placement == host].sum(axis=0) for host in range(int(placement.max(initial=-1)) + 1)]
    found = host_usage(placement, usage)
    assert found.shape[0] == len(expected)
    assert all(np.allclose(a, b) for a, b in zip(found, expected, strict=True))


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda one: one.name)
@given(history=histories(), seed=st.integers(0, 99), margin=st.floats(0.6, 2.3))
@settings(max_examples=25)
def test_no_margin_makes_a_rule_need_more_hosts_than_requests_alone(
    estimator: Estimator, history: History, seed: int, margin: float
):
    order = np.random.default_rng(seed).permutation(len(history.request))
    question = EstimateRequest(0.01, 6.0)
    load = estimator.load(history, question)
    placed = first_fit(order, load, limits_with_margin(len(order), load, 6.0, margin))
    one_to_one = packed(history, order, fixed_ratio(1), question, 6.0)
    assert placed.max() <= one_to_one.max()
    assert (placed >= 0).all()
    for host in range(int(placed.max()) + 1):
        members = np.flatnonzero(placed == host)
        by_request = history.request[members].sum() <= 6.0
        by_rule = margin * estimator.demand(history.of(members), question) <= 6.0 * (1 + 1e-6) + 1e-3
        assert by_request or by_rule, "nothing but the rule or the requests lets an instance in"


@given(history=histories(), seed=st.integers(0, 99), margin=st.floats(0.6, 2.3))
@settings(max_examples=25)
def test_on_given_hosts_no_margin_places_less_than_requests_alone(history: History, seed: int, margin: float):
    order = np.random.default_rng(seed).permutation(len(history.request))
    question = EstimateRequest(0.01, 5.0)
    load = aligned(1.0).load(history, question)
    placed = first_fit(order, load, limits_with_margin(2, load, 5.0, margin))
    plain = fixed_ratio(1).load(history, question)
    one_to_one = first_fit(order, plain, limits_at(np.full(2, 5.0), plain, np.full(2, 5.0)))
    assert history.request[placed >= 0].sum() >= history.request[one_to_one >= 0].sum() - 1e-6


def test_a_firm_rule_holds_where_the_requests_fit():
    """Memory that is never overcommitted: three instances fit by CPU, two by memory."""
    series = np.full((3, 20), 1.0, dtype=np.float32)
    history = History(series, hour_of_week(np.arange(20) * 300), np.ones(3), np.ones(3, dtype=bool), 300)
    load = aligned(1.0).load(history, EstimateRequest(0.01, 8.0))
    memory = np.full((1, 3), 40.0)
    load = replace(load, weights=memory, firm=1)
    limits = replace(limits_with_margin(3, load, 8.0, 4.0), weights=np.full((1, 3), 100.0))
    assert first_fit(np.arange(3), load, limits).tolist() == [0, 0, 1]
    assert first_fit(np.arange(3), replace(load, weights=memory / 2), limits).tolist() == [0, 0, 0]
