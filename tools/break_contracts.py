"""Break every import contract on purpose and see that it is noticed.

Each violation below is planted, alone, in a temporary copy of the sources. A contract that does not fail, or that has
no violation here, fails this script: it would check nothing.
"""

import contextlib
import io
import os
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from pathlib import Path
from typing import NamedTuple

from importlinter.cli import lint_imports

ROOT = Path(__file__).resolve().parent.parent
COPIED = "YUNHE_CONTRACTS_COPY"


class Violation(NamedTuple):
    """A line that must not be: in which module, under which contract."""

    contract: str
    module: str
    line: str


VIOLATIONS = (
    Violation("direction", "yunhe.kernel.planted", "import yunhe.storage"),
    Violation("direction", "yunhe.control.planted", "import yunhe.scheduling"),
    Violation("direction", "yunhe.planted.place", "VALUE = 1"),
    Violation(
        "closed-infrastructure", "yunhe.scheduling.planted", "import yunhe.infrastructure.contract.model"
    ),
    Violation(
        "closed-infrastructure", "yunhe.entrypoints.planted", "import yunhe.infrastructure.contract.model"
    ),
    Violation("closed-control", "yunhe.trading.planted", "import yunhe.control"),
    Violation("plugins-below-pools", "yunhe.control.plugins.planted", "import yunhe.control.pools.model"),
    Violation("engines", "yunhe.flexible.planted", "import sqlalchemy"),
    Violation("engines", "yunhe.availability.planted", "import yunhe.storage"),
    Violation("agent", "yunhe.agent.planted", "import msgspec"),
    Violation("agent", "yunhe.agent.planted", "import yunhe.kernel.units"),
    Violation("pure-kernel", "yunhe.kernel.planted", "import random"),
    Violation("pure-decisions", "yunhe.scheduling.decision.decide", "import time"),
    Violation(
        "pure-decisions",
        "yunhe.scheduling.decision.planted",
        "import yunhe.scheduling.orchestration.jobs.model",
    ),
    Violation("pure-decisions", "yunhe.scheduling.decision.score.planted", "import sqlalchemy"),
    Violation(  # a decision that knows a deployer
        "pure-decisions",
        "yunhe.scheduling.decision.decide",
        "import yunhe.infrastructure.kubernetes.objects.manifests",
    ),
    Violation("pure-decisions", "yunhe.scheduling.decision.together", "import yunhe.control.pools.interface"),
    Violation("pure-decisions", "yunhe.scheduling.perception.snapshot", "import yunhe.kernel.clock"),
    Violation("pure-decisions", "yunhe.scheduling.planted.decide", "import random"),
    Violation("pure-decisions", "yunhe.scheduling.planted.decide", "import yunhe.control"),
    Violation("pure-decisions", "yunhe.trading.demand.parse", "import yunhe.storage"),
    Violation("pure-decisions", "yunhe.trading.trades.chain", "import time"),
    Violation("stateless-infrastructure", "yunhe.infrastructure.host.planted", "import sqlalchemy"),
    Violation("stateless-infrastructure", "yunhe.infrastructure.fake.planted", "import yunhe.storage"),
    Violation("adapters", "yunhe.infrastructure.host.planted", "import yunhe.infrastructure.fake.pool"),
    Violation("sql-in-stores", "yunhe.trading.accounts.service", "import sqlalchemy"),
    Violation("sql-in-stores", "yunhe.runtime.planted", "from sqlalchemy.engine import Connection"),
    Violation(
        "sql-in-stores",
        "yunhe.scheduling.orchestration.jobs.steps",
        "import yunhe.scheduling.orchestration.jobs.tables",
    ),
    Violation("surface", "yunhe.trading.planted.service", "import yunhe.scheduling.perception.store"),
    Violation("surface", "yunhe.trading.planted.service", "import yunhe.trading.accounts.store"),
    Violation("surface", "yunhe.trading.planted.service", "import yunhe.scheduling.orchestration.jobs.store"),
    Violation("surface", "yunhe.entrypoints.cli.planted", "import yunhe.trading.accounts.store"),
    Violation("surface", "yunhe.control.planted.service", "import yunhe.infrastructure.fake.engine"),
)


def main() -> int:
    """Copy the sources, then check the copy in a process that sees only it."""
    if COPIED in os.environ:
        return check(Path(os.environ[COPIED]))
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "src"
        copy_sources(copy)
        return subprocess.run(
            [sys.executable, __file__], cwd=ROOT, env=environment_for(copy), check=False
        ).returncode


def copy_sources(copy: Path) -> None:
    """Copy our package into *copy*."""
    shutil.copytree(ROOT / "src" / "yunhe", copy / "yunhe", ignore=shutil.ignore_patterns("__pycache__"))


def environment_for(copy: Path) -> dict[str, str]:
    """Return an environment in which our package is the one in *copy*."""
    return {**os.environ, COPIED: str(copy), "PYTHONPATH": f"{copy}{os.pathsep}{ROOT}"}


def check(copy: Path) -> int:
    """Plant each violation in *copy*; return the exit status."""
    began_at = time.monotonic()
    names = declared_contracts()
    planted = {violation.contract for violation in VIOLATIONS}
    problems = [f"contract {contract!r} has no planted violation" for contract in names.keys() - planted]
    problems += [f"no contract {contract!r} is declared" for contract in planted - names.keys()]
    problems += [f"contract {contract!r} is broken as it is" for contract in names if breaks(contract, names)]
    for violation in VIOLATIONS:
        if violation.contract in names and not noticed(violation, copy, names):
            problems.append(f"{violation.module}: {violation.line!r} does not break {violation.contract!r}")
    for problem in problems:
        print(f"✗ {problem}")
    print(
        f"{len(VIOLATIONS)} violations planted against {len(names)} contracts, {len(problems)} problems,"
        f" {time.monotonic() - began_at:.1f} s"
    )
    return 1 if problems else 0


def declared_contracts() -> dict[str, str]:
    """Return the name of every contract in pyproject.toml by its ID."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        contracts = tomllib.load(file)["tool"]["importlinter"]["contracts"]
    return {contract["id"]: contract["name"] for contract in contracts}


def noticed(violation: Violation, copy: Path, names: dict[str, str]) -> bool:
    """Plant *violation*, see whether its contract breaks, and clean up."""
    path = copy.joinpath(*violation.module.split(".")).with_suffix(".py")
    before = path.read_text() if path.exists() else None
    new_package = None if path.parent.exists() else path.parent
    path.parent.mkdir(exist_ok=True)
    if new_package is not None:
        (new_package / "__init__.py").touch()
    path.write_text(f"{before or ''}\n{violation.line}\n")
    try:
        return breaks(violation.contract, names)
    finally:
        if before is not None:
            path.write_text(before)
        else:
            path.unlink()
        if new_package is not None:
            shutil.rmtree(new_package)


def breaks(contract: str, names: dict[str, str]) -> bool:
    """Return whether import-linter reports *contract*, and not some other trouble."""
    report = io.StringIO()
    with contextlib.redirect_stdout(report):
        status = lint_imports(limit_to_contracts=(contract,), no_cache=True, no_logo=True)
    words = " ".join(report.getvalue().split())
    if f"{names[contract]} {'BROKEN' if status else 'KEPT'}" not in words:
        raise SystemExit(f"import-linter could not check {contract!r}:\n{report.getvalue()}")
    return bool(status)


if __name__ == "__main__":
    sys.exit(main())
