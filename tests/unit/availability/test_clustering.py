from yunhe.availability.published.clustering import fast_clusters


def sizes(clusters: tuple[tuple[str, ...], ...]) -> list[int]:
    return sorted((len(cluster) for cluster in clusters), reverse=True)


def test_a_node_without_links_stays_alone():
    assert fast_clusters("abc", [("a", "b")]) == (("a", "b"), ("c",))
    assert fast_clusters("abc", []) == (("a",), ("b",), ("c",))


def test_a_clique_stays_together():
    links = [(a, b) for a in "abcd" for b in "abcd" if a < b]
    assert fast_clusters("abcd", links) == (("a", "b", "c", "d"),)


def test_a_chain_of_four_falls_into_its_two_ends():
    assert fast_clusters("abcd", [("a", "b"), ("b", "c"), ("c", "d")]) == (("a", "b"), ("c", "d"))


def test_two_cliques_joined_by_one_link_stay_two():
    links = [(a, b) for group in ("abc", "xyz") for a in group for b in group if a < b]
    assert fast_clusters("abcxyz", [*links, ("c", "x")]) == (("a", "b", "c"), ("x", "y", "z"))


def test_a_node_tied_between_two_clusters_makes_them_one():
    pairs = [("a", "b"), ("x", "y")]
    tied = [("m", "a"), ("m", "b"), ("m", "x"), ("m", "y")]
    assert sizes(fast_clusters("abmxy", [*pairs, *tied])) == [5]


def test_direction_and_repetition_of_links_do_not_matter():
    links = [("a", "b"), ("b", "c"), ("c", "d"), ("a", "d"), ("d", "e")]
    backwards = [(b, a) for a, b in links]
    assert fast_clusters("abcde", links) == fast_clusters("abcde", [*backwards, *links])


def test_clusters_of_different_weight_become_one_when_a_node_has_as_many_links_to_each():
    links = [("a", "b"), ("c", "d"), ("c", "f"), ("e", "a"), ("e", "b"), ("e", "d"), ("e", "f")]
    assert fast_clusters("abcdf", [link for link in links if "e" not in link]) == (
        ("a", "b"),
        ("c", "d", "f"),
    )
    assert sizes(fast_clusters("abcdef", links)) == [6]
