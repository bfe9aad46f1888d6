"""Where compute is: region, coordinates and level."""

import math
from enum import StrEnum

import msgspec

EARTH_RADIUS_KM = 6371.0


class Level(StrEnum):
    """How far from users a place is."""

    END = "end"
    EDGE = "edge"
    CENTRAL = "central"


class Place(msgspec.Struct, frozen=True, omit_defaults=True):
    """A region, with coordinates where they are known."""

    region: str = ""
    latitude: float | None = None
    longitude: float | None = None
    level: Level | None = None

    @property
    def problem(self) -> str:
        """Say why this is no place on Earth; empty where it is one."""
        if not self.region and self.latitude is None and self.longitude is None:
            return "names no place; write a region such as cn-north, or @39.9,116.4"
        if (self.latitude is None) != (self.longitude is None):
            return "needs both a latitude and a longitude, or neither"
        if not (-90 <= (self.latitude or 0.0) <= 90 and -180 <= (self.longitude or 0.0) <= 180):
            return "is not on Earth; latitude is -90..90, longitude -180..180"
        return ""

    def distance_km(self, other: "Place") -> float | None:
        """Return the great-circle distance, or None where a coordinate is unknown."""
        if None in (self.latitude, self.longitude, other.latitude, other.longitude):
            return 0.0 if self.region and self.region == other.region else None
        lat1, lon1, lat2, lon2 = (
            math.radians(degrees or 0.0)
            for degrees in (self.latitude, self.longitude, other.latitude, other.longitude)
        )
        haversine = (
            math.sin((lat2 - lat1) / 2) ** 2
            + math.cos(lat1) * math.cos(lat2) * math.sin((lon2 - lon1) / 2) ** 2
        )
        return 2 * EARTH_RADIUS_KM * math.asin(math.sqrt(haversine))


def parse_place(text: str) -> Place:
    """Read ``cn-north``, ``cn-north/edge``, ``cn-north@39.9,116.4`` or ``cn-north/edge@39.9,116.4``."""
    head, at, coordinates = text.strip().partition("@")
    region, slash, level = head.partition("/")
    latitude = longitude = None
    if at:
        try:
            latitude, longitude = (float(part) for part in coordinates.split(","))
        except ValueError:
            raise ValueError(f"{coordinates!r} is not a latitude and a longitude; write 39.9,116.4") from None
    if slash and level not in set(Level):
        raise ValueError(f"{level!r} is not a level; use end, edge or central")
    place = Place(region, latitude, longitude, Level(level) if level else None)
    if place.problem:
        raise ValueError(f"{text!r} {place.problem}")
    return place
