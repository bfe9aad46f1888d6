"""The report in a real browser: it opens from disk, needs nothing else, and shows its drawings."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from lab.oversubscription.datasets import load_folder

from yunhe.entrypoints.cli.views.flex_report import write_report
from yunhe.flexible.assessment.comparison import ENOUGH_WINDOWS, AssessmentRequest, assess
from yunhe.flexible.reading.rows import TraceReading
from yunhe.flexible.sizing.rightsizing import PRICE_BOOK, Guards, recommend
from yunhe.flexible.synthetic import Cluster, synthetic_trace
from yunhe.flexible.trace import Trace
from yunhe.kernel.money import Tier

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


def made_up(_: pytest.FixtureRequest) -> Trace:
    return synthetic_trace(Cluster(instances=40, days=10, period_s=900))


def real(request: pytest.FixtureRequest) -> Trace:
    (data,), _ = load_folder(request.getfixturevalue("traces"), ["opendc-traces"])
    return data.traces[0]


@pytest.fixture(scope="module", params=[made_up, real], ids=["made up", "real"])
def report(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report on a made-up trace of few days, and on a real one of a month."""
    trace = request.param(request)
    found = assess(AssessmentRequest(trace, None, 0.01, PRICE_BOOK))
    advice = recommend(trace, Tier.HIGH, Guards(), PRICE_BOOK)
    path = tmp_path_factory.mktemp("report") / "report.html"
    write_report(path, found, TraceReading(trace, (), ("a note <with> markup",)), advice, PRICE_BOOK)
    warned = "placements were judged: too few" in path.read_text()
    assert warned == (found.windows < ENOUGH_WINDOWS) == (request.param is made_up)
    return path


def browser() -> str:
    found = shutil.which("chromium") or shutil.which("chromium-browser")
    if found is None:
        pytest.skip("no chromium: apt-get install chromium")
    return found


def rendered(path: Path, tmp_path: Path, *more: str) -> str:
    command = [browser(), *FLAGS, f"--user-data-dir={tmp_path / 'profile'}", *more, path.as_uri()]
    return subprocess.run(command, capture_output=True, text=True, timeout=90, check=True).stdout


def test_the_report_refers_to_nothing_outside_itself(report: Path):
    text = report.read_text()
    assert not re.findall(r"""(?:src|href|url)\s*[=(]\s*["']?\s*(?:https?:)?//""", text)
    assert "<script" not in text
    assert "a note &lt;with&gt; markup" in text


@pytest.mark.drives("chromium")
def test_a_browser_shows_every_section_and_drawing(report: Path, tmp_path: Path):
    shown = rendered(report, tmp_path, "--dump-dom")
    for heading in (
        "What this pool could carry",
        "four ways of filling them",
        "How much of what was given out is used",
        "Density against overload",
        "Can the stated overload be believed?",
        "Every host, hour by hour",
        "What each instance should be",
        "How this was worked out",
        "What was read",
    ):
        assert heading in shown
    assert shown.count("<svg") == 5
    assert "NaN" not in shown
    assert "overload that happened" in shown


@pytest.mark.drives("chromium")
def test_a_browser_paints_the_page(report: Path, tmp_path: Path):
    picture = tmp_path / "page.png"
    rendered(report, tmp_path, "--window-size=900,1400", f"--screenshot={picture}")
    content = picture.read_bytes()
    assert content.startswith(b"\x89PNG")
    assert len(content) > 40_000, "an empty page compresses to a few kilobytes"
