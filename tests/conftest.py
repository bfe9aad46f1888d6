"""What every test shares."""

import datetime as dt
import json
import os
from collections import Counter, defaultdict
from pathlib import Path

import hypothesis
import pytest

from tools.features import head_commit

# A slow machine is no defect, so no deadline; and what decides whether a change lands must not depend on luck.
hypothesis.settings.register_profile("yunhe", deadline=None, derandomize="CI" in os.environ)
hypothesis.settings.load_profile("yunhe")

pytest_plugins = ["engines.kubernetes.fixtures", "engines.pools"]
"""Engines whose start is so dear that all tests share one."""


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--apart", action="store_true", help="encode every call between sub-modules, on PostgreSQL"
    )
    parser.addoption("--record", type=Path, help="write how the tests of features ended to this file")


def pytest_itemcollected(item: pytest.Item) -> None:
    for mark in item.iter_markers("feature"):
        item.user_properties.extend(("feature", row) for row in mark.args)


CLUSTERS = {"kubernetes_cluster", "bare_cluster", "three_clusters", "kubeconfig", "kubernetes_programs"}
"""Fixtures that start a Kubernetes control plane."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep together, in one worker, what shares an engine; the rest by file (``--dist loadgroup``)."""
    for item in items:
        fixtures = set(getattr(item, "fixturenames", ()))
        group = "kubernetes" if CLUSTERS & fixtures or "kubernetes" in item.nodeid else str(item.path)
        item.add_marker(pytest.mark.xdist_group(group))


def pytest_runtest_setup(item: pytest.Item) -> None:
    for mark in item.iter_markers("drives"):
        item.user_properties.extend(("drives", name) for name in mark.args)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say how many tests of each kind ran, which engines were really driven, and which blocks of pages were not run."""
    tally: defaultdict[str, Counter[str]] = defaultdict(Counter)
    blocks: set[str] = set()
    of_features: dict[str, str] = {}
    for outcome in ("passed", "skipped", "failed", "error"):  # what comes later is worse, and stays
        for report in terminalreporter.getreports(outcome):
            folder = report.nodeid.removeprefix("tests/").partition("/")[0]
            tally[f"ran {folder}"][outcome] += 1
            for key, name in getattr(report, "user_properties", ()):
                if key == "drives":
                    tally[f"drove {name}"][outcome] += 1
                elif key == "not run":
                    blocks.add(name)
                else:
                    of_features[report.nodeid] = outcome
    if path := terminalreporter.config.getoption("--record"):
        record(path, of_features)
    for what, outcomes in sorted(tally.items(), reverse=True):
        counts = ", ".join(f"{count} {outcome}" for outcome, count in outcomes.items())
        terminalreporter.write_line(f"{what}: {counts}")
    if blocks:
        terminalreporter.write_line(f"code blocks of pages that were not run: {len(blocks)}")
        for block in sorted(blocks):
            terminalreporter.write_line(f"  {block}")


def record(path: Path, outcomes: dict[str, str]) -> None:
    """Write how the tests that prove features ended, for the ledger; what the last run wrote there goes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    now = dt.datetime.now(dt.UTC).isoformat(timespec="seconds")
    path.write_text(json.dumps({"at": now, "commit": head_commit(), "outcomes": outcomes}, indent=1))
