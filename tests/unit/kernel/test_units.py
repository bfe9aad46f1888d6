"""Amounts as people write them: what is understood, and what is refused with a way to write it."""

import pytest

from yunhe.kernel.units import (
    parse_cpu_millis,
    parse_duration_s,
    parse_memory_mib,
    show_cpu,
    show_duration,
    show_memory,
)


@pytest.mark.parametrize(
    ("text", "millis"),
    [
        ("2", 2000),
        (2, 2000),
        (0.5, 500),
        ("0.5", 500),
        ("500m", 500),
        (" 1.25 ", 1250),
        ("0", 0),
        ("0.0001", 1),
    ],
)
def test_cores_are_read(text: str | float, millis: int) -> None:
    assert parse_cpu_millis(text) == millis


@pytest.mark.parametrize(
    ("text", "mib"),
    [
        ("16", 16384),
        (16, 16384),
        (1.5, 1536),
        ("16GB", 16384),
        ("16 GiB", 16384),
        ("512Mi", 512),
        ("512m", 512),
        ("2tb", 2 * 1024 * 1024),
        ("2048K", 2),
        ("1024K", 1),
        ("0", 0),
    ],
)
def test_memory_is_read(text: str | float, mib: int) -> None:
    assert parse_memory_mib(text) == mib


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 90), (90, 90), ("1.5h", 5400), ("2d", 172800), ("10m", 600), ("10 min", 600), ("250ms", 0.25)],
)
def test_durations_are_read(text: str | float, seconds: float) -> None:
    assert parse_duration_s(text) == seconds


ABSURD = [
    "",
    " ",
    "-1",
    "+1",
    "1e3",
    "nan",
    "inf",
    "1.",
    ".5",
    "1,5",
    "1.2.3",
    "two",
    "½",
    "٣",
    "1 2",
    "9" * 400,
]


@pytest.mark.parametrize(
    "text", [*ABSURD, "2 cores", "2M", "500 mm", True, None, float("nan"), float("inf"), -1]
)
def test_what_is_no_number_of_cores_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="write"):
        parse_cpu_millis(text)


@pytest.mark.parametrize(
    "text", [*ABSURD, "16B", "16iB", "16I", "16 bytes", "16GBB", "16GG", "16P", "16 G B", "1K", "0.0001"]
)
def test_what_is_no_amount_of_memory_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="write"):
        parse_memory_mib(text)


@pytest.mark.parametrize("text", [*ABSURD, "2 weeks", "2H", "1h30m", "10:30", "9" * 400 + "d"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="write"):
        parse_duration_s(text)


@pytest.mark.parametrize(
    ("mib", "shown"),
    [
        (0, "0 MiB"),
        (1.234, "1.23 MiB"),
        (99.94, "99.9 MiB"),
        (512, "512 MiB"),
        (1000, "1000 MiB"),
        (1023, "1023 MiB"),
        (1024, "1 GiB"),
        (1536, "1.5 GiB"),
        (1000 * 1024, "1000 GiB"),
        (1024 * 1024, "1 TiB"),
        (5000 * 1024 * 1024, "5000 TiB"),
    ],
)
def test_memory_is_shown_without_an_exponent(mib: float, shown: str) -> None:
    assert show_memory(mib) == shown


@pytest.mark.parametrize(
    ("millis", "shown"),
    [
        (0, "0"),
        (1, "0.001"),
        (500, "0.5"),
        (2000, "2"),
        (1234567, "1234.567"),
        (10**12, "1000000000"),
        (-500, "-0.5"),
    ],
)
def test_cores_are_shown_exactly(millis: int, shown: str) -> None:
    assert show_cpu(millis) == shown


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0, "0.0 s"),
        (0.84, "0.8 s"),
        (59.9, "59.9 s"),
        (59.97, "1 min"),
        (240, "4 min"),
        (3569, "59 min"),
        (3599, "1.0 h"),
        (11520, "3.2 h"),
        (172799, "2.0 d"),
        (864000, "10.0 d"),
    ],
)
def test_a_duration_is_shown_in_the_unit_people_say(seconds: float, shown: str) -> None:
    assert show_duration(seconds) == shown
