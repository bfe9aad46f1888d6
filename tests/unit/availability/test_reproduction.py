import itertools
import json
import math
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction

import pytest

from unit.availability.oracle import exact_platform, least_sizes
from yunhe.availability.published import paper
from yunhe.availability.published.reproduction import (
    Cell,
    Count,
    exact_percent,
    fca_clusters,
    figure_8,
    figure_9,
    figure_10,
    grid,
    mixed_replicas,
    rounded,
    table_1,
)

SIZES = [len(submodules) for submodules in paper.MODULES.values()]
ROWS = {row.name: row.cells for row in table_1()}


def printed_and_computed(cells: tuple[Cell, ...]) -> list[tuple[str, str]]:
    return [(cell.printed_percent, cell.computed_percent) for cell in cells]


def test_the_instance_has_ten_modules_and_24_submodules():
    assert sorted(SIZES, reverse=True) == [4, 4, 4, 3, 2, 2, 2, 1, 1, 1]


def test_38_of_40_cells_of_table_1_agree_to_the_last_printed_digit():
    cells = [cell for row in table_1() for cell in row.cells]
    assert len(cells) == 40
    assert sum(cell.matches for cell in cells) == 38
    assert all(cell.matches == (cell.printed_percent == cell.computed_percent) for cell in cells)
    assert all(cell.note for cell in cells if not cell.matches)


@pytest.mark.feature(
    "A13",
    "N21",
    file="src/yunhe/availability/published/reproduction.py",
    old="tuple(len(submodules) for submodules in paper.MODULES.values()), True",
    new="(sum(len(submodules) for submodules in paper.MODULES.values()),), True",
)
def test_the_row_that_splits_nothing_is_exact():
    assert [cell.computed_percent for cell in ROWS["none"]] == [
        "84.50837", "97.50455", "99.97636", "99.99699", "99.99998"
    ]  # fmt: skip
    assert {cell.services for cell in ROWS["none"]} == {10}


REQUIREMENT_IGNORED = {
    "file": "src/yunhe/availability/published/reproduction.py",
    "old": "cost = found.cheapest(math.log(float(requirement)))",
    "new": "cost = found.cheapest(math.log(0.9))",
}
CALLED_FEASIBLE = {
    "file": "src/yunhe/availability/published/reproduction.py",
    "old": "return (1,) * found.model.submodule_count, False",
    "new": "return (1,) * found.model.submodule_count, True",
}


@pytest.mark.parametrize(
    ("row", "fall_backs", "cells"),
    [
        pytest.param("0.99", 1, "97.62740 99.02747 99.97636 99.99699 99.99998",
                     marks=pytest.mark.feature("N22", **REQUIREMENT_IGNORED), id="99"),
        pytest.param("0.999", 2, "97.62740 99.70043 99.97636 99.99699 99.99998",
                     marks=pytest.mark.feature("N23", **REQUIREMENT_IGNORED), id="99.9"),
        pytest.param("0.9995", 2, "97.62740 99.70043 99.97636 99.99699 99.99998",
                     marks=pytest.mark.feature("N24", **CALLED_FEASIBLE), id="99.95"),
        pytest.param("0.99999", 3, "97.62740 99.70043 99.99760 99.99903 99.99998",
                     marks=pytest.mark.feature("N26", **CALLED_FEASIBLE), id="99.999"),
    ],
)  # fmt: skip
def test_a_row_for_a_requirement_is_exact_and_says_where_it_falls_back(row: str, fall_backs: int, cells: str):
    assert [cell.computed_percent for cell in ROWS[row]] == cells.split()
    assert [cell.feasible for cell in ROWS[row]] == [False] * fall_backs + [True] * (5 - fall_backs)
    full = [cell.computed_percent for cell in ROWS["full"]]
    for number in range(fall_backs):
        assert ROWS[row][number].computed_percent == full[number]
        assert ROWS[row][number].services == 24


