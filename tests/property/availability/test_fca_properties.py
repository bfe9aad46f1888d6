from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from yunhe.availability.published.clustering import fast_clusters

NAMES = [chr(ord("a") + number) for number in range(12)]
links = st.lists(st.tuples(st.sampled_from(NAMES), st.sampled_from(NAMES)), max_size=30)


@settings(max_examples=200, deadline=None)
@given(links)
def test_every_node_lies_in_exactly_one_cluster_and_only_those_without_links_are_alone(
    pairs: list[tuple[str, str]],
):
    clusters = fast_clusters(NAMES, pairs)
    assert Counter(name for cluster in clusters for name in cluster) == Counter(NAMES)
    linked = {name for a, b in pairs if a != b for name in (a, b)}
    alone = {cluster[0] for cluster in clusters if len(cluster) == 1}
    assert alone == set(NAMES) - linked


@settings(max_examples=100, deadline=None)
@given(links)
def test_a_cluster_never_joins_what_no_path_of_links_joins(pairs: list[tuple[str, str]]):
    reach = {name: {name} for name in NAMES}
    for _ in NAMES:
        for a, b in pairs:
            joined = reach[a] | reach[b]
            for name in joined:
                reach[name] = joined
    for cluster in fast_clusters(NAMES, pairs):
        assert set(cluster) <= reach[cluster[0]]
