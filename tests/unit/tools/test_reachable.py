"""A module that nothing reaches is found, however the others are reached."""

from pathlib import Path

import grimp
import pytest

from tools import reachable

ROOT = Path(reachable.__file__).parent.parent


@pytest.fixture
def planted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> grimp.ImportGraph:
    package = tmp_path / "planted_tree"
    for name, source in {
        "__init__": "from planted_tree import registry\n",
        "registry": "",
        "start": "def main():\n    from planted_tree.low import lazily\n",
        "low/__init__": "",
        "low/lazily": "",
        "low/nobody": "from planted_tree import registry\n",
    }.items():
        path = package / f"{name}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(source)
    monkeypatch.syspath_prepend(str(tmp_path))
    return grimp.build_graph("planted_tree", cache_dir=None)


def test_a_module_that_only_imports_is_not_reached(planted: grimp.ImportGraph) -> None:
    assert reachable.unreached(planted, ["planted_tree.start"]) == ["planted_tree.low.nobody"]


def test_what_is_imported_in_a_function_or_by_a_package_above_is_reached(planted: grimp.ImportGraph) -> None:
    reached = planted.modules - set(reachable.unreached(planted, ["planted_tree.start"]))
    assert {"planted_tree.low.lazily", "planted_tree.registry"} <= reached


def test_the_exceptions_name_modules_that_exist_and_that_nothing_else_reaches() -> None:
    graph = grimp.build_graph("yunhe", cache_dir=None)
    excepted = {m for m in graph.modules if reachable.is_below(m, reachable.SHIPPED + reachable.PLANNED)}
    starts = reachable.entry_points(graph, ROOT) - excepted
    lost = reachable.unreached(graph, starts)
    for name in reachable.SHIPPED + reachable.PLANNED:
        assert [m for m in lost if reachable.is_below(m, [name])], name


def test_commands_scripts_and_kinds_are_entry_points() -> None:
    starts = reachable.entry_points(grimp.build_graph("yunhe", cache_dir=None), ROOT)
    assert {
        "yunhe.entrypoints.cli.main",
        "yunhe.entrypoints.cli.commands.jobs.ps",
        "yunhe.infrastructure.plugin.serve",
        "yunhe.infrastructure.slurm.kind",
        "yunhe.agent.__main__",
    } <= starts