@pytest.mark.feature(
    "N25",
    file="src/yunhe/availability/published/reproduction.py",
    old="for other in _splits_of(len(sizes)):",
    new="for other in _splits_of(len(sizes) + 1):",
)
def test_the_third_cell_of_the_row_99_99_is_printed_for_a_split_that_is_not_the_best():
    cells = ROWS["0.9999"]
    assert [cell.matches for cell in cells] == [True, True, False, True, True]
    assert [cell.computed_percent for cell in cells] == [
        "97.62740", "99.70043", "99.99172", "99.99699", "99.99998"
    ]  # fmt: skip
    assert (cells[2].printed_percent, cells[2].services, cells[2].feasible) == ("99.99058", 14, True)
    assert "another split into 14 services" in cells[2].note
    # what was printed: all 4s halved and a 2 split, instead of the 3
    other = [2] * 6 + [3] + [2, 2, 1, 1] + [1, 1, 1]
    assert sum(other) == 24
    assert rounded(exact_percent(other, Fraction("0.99"), 3), 5) == "99.99058"
    assert exact_percent(other, Fraction("0.99"), 3) >= Fraction("99.99")


@pytest.mark.feature(
    "A14",
    "N27",
    file="src/yunhe/availability/published/reproduction.py",
    old="tuple(1 for submodules in paper.MODULES.values() for _ in submodules), True",
    new="tuple(1 for _ in paper.MODULES.values()), True",
)
def test_the_row_that_splits_everything_is_exact_and_its_last_cell_printed_cut_off():
    cells = ROWS["full"]
    assert [cell.matches for cell in cells] == [True, True, True, True, False]
    assert [cell.computed_percent for cell in cells[:4]] == ["97.62740", "99.70043", "99.99760", "99.99970"]
    assert rounded(exact_percent([1] * 24, Fraction("0.999"), 3), 8) == "99.99999760"
    assert "cut off" in cells[4].note


@pytest.mark.feature(
    "A15",
    "N28",
    file="src/yunhe/availability/published/clustering.py",
    old=" and self._degree[node] == self._least(other)\n",
    new="\n",
)
def test_fca_on_the_links_the_text_states_gives_the_clusters_of_the_row():
    clusters = fca_clusters()
    names = [name for submodules in paper.MODULES.values() for name in submodules]
    assert Counter(name for cluster in clusters for name in cluster) == Counter(names)
    sizes = sorted((len(cluster) for cluster in clusters), reverse=True)
    assert sizes == [7, 4, 2, 2, 2, 2, 2, 1, 1, 1]
    module_of = {name: module for module, own in paper.MODULES.items() for name in own}
    assert len({module_of[name] for name in max(clusters, key=len)}) > 1, "it mixes modules"
    assert [cell.computed_percent for cell in ROWS["FCA"]] == [
        "79.28817", "96.15107", "99.95829", "99.99459", "99.99996"
    ]  # fmt: skip
    assert all(cell.matches for cell in ROWS["FCA"])


@pytest.mark.feature(
    "N29",
    file="src/yunhe/availability/published/reproduction.py",
    old="tuple(1 for submodules in paper.MODULES.values() for _ in submodules), True",
    new="tuple(1 for _ in paper.MODULES.values()), True",
)
def test_full_none_and_fca_have_24_10_and_10_services():
    for row, services in (("full", 24), ("none", 10), ("FCA", 10)):
        assert {cell.services for cell in ROWS[row]} == {services}


@pytest.mark.feature(
    "N19",
    file="src/yunhe/availability/published/reproduction.py",
    old='exact_percent(sizes, Fraction("0.9"), instances)',
    new='exact_percent(sizes, Fraction("0.9"), instances + 1)',
)
def test_figure_8_is_reproduced():
    assert [split.computed_percent for split in figure_8()] == [65.61, 96.06, 92.91, 88.17]
    assert all(split.matches for split in figure_8())
    values = [exact_platform(split.sizes, Fraction("0.9"), split.instances_each) for split in figure_8()]
    assert [rounded(value, 4) for value in values] == ["0.6561", "0.9606", "0.9291", "0.8817"]
    assert exact_platform((1,), Fraction("0.9"), 2) == Fraction("0.99")


def counts(cells: Sequence[Count]) -> list[list[str]]:
    shown = [f"{cell.services}{'' if cell.feasible else '*'}" for cell in cells]
    return [shown[start : start + 5] for start in range(0, len(shown), 5)]


