"""A short run of the fuzzer: every input is read or refused, and each kind of answer is met."""

from collections import Counter
from random import Random

import pytest
from lab.fuzz.__main__ import run
from lab.fuzz.targets import TARGETS


@pytest.mark.parametrize("name", sorted(TARGETS))
def test_every_input_is_read_or_refused(name: str) -> None:
    assert run(name, 4000, seed=7)


@pytest.mark.parametrize("name", sorted(TARGETS))
def test_the_generator_reaches_both_answers(name: str) -> None:
    came = Counter(TARGETS[name](Random(f"3/{number}")) for number in range(500))
    assert min(came["read"], came["refused"]) > 20, came
