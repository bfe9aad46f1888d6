"""Distance behaves like distance."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from yunhe.kernel.places import EARTH_RADIUS_KM, Level, Place, parse_place

latitudes = st.floats(-90, 90)
longitudes = st.floats(-180, 180)
spots = st.builds(Place, st.just(""), latitudes, longitudes)
regions = st.text(st.characters(exclude_characters="@/"), min_size=1).filter(lambda text: text.strip())


def km(one: Place, other: Place) -> float:
    distance = one.distance_km(other)
    assert distance is not None
    return distance


@given(spots, spots)
def test_distance_is_symmetric_and_at_most_half_way_round(one: Place, other: Place) -> None:
    assert km(one, other) == pytest.approx(km(other, one), abs=1e-6)
    assert 0 <= km(one, other) <= math.pi * EARTH_RADIUS_KM + 1e-6
    assert km(one, one) == 0


@given(spots, spots, spots)
def test_a_detour_is_never_shorter(one: Place, over: Place, other: Place) -> None:
    assert km(one, other) <= km(one, over) + km(over, other) + 1e-3


@given(latitudes, longitudes)
def test_opposite_points_are_half_way_round(latitude: float, longitude: float) -> None:
    here = Place("", latitude, longitude)
    there = Place("", -latitude, longitude - math.copysign(180, longitude))
    assert km(here, there) == pytest.approx(math.pi * EARTH_RADIUS_KM, rel=1e-6)


@given(spots, spots)
def test_distance_agrees_with_the_angle_between_vectors(one: Place, other: Place) -> None:
    def vector(place: Place) -> tuple[float, float, float]:
        latitude, longitude = math.radians(place.latitude or 0), math.radians(place.longitude or 0)
        return (
            math.cos(latitude) * math.cos(longitude),
            math.cos(latitude) * math.sin(longitude),
            math.sin(latitude),
        )

    a, b = vector(one), vector(other)
    cross = math.hypot(a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0])
    dot = sum(x * y for x, y in zip(a, b, strict=True))
    angle = math.atan2(cross, dot)
    assert km(one, other) == pytest.approx(EARTH_RADIUS_KM * angle, abs=1e-3)


@given(regions, st.none() | st.sampled_from(Level), st.none() | st.tuples(latitudes, longitudes))
def test_a_place_written_out_is_read_back(
    region: str, level: Level | None, spot: tuple[float, float] | None
) -> None:
    text = region + (f"/{level}" if level else "") + (f"@{spot[0]!r},{spot[1]!r}" if spot else "")
    place = parse_place(text)
    assert (place.level, place.latitude, place.longitude) == (level, *(spot or (None, None)))
    assert place.region.strip() == region.strip()


@given(st.text())
def test_any_text_is_a_place_or_refused(text: str) -> None:
    try:
        place = parse_place(text)
    except ValueError:
        return
    assert place.region or place.latitude is not None
