"""Launching through the platform's engine is not much slower than a client that only writes the objects."""

import anyio
import pytest
from bench.kubernetes import SHARE_OF_RAW, dispatch_shares, missed

from engines.kubernetes.cluster import Options, clusters


@pytest.mark.engine  # a statement about speed: a ratio of two rates in one run, taken in turns
@pytest.mark.drives("kubernetes")
@pytest.mark.timeout(600)
def test_dispatch_to_three_api_servers_reaches_the_wanted_share_of_a_raw_client(
    kubernetes_programs: None,
) -> None:
    with clusters(3, Options(scheduler=False, controllers=False)) as made:
        shares = anyio.run(dispatch_shares, made, 60, 3)
    print(", ".join(f"{share:.0%} of {name}" for name, share in shares.items()))
    assert missed(shares) == []


def test_a_share_that_is_too_small_is_told_and_others_are_not() -> None:
    assert missed({"one": SHARE_OF_RAW, "other": 2.0}) == []
    assert missed({"one": SHARE_OF_RAW - 0.01, "other": 2.0}) == ["✗ 59% of one, 60% wanted"]
