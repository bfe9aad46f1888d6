"""Resources add up and compare like vectors."""

from hypothesis import given
from hypothesis import strategies as st

from yunhe.kernel.resources import Accelerators, Resources

amounts = st.integers(0, 10**9)
kinds = st.sampled_from(["A100", "H200", "910B"])
vectors = st.builds(
    Resources,
    cpu_millis=amounts,
    memory_mib=amounts,
    disk_mib=amounts,
    accelerators=st.lists(
        st.builds(Accelerators, kind=kinds, milli=st.integers(1, 8000), memory_mib=st.integers(0, 10**6)),
        max_size=4,
    ).map(tuple),
)


def dimensions(resources: Resources) -> dict[str, int]:
    """Return every dimension that is not zero, so that order and repetition of kinds do not matter."""
    amounts = {
        "cpu": resources.cpu_millis,
        "memory": resources.memory_mib,
        "disk": resources.disk_mib,
        **{f"milli {a.kind}": resources.accelerator_milli(a.kind) for a in resources.accelerators},
        **{f"memory {a.kind}": resources.accelerator_memory_mib(a.kind) for a in resources.accelerators},
    }
    return {name: amount for name, amount in amounts.items() if amount}


@given(vectors, vectors, vectors)
def test_the_order_of_adding_does_not_matter(a: Resources, b: Resources, c: Resources) -> None:
    assert a.plus(b) == b.plus(a)
    assert a.plus(b).plus(c) == a.plus(b.plus(c))
    assert dimensions(a.plus(Resources())) == dimensions(a)


@given(vectors, vectors)
def test_a_sum_is_the_sum_of_every_dimension(a: Resources, b: Resources) -> None:
    one, other = dimensions(a), dimensions(b)
    assert dimensions(a.plus(b)) == {name: one.get(name, 0) + other.get(name, 0) for name in one | other}


@given(vectors, vectors)
def test_something_is_covered_when_no_dimension_is_short(have: Resources, ask: Resources) -> None:
    there, wanted = dimensions(have), dimensions(ask)
    short = {
        name: amount - there.get(name, 0) for name, amount in wanted.items() if amount > there.get(name, 0)
    }
    assert dimensions(have.shortfall(ask)) == short
    assert have.covers(ask) == (not short)


@given(vectors, vectors)
def test_what_is_short_is_just_what_would_make_it_fit(have: Resources, ask: Resources) -> None:
    assert have.plus(have.shortfall(ask)).covers(ask)
    assert have.plus(ask).covers(ask)
    assert have.covers(have)
    assert have.covers(Resources())


@given(vectors, vectors, vectors)
def test_covering_is_transitive(a: Resources, b: Resources, c: Resources) -> None:
    middle = b.plus(c)
    large = a.plus(middle)
    assert large.covers(middle)
    assert middle.covers(c)
    assert large.covers(c)


def test_the_same_kind_asked_for_twice_is_counted_twice() -> None:
    half = Accelerators("A100", 600)
    assert not Resources(accelerators=(Accelerators("A100", 1000),)).covers(
        Resources(accelerators=(half, half))
    )
