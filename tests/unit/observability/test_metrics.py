"""Metrics that are asked for: not more often than every few seconds, and one that fails costs only itself."""

from collections.abc import Mapping

import pytest
from prometheus_client.parser import text_string_to_metric_families

from yunhe.observability.metrics import SAMPLED_EVERY_S, SampledMetrics

pytestmark = pytest.mark.anyio


def sampled(text: bytes, name: str) -> dict[str, float]:
    families = {family.name: family for family in text_string_to_metric_families(text.decode())}
    return (
        {sample.labels["state"]: sample.value for sample in families[name].samples}
        if name in families
        else {}
    )


async def test_a_sample_is_kept_for_a_few_seconds() -> None:
    now, asked = [0.0], [0]

    async def sample() -> Mapping[str, float]:
        asked[0] += 1
        return {"ready": asked[0]}

    metrics = SampledMetrics(lambda: now[0])
    metrics.add("yunhe_things", "Things.", "state", sample)
    for moment, number in ((0.0, 1), (SAMPLED_EVERY_S - 0.1, 1), (SAMPLED_EVERY_S, 2)):
        now[0] = moment
        assert sampled(await metrics.exposition(), "yunhe_things") == {"ready": number}


async def test_a_sample_that_fails_is_left_out_and_counted() -> None:
    async def fail() -> Mapping[str, float]:
        raise OSError("no answer")

    async def sample() -> Mapping[str, float]:
        return {"ready": 1}

    metrics = SampledMetrics()
    metrics.add("yunhe_broken", "Broken.", "state", fail)
    metrics.add("yunhe_things", "Things.", "state", sample)
    text = await metrics.exposition()
    assert sampled(text, "yunhe_broken") == {}
    assert sampled(text, "yunhe_things") == {"ready": 1}
    assert b'yunhe_metric_sample_failures_total{metric="yunhe_broken"} 1.0' in text
