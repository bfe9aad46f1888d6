"""A project's network policy: what is left of a task's wish is within both, and nothing wider is ever let through."""

import ipaddress

from hypothesis import given
from hypothesis import strategies as st

from yunhe.kernel.confinement import Confinement, bounded, is_block, widening

PROBES = [f"10.{a}.{b}.{c}" for a in (0, 1) for b in (0, 7) for c in (0, 1, 255)]
PORTS = (1, 80, 443, 8000, 65_535)


@st.composite
def blocks(draw: st.DrawFn) -> str:
    length = draw(st.sampled_from((8, 15, 16, 24, 31, 32)))
    address = int(ipaddress.ip_address(draw(st.sampled_from(PROBES))))
    network = ipaddress.ip_network((address >> (32 - length) << (32 - length), length))
    ports = draw(st.sampled_from(("", ":443", ":80-443", ":1-65535")))
    return f"{network}{ports}"


def lets(block: str, address: str, port: int) -> bool:
    network, _, ports = block.partition(":")
    first, _, last = ports.partition("-")
    inside = ipaddress.ip_address(address) in ipaddress.ip_network(network)
    return inside and (not ports or int(first) <= port <= int(last or first))


def reach(apart: Confinement | None) -> set[tuple[str, int]]:
    """Return what a task can connect to, of some addresses and ports."""
    everything = {(address, port) for address in PROBES for port in PORTS}
    if apart is None or not (apart.network == "none" or apart.egress):
        return everything
    if apart.network == "none":
        return set()
    return {one for one in everything if any(lets(block, *one) for block in apart.egress)}


WISHES = st.builds(
    Confinement,
    network=st.sampled_from(("", "none", "host")),
    egress=st.lists(blocks(), max_size=3).map(tuple),
    privileged=st.booleans(),
)


@given(st.none() | WISHES, st.lists(blocks(), max_size=3).map(tuple))
def test_a_task_reaches_nothing_that_its_project_does_not_allow(
    wish: Confinement | None, policy: tuple[str, ...]
) -> None:
    allowed = reach(Confinement(egress=policy) if policy else Confinement(network="none"))
    kept = bounded(wish, policy)
    assert kept is not None
    assert reach(kept) <= allowed
    assert kept.network != "host"
    assert not kept.privileged
    if wish is not None and wish.network != "host":
        assert reach(kept) <= reach(wish)


@given(WISHES, st.lists(blocks(), min_size=1, max_size=3).map(tuple))
def test_what_is_not_refused_is_had_in_full(wish: Confinement, policy: tuple[str, ...]) -> None:
    if wish.network == "" and wish.egress and not widening(wish, policy):
        assert reach(bounded(wish, policy)) == reach(wish)


@given(WISHES)
def test_without_a_policy_everything_stays_as_it_was(wish: Confinement) -> None:
    assert bounded(wish, None) == wish
    assert widening(wish, None) == ()


@given(blocks())
def test_the_blocks_drawn_here_are_blocks(block: str) -> None:
    assert is_block(block)


def test_the_hosts_network_and_privileges_are_beyond_any_policy() -> None:
    wish = Confinement(network="host", privileged=True)
    assert widening(wish, ("0.0.0.0/0",)) == (("network", "host"), ("privileged", "true"))
