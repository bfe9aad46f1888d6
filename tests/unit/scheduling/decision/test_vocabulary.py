"""Terms of the score and names of rules are written once, and whoever shows them knows all of them."""

import re
from pathlib import Path

import pytest

import yunhe
from yunhe.entrypoints.cli.views.plan import REASONS
from yunhe.scheduling.decision.filter.rules import POOL_RULES
from yunhe.scheduling.decision.model import Rule, ScoreTerm
from yunhe.scheduling.decision.score import kernels
from yunhe.scheduling.decision.score.terms import TERMS

ROOT = Path(yunhe.__file__).parent
USERS = [
    *(path for path in (ROOT / "scheduling" / "decision").rglob("*.py") if path.name != "model.py"),
    ROOT / "entrypoints" / "cli" / "views" / "plan.py",
    ROOT / "simulator" / "engine.py",
    ROOT / "trading" / "demand" / "model.py",
]
SPELT = re.compile(rf'"({"|".join([*ScoreTerm, *Rule])})"')


def test_every_rule_can_be_said_in_words() -> None:
    assert set(REASONS) == set(Rule)
    assert {rule for rule, _ in POOL_RULES} < set(Rule)


def test_every_term_has_a_worth_and_the_row_that_the_kernels_fill() -> None:
    assert list(TERMS) == list(ScoreTerm)
    assert {term: getattr(kernels, term.name) for term in ScoreTerm} == kernels.ROWS
    assert len(ScoreTerm) == kernels.HOURS


@pytest.mark.parametrize("path", USERS, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_term_and_no_rule_is_spelt_out_beside_its_enum(path: Path) -> None:
    assert not SPELT.findall(path.read_text())
