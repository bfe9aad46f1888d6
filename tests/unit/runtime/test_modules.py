import pathlib

import pytest

import yunhe
from yunhe.availability.published import paper
from yunhe.runtime.modules import MODULES, SUBMODULES, start_order

COUNTS = {
    "interconnection": 2,
    "trade": 4,
    "operations": 4,
    "encapsulation": 2,
    "decision": 3,
    "multicloud": 4,
    "multinetwork": 1,
    "identifier": 1,
    "gateway": 1,
    "operator_network": 2,
}


@pytest.mark.feature(
    "A18",
    file="src/yunhe/runtime/modules.py",
    old='SubModuleEntry("transport", "infrastructure/transport"),',
    new="",
)
def test_the_table_lists_exactly_ten_modules_and_24_sub_modules() -> None:
    assert {module.name: len(module.submodules) for module in MODULES} == COUNTS
    assert len(SUBMODULES) == sum(COUNTS.values()) == 24


def test_every_sub_module_starts_after_all_it_needs() -> None:
    order = start_order()
    for name in order:
        assert all(order.index(needed) < order.index(name) for needed in SUBMODULES[name].needs)


def test_what_is_built_needs_only_what_is_built_and_has_a_folder_with_an_interface() -> None:
    root = pathlib.Path(yunhe.__file__).parent
    for sub in SUBMODULES.values():
        if sub.built:
            assert (root / sub.folder / "interface.py").is_file()
            assert all(SUBMODULES[needed].built for needed in sub.needs)
        else:
            assert not (root / sub.folder).exists() or sub.folder in {
                s.folder for s in SUBMODULES.values() if s.built
            }


def test_the_platform_is_built_of_the_modules_that_were_published() -> None:
    assert {module.name: tuple(sub.name for sub in module.submodules) for module in MODULES} == paper.MODULES
