"""Denials: the first of a kind has a line, and then one a minute, with how many had none."""

from yunhe.storage.audit import Actor
from yunhe.trading.accounts.denials import LINE_EVERY_S, Denials

ANN = Actor("ann", "key-1")


def test_who_knocks_without_end_has_one_line_a_minute_with_the_number_of_knocks() -> None:
    denials = Denials()
    assert denials.count(ANN, "expired", 100.0) == 0
    assert [denials.count(ANN, "expired", 101.0 + n) for n in range(5)] == [None] * 5
    assert denials.count(ANN, "expired", 100.0 + LINE_EVERY_S) == 5
    assert denials.count(ANN, "expired", 101.0 + LINE_EVERY_S) is None


def test_one_does_not_hide_another() -> None:
    denials = Denials()
    assert denials.count(ANN, "expired", 100.0) == 0
    assert denials.count(ANN, "revoked", 100.0) == 0
    assert denials.count(Actor("bob"), "expired", 100.0) == 0