@pytest.mark.feature(
    "N30",
    file="src/yunhe/availability/published/reproduction.py",
    old="_sizes_for(a, requirement, backups + 1)",
    new="_sizes_for(a, requirement, backups)",
)
def test_figure_9_is_reproduced_and_24_is_not_called_a_solution():
    by_requirement = counts(figure_9())
    by_availability = [list(column) for column in zip(*by_requirement, strict=True)]
    assert by_availability == [
        ["24*", "24*", "24*", "24*", "24*"],
        ["14", "24*", "24*", "24*", "24*"],
        ["10", "10", "10", "14", "24*"],
        ["10", "10", "10", "10", "15"],
        ["10", "10", "10", "10", "10"],
    ]
    for column in by_availability:
        numbers = [int(text.rstrip("*")) for text in column]
        assert numbers == sorted(numbers), "counts grow with the requirement"


@pytest.mark.feature(
    "N31",
    file="src/yunhe/availability/published/paper.py",
    old='FIGURE_10_REQUIREMENT = "0.999"',
    new='FIGURE_10_REQUIREMENT = "0.99"',
)
def test_figure_10_is_reproduced_at_the_only_requirement_that_fits_its_text():
    assert counts(figure_10()) == [
        ["24*", "24*", "24*", "16", "10"],
        ["24*", "24*", "10", "10", "10"],
        ["24*", "14", "10", "10", "10"],
        ["21", "10", "10", "10", "10"],
        ["13", "10", "10", "10", "10"],
    ]
    fits: list[str] = []
    for requirement in paper.REQUIREMENTS:
        one_backup = grid(requirements=[requirement], backups=[1])
        if [cell.feasible for cell in one_backup] == [False, False, False, True, True]:
            fits.append(requirement)
    assert fits == [paper.FIGURE_10_REQUIREMENT]


@pytest.mark.feature(
    "N20",
    file="src/yunhe/availability/frontier.py",
    old="-np.expm1(log_target) * (1 + 1e-10)",
    new="-np.expm1(log_target) * 2",
)
def test_every_cell_of_the_whole_grid_is_the_least_by_exhaustive_rational_arithmetic():
    cells = grid()
    assert len(cells) == 125
    expected = [
        least_sizes(SIZES, Fraction(a), backups + 1, Fraction(requirement))
        for backups, requirement, a in itertools.product(
            (1, 2, 3, 4, 5), paper.REQUIREMENTS, paper.AVAILABILITIES
        )
    ]
    assert [cell.services if cell.feasible else None for cell in cells] == expected
    default = [cell for cell in cells if cell.backups == 2]
    assert counts(default) == counts(figure_9())


def test_mixed_replicas_need_fewer_instances_in_all_15_cells_that_equal_ones_can_meet():
    cells = mixed_replicas()
    feasible = [cell for cell in cells if cell.feasible]
    assert len(feasible) == 15
    assert all(cell.mixed_instances < cell.uniform_instances for cell in feasible)
    assert {round(cell.fewer_percent) for cell in feasible} >= {7, 53}
    known = {(95.0, 99.0): 33, (95.0, 99.9): 44, (99.0, 99.9): 26, (99.0, 99.99): 33,
             (99.0, 99.999): 38, (99.5, 99.999): 33, (90.0, 99.99): 79}  # fmt: skip
    found = {(cell.submodule_percent, cell.requirement_percent): cell.mixed_instances for cell in cells}
    assert {key: found[key] for key in known} == known
    assert sum(cell.mixed_services == 10 for cell in cells) == 24


def test_rounding_is_from_the_exact_value():
    assert rounded(Fraction(1, 3), 5) == "0.33333"
    assert rounded(Fraction("99.999995"), 5) == "100.00000"
    assert rounded(Fraction("99.9999949999999999999"), 5) == "99.99999"
    assert json.loads(rounded(Fraction("97.6274"), 5)) == pytest.approx(97.6274)
    assert math.isclose(float(rounded(Fraction(7, 3), 2)), 2.33)
