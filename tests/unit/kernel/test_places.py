"""Places as people write them, and how far apart they are."""

import pytest

from yunhe.kernel.places import Level, Place, parse_place

BEIJING = Place("cn-north", 39.9042, 116.4074)
SHANGHAI = Place("cn-east", 31.2304, 121.4737)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("cn-north", Place("cn-north")),
        (" cn-north ", Place("cn-north")),
        ("cn-north/edge", Place("cn-north", level=Level.EDGE)),
        ("cn-north@39.9,116.4", Place("cn-north", 39.9, 116.4)),
        ("cn-north/central@-90, 180", Place("cn-north", -90, 180, Level.CENTRAL)),
        ("@39.9,116.4", Place("", 39.9, 116.4)),
        ("华北/end", Place("华北", level=Level.END)),
    ],
)
def test_a_place_is_read(text: str, place: Place) -> None:
    assert parse_place(text) == place


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "names no place"),
        ("  ", "names no place"),
        ("/edge", "names no place"),
        ("cn@", "not a latitude"),
        ("cn@1", "not a latitude"),
        ("cn@1,2,3", "not a latitude"),
        ("cn@north,east", "not a latitude"),
        ("cn@1,2@3,4", "not a latitude"),
        ("cn@91,0", "not on Earth"),
        ("cn@0,-181", "not on Earth"),
        ("cn@nan,0", "not on Earth"),
        ("cn@inf,0", "not on Earth"),
        ("cn/", "not a level"),
        ("cn/Edge", "not a level"),
        ("cn/edge/x", "not a level"),
    ],
)
def test_what_is_no_place_is_refused(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        parse_place(text)


def test_beijing_and_shanghai_are_1067_km_apart() -> None:
    assert BEIJING.distance_km(SHANGHAI) == pytest.approx(1067, abs=2)


def test_opposite_points_are_half_the_earth_apart() -> None:
    assert Place("", 10.4, 20.3).distance_km(Place("", -10.4, -159.7)) == pytest.approx(20015, abs=1)


def test_without_coordinates_only_the_same_region_is_known_to_be_near() -> None:
    assert Place("a").distance_km(Place("a")) == 0
    assert Place("a").distance_km(Place("b")) is None
    assert Place("").distance_km(Place("")) is None
    assert Place("a", 1.0, None).distance_km(BEIJING) is None
