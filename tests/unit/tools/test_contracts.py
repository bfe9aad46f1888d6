"""The surface rule, on graphs small enough to read; and every contract bites."""

import subprocess
import sys

import pytest
from grimp import ImportGraph

from tools import break_contracts
from tools.contracts import SurfaceContract

RULE = {
    "layers": ["trading", "control"],
    "surface": ["interface", "contract"],
    "exempt": ["runtime"],
}


def kept(importer: str, imported: str) -> bool:
    graph = ImportGraph()
    for module in (importer, imported):
        graph.add_module(module)
    graph.add_import(importer=importer, imported=imported)
    contract = SurfaceContract(name="surface", session_options={}, contract_options=RULE)
    return contract.check(graph, verbose=False).kept


@pytest.mark.parametrize(
    ("importer", "imported", "allowed"),
    [
        ("yunhe.trading.accounts.service", "yunhe.trading.accounts.store", True),
        ("yunhe.trading.accounts.service", "yunhe.control.pools.interface", True),
        ("yunhe.trading.accounts.service", "yunhe.control.pools.store", False),
        ("yunhe.trading.accounts.service", "yunhe.trading.trades.store", False),
        ("yunhe.trading.accounts.service", "yunhe.trading.trades.interface", True),
        ("yunhe.control.pools.service", "yunhe.control.contract.engine", True),
        ("yunhe.entrypoints.cli.main", "yunhe.trading.accounts.store", False),
        ("yunhe.entrypoints.cli.main", "yunhe.trading.accounts", False),
        ("yunhe.entrypoints.cli.main", "yunhe.trading.accounts.deep.interface", True),
        ("yunhe.entrypoints.cli.main", "yunhe.trading.accounts.deep.store", False),
        ("yunhe.runtime.platform", "yunhe.trading.accounts.store", True),
        ("yunhe.trading.accounts.store", "sqlalchemy", True),
        ("yunhe.trading.accounts.store", "yunhe.kernel.ids", True),
    ],
)
def test_a_sub_module_is_entered_only_by_its_surface(importer: str, imported: str, allowed: bool) -> None:
    assert kept(importer, imported) is allowed


def test_every_contract_has_a_planted_violation() -> None:
    planted = {violation.contract for violation in break_contracts.VIOLATIONS}
    assert planted == set(break_contracts.declared_contracts())


def test_a_contract_that_checks_nothing_is_noticed(tmp_path_factory: pytest.TempPathFactory) -> None:
    harmless = "import tools.break_contracts as b; b.VIOLATIONS = (*b.VIOLATIONS[:1], b.Violation('agent', 'yunhe.agent.planted', 'import os'))"
    copy = tmp_path_factory.mktemp("copy") / "src"
    break_contracts.copy_sources(copy)
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            f"{harmless}; import sys, pathlib; sys.exit(b.check(pathlib.Path({str(copy)!r})))",
        ],
        cwd=break_contracts.ROOT,
        env=break_contracts.environment_for(copy),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 1
    assert "✗ yunhe.agent.planted: 'import os' does not break 'agent'" in done.stdout
    assert "✗ contract 'surface' has no planted violation" in done.stdout
